package mlx

// #include "kernels_shim.h"
// #cgo noescape ck_set_trellis
// #cgo nocallback ck_set_trellis
import "C"

import "fmt"

// Trellis is the packing of a trellis-coded weight (QTIP's 1MAD code): blocks of Block elements along Axis, each a ring of Block * Bits
// bits, of which an element's state is State bits, and a float32 scale.
type Trellis struct {
	Bits, Block, State int
	Axis               int // 1: blocks along a row, 0: along a column
}

// TrellisBytes is what a packed trellis-coded weight [n, cols] takes, for plans.
func (k *Kernels) TrellisBytes(n, cols int, t Trellis) (int64, error) {
	return k.size(func(C.int) C.size_t {
		return C.ck_size_trellis(C.int(n), C.int(cols), C.int(t.Bits), C.int(t.Block), C.int(t.State), C.int(t.Axis))
	}, Float32)
}

// NewTrellis makes a trellis-coded weight [n, cols], the kernel "trellis" of the library.
func (k *Kernels) NewTrellis(n, cols int, t Trellis) (*Packed, error) {
	p := &Packed{Rows: n, Cols: cols, Trellis: &t}
	return p, k.checked("weight", func() C.int {
		return p.take(C.ck_new_trellis(C.int(n), C.int(cols), C.int(t.Bits), C.int(t.Block), C.int(t.State), C.int(t.Axis)))
	})
}

// SetTrellis fills rows [row, row+count), of axis 0 whole blocks of them: rings [count, Cols/Block] as little-endian words, of axis 0
// [count/Block, Cols], and as many float32 scales.
func (p *Packed) SetTrellis(row, count int, rings, scales []byte) error {
	if p.Trellis == nil {
		return &OpError{Op: "set_trellis", Message: "the weight is no trellis"}
	}
	blocks := count * p.Cols / p.Trellis.Block
	if words := count * p.Cols * p.Trellis.Bits / 8; count < 1 || len(rings) != words || len(scales) != 4*blocks {
		return &OpError{Op: "set_trellis", Message: fmt.Sprintf("%d and %d bytes, want %d and %d", len(rings), len(scales), words, 4*blocks)}
	}
	return p.set("set_trellis", func() C.int { return C.ck_set_trellis(p.ctx, C.int(row), C.int(count), u8(rings), u8(scales)) })
}
