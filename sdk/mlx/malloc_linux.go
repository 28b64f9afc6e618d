package mlx

// #include <features.h>
// #ifdef __GLIBC__
// #include <malloc.h>
// static void bound_malloc(int mmap_from, int keep, int arenas) {
//   mallopt(M_MMAP_THRESHOLD, mmap_from);
//   mallopt(M_TRIM_THRESHOLD, keep);
//   mallopt(M_ARENA_MAX, arenas);
// }
// #else
// static void bound_malloc(int mmap_from, int keep, int arenas) {}
// #endif
import "C"

// MLX's CPU arrays come from malloc. By default glibc raises the size from which it maps memory whenever such a block is
// freed, up to 32 MiB, and then keeps freed blocks in its heaps: a cache that grows in steps leaves its whole history behind,
// which no plan can foresee. With these settings freed arrays go back to the system, and heaps hold small things alone.
const (
	mapFrom    = 256 << 10
	heapKeeps  = 4 << 20
	heapArenas = 2
)

func boundMalloc() { C.bound_malloc(mapFrom, heapKeeps, heapArenas) }
