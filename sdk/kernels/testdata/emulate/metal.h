// What the Metal sources use of the language, for a C++ compiler.
#define device
#define thread
#define threadgroup static
#define thread_index_in_simdgroup (int(fiber) & 31)
#define simdgroup_index_in_threadgroup (int(fiber) >> 5)
#define thread_position_in_threadgroup (Index{int(fiber), 0, 0})
#define threadgroup_position_in_grid block
#define thread_position_in_grid (Index{block.x * blocks.x + int(fiber), block.y, 0})

typedef unsigned int uint;
typedef unsigned short ushort;
using std::fma;

template <typename T>
static T as_type(uint v) {
	T t;
	std::memcpy(&t, &v, sizeof t);
	return t;
}

static float simd_shuffle_xor(float v, ushort mask) { return shuffle(v, mask); }

enum class mem_flags { mem_threadgroup };
static void threadgroup_barrier(mem_flags) { together(); }
