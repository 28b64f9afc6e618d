package weights

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
}

// Get is the parameter of that name, which Match has promised; nil for a name that was no Param.
func (t *Tensors) Get(name string) *mlx.Array { return t.arrays[name] }

// Close frees every array.
func (t *Tensors) Close() {
	for _, a := range t.arrays {
		a.Close()
	}
	t.arrays = nil
}

// Load reads all parameters. Float tensors come as dtype, quantized ones as float32. report is called after every piece.
func (s *Set) Load(ctx context.Context, scope *mlx.Scope, dtype mlx.DType, report func(Progress)) (_ *Tensors, err error) {
	l := loader{set: s, ctx: ctx, report: report}
	l.progress.TensorsTotal, l.progress.BytesTotal = len(s.sources), s.StoredBytes()
	out := &Tensors{arrays: make(map[string]*mlx.Array, len(s.sources))}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	for _, src := range s.sources {
		array, memory, err := scope.Empty(src.loadsAs(dtype), src.Shape...)
		if err != nil {
			return nil, fmt.Errorf("allocate %s: %w", src.Name, err)
		}
		if err := l.load(src, array.DType(), memory); err != nil {
			return nil, err
		}
		out.arrays[src.Name] = scope.Keep(array)
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
	sizes := src.codec.rowBytes(width)
	rowTotal := 0
	for _, n := range sizes {
		rowTotal += n
	}
	rowOut := len(memory) / rows
	if cap(l.scratch) < width {
		l.scratch = make([]float32, width)
	}
	buffers := make([][]byte, len(sizes))
	for first := 0; first < rows; {
		count := min(max(pieceBytes/rowTotal, 1), rows-first)
		for i, t := range src.reads {
			if err := l.read(t, &buffers[i], first*sizes[i], count*sizes[i]); err != nil {
				return err
			}
		}
		for r := range count {
			row := make([][]byte, len(sizes))
			for i, n := range sizes {
				row[i] = buffers[i][r*n : (r+1)*n]
			}
			at := halfSplitRow(first+r, rows, src.InterleavedHeads)
			l.row(src.codec, dtype, memory[at*rowOut:(at+1)*rowOut], row)
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
