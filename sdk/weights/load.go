package weights

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unsafe"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

// pieceBytes bounds what is read from the file at once.
const pieceBytes = 8 << 20

// Progress says how far a load is; bytes are those of the file.
type Progress struct {
	Bytes, BytesTotal     int64
	Tensors, TensorsTotal int
}

// Tensors are loaded parameters by name. Close frees them.
type Tensors struct {
	arrays map[string]*mlx.Array
	packed map[string]*mlx.Packed
}

// Get is the parameter of that name, which Match has promised; nil for one that is packed, or for no Param.
func (t *Tensors) Get(name string) *mlx.Array { return t.arrays[name] }

// Packed is the matrix of that name in the kernels' memory; nil for an array.
func (t *Tensors) Packed(name string) *mlx.Packed { return t.packed[name] }

// Close frees every array and packed weight.
func (t *Tensors) Close() {
	for _, a := range t.arrays {
		a.Close()
	}
	for _, p := range t.packed {
		p.Close()
	}
	t.arrays, t.packed = nil, nil
}

// Target is what a model is loaded for.
type Target struct {
	// DType is what the graph computes in.
	DType mlx.DType
	// Kernels take the matrices, packed as they are stored; nil loads everything as arrays.
	Kernels *mlx.Kernels
}

// packs reports whether a source goes to the kernels: the matrices that a graph multiplies by or looks rows up in.
func (t Target) packs(src Source) bool {
	return t.Kernels != nil && len(src.Shape) == 2 && strings.HasSuffix(src.Name, ".weight")
}

// Load reads all parameters. Arrays of float tensors have the target's dtype, of quantized ones float32. report is called
// after every piece.
func (s *Set) Load(ctx context.Context, scope *mlx.Scope, target Target, report func(Progress)) (_ *Tensors, err error) {
	l := loader{set: s, ctx: ctx, report: report}
	l.progress.TensorsTotal, l.progress.BytesTotal = len(s.sources), s.StoredBytes()
	out := &Tensors{arrays: map[string]*mlx.Array{}, packed: map[string]*mlx.Packed{}}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	for _, src := range s.sources {
		if target.packs(src) {
			if out.packed[src.Name], err = l.pack(src, target); err != nil {
				return nil, err
			}
		} else {
			array, memory, err := scope.Empty(src.loadsAs(target.DType), src.Shape...)
			if err != nil {
				return nil, fmt.Errorf("allocate %s: %w", src.Name, err)
			}
			if err := l.load(src, array.DType(), memory); err != nil {
				return nil, err
			}
			out.arrays[src.Name] = scope.Keep(array)
		}
		l.progress.Tensors++
		l.report(l.progress)
	}
	return out, nil
}

func (src Source) loadsAs(dtype mlx.DType) mlx.DType {
	if src.codec.quantized() {
		return mlx.Float32
	}
	return dtype
}

type loader struct {
	set      *Set
	ctx      context.Context
	report   func(Progress)
	progress Progress
	scratch  []float32
}

// load decodes one source into memory, which holds its whole array.
func (l *loader) load(src Source, dtype mlx.DType, memory []byte) error {
	width := src.Shape[len(src.Shape)-1]
	rows := int(src.elements()) / width
	rowOut := len(memory) / rows
	if cap(l.scratch) < width {
		l.scratch = make([]float32, width)
	}
	return l.pieces(src, rows, width, func(first, count int, row func(int) [][]byte) error {
		for r := range count {
			at := halfSplitRow(first+r, rows, src.InterleavedHeads)
			l.row(src.codec, dtype, memory[at*rowOut:(at+1)*rowOut], row(r))
		}
		return nil
	})
}

// pack brings one matrix into the kernels' memory.
func (l *loader) pack(src Source, target Target) (_ *mlx.Packed, err error) {
	rows, width := src.Shape[0], src.Shape[1]
	p, err := src.newPacked(target)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", src.Name, err)
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	how := src.codec.packing(target.DType)
	sizes := how.rowBytes(width)
	var staged [3][]byte
	err = l.pieces(src, rows, width, func(first, count int, row func(int) [][]byte) error {
		for i, n := range sizes {
			if cap(staged[i]) < count*n {
				staged[i] = make([]byte, count*n)
			}
			staged[i] = staged[i][:count*n]
		}
		for r := range count {
			var dst [3][]byte
			for i, n := range sizes {
				dst[i] = staged[i][r*n : (r+1)*n]
			}
			if err := l.packRow(src, how, dst, row(r)); err != nil {
				return corrupt(src.reads[0], "row %d: %w", first+r, err)
			}
		}
		return set(p, src, rows, first, count, sizes, staged)
	})
	return p, err
}

// packRow makes the kernels' input of one row.
func (l *loader) packRow(src Source, how packing, dst [3][]byte, row [][]byte) error {
	f, float := src.codec.(floatCodec)
	if float && stores[how.dtype] != f.name {
		if width := src.Shape[1]; cap(l.scratch) < width {
			l.scratch = make([]float32, width)
		}
		l.row(f, how.dtype, dst[0], row)
		return nil
	}
	return src.codec.pack(dst, row)
}

// set hands staged rows over, one call for all that stay in order.
func set(p *mlx.Packed, src Source, rows, first, count int, sizes [3]int, staged [3][]byte) error {
	step := count
	if src.InterleavedHeads != 0 {
		step = 1
	}
	for r := 0; r < count; r += step {
		at := halfSplitRow(first+r, rows, src.InterleavedHeads)
		var part [3][]byte
		for i, n := range sizes {
			part[i] = staged[i][r*n : (r+step)*n]
		}
		var err error
		if p.Affine == nil {
			err = p.SetDense(at, step, part[0])
		} else {
			err = p.SetAffine(at, step, part[0], part[1], part[2])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", src.Name, err)
		}
	}
	return nil
}

// pieces reads a source's rows of width values, some at a time. row(r) is row r of a piece in each tensor that is read.
func (l *loader) pieces(src Source, rows, width int, use func(first, count int, row func(r int) [][]byte) error) error {
	sizes := src.codec.rowBytes(width)
	rowTotal := 0
	for _, n := range sizes {
		rowTotal += n
	}
	buffers, at := make([][]byte, len(sizes)), make([][]byte, len(sizes))
	row := func(r int) [][]byte {
		for i, n := range sizes {
			at[i] = buffers[i][r*n : (r+1)*n]
		}
		return at
	}
	for first := 0; first < rows; {
		count := min(max(pieceBytes/rowTotal, 1), rows-first)
		for i, t := range src.reads {
			if err := l.read(t, &buffers[i], first*sizes[i], count*sizes[i]); err != nil {
				return err
			}
		}
		if err := use(first, count, row); err != nil {
			return err
		}
		first += count
		l.progress.Bytes += int64(count * rowTotal)
		l.report(l.progress)
	}
	return nil
}

// read fills buffer with n bytes of t from off.
func (l *loader) read(t artifact.Tensor, buffer *[]byte, off, n int) error {
	if err := l.ctx.Err(); err != nil {
		return contract.Errorf(contract.Cancelled, t.Name, "loading was cancelled: %w", err)
	}
	if cap(*buffer) < n {
		*buffer = make([]byte, n)
	}
	*buffer = (*buffer)[:n]
	got, err := l.set.artifact.ReadAt(t, *buffer, int64(off))
	if got == n && (err == nil || errors.Is(err, io.EOF)) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return corrupt(t, "ends after %d of %d bytes", off+got, t.Bytes)
	}
	return err
}

// row decodes one row into its place.
func (l *loader) row(c codec, dtype mlx.DType, out []byte, src [][]byte) {
	if f, ok := c.(floatCodec); ok && stores[dtype] == f.name {
		copy(out, src[0])
		return
	}
	if dtype == mlx.Float32 {
		c.row(unsafe.Slice((*float32)(unsafe.Pointer(&out[0])), len(out)/4), src)
		return
	}
	values := l.scratch[:len(out)/2]
	c.row(values, src)
	round := quant.ToBF16
	if dtype == mlx.Float16 {
		round = quant.ToF16
	}
	for i, v := range values {
		binary.LittleEndian.PutUint16(out[2*i:], round(v))
	}
}

// stores names the file type whose bytes are an array's own.
var stores = map[mlx.DType]string{mlx.Float32: "F32", mlx.Float16: "F16", mlx.BFloat16: "BF16"}

// halfSplitRow is where a stored row belongs: row 2i+half of a head goes to half*D/2 + i.
func halfSplitRow(row, rows, heads int) int {
	if heads == 0 {
		return row
	}
	dim := rows / heads
	head, within := row/dim, row%dim
	return head*dim + within%2*(dim/2) + within/2
}
