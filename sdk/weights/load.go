package weights

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights/quant"
)

// Progress says how far a load is; bytes are those of the file.
type Progress struct {
	Bytes, BytesTotal     int64
	Tensors, TensorsTotal int
}

// Tensors are loaded parameters by name. Close frees them.
type Tensors struct {
	arrays map[string]*mlx.Array
	packed map[string]*mlx.Packed
	coded  map[string]*kernels.TrellisMatrix
	board  *nn.Board
}

// UseBoard lets adapters change the linear layers that are made of the tensors from now on.
func (t *Tensors) UseBoard(b *nn.Board) { t.board = b }

// Board implements nn.Boarded.
func (t *Tensors) Board() *nn.Board { return t.board }

// Get is the parameter of that name, which Match has promised; nil for one that is packed or coded, or for no Param.
func (t *Tensors) Get(name string) *mlx.Array { return t.arrays[name] }

// Take is Get of what the caller closes from now on.
func (t *Tensors) Take(name string) *mlx.Array {
	a := t.arrays[name]
	delete(t.arrays, name)
	return a
}

// Packed is the matrix of that name in the kernels' memory; nil for an array.
func (t *Tensors) Packed(name string) *mlx.Packed { return t.packed[name] }

// Coded implements nn.WithCoded.
func (t *Tensors) Coded(name string) nn.Coded {
	if m, ok := t.coded[name]; ok {
		return m
	}
	return nil
}

// Close frees every array and packed weight.
func (t *Tensors) Close() {
	for _, a := range t.arrays {
		a.Close()
	}
	for _, p := range t.packed {
		p.Close()
	}
	for _, m := range t.coded {
		m.Close()
	}
	t.arrays, t.packed, t.coded = nil, nil, nil
}

// Target is what a model is loaded for.
type Target struct {
	// DType is what the graph computes in.
	DType mlx.DType
	// Kernels take the matrices, packed as they are stored; nil loads everything as arrays.
	Kernels *mlx.Kernels
	// Sources take the matrices of trellis codes as they are stored, on a GPU; nil decodes them.
	Sources *kernels.Sources
	// Int8 rounds activations to 8 bits where a packed weight is quantized (kernels=fast).
	Int8 bool
}

// packs reports whether a source goes to the kernels: the matrices that a graph multiplies by or looks rows up in.
func (t Target) packs(src Source) bool {
	if t.Kernels == nil || src.Plain || !strings.HasSuffix(src.Name, ".weight") {
		return false
	}
	return len(src.Shape) == 2 || src.Experts && src.Shape[1]%kernelPanel == 0 && src.Shape[2]%kernelPanel == 0
}

// Load reads all parameters. Arrays of float tensors have the target's dtype, of quantized ones float32. report is called
// after every piece. Rows are converted on all of Go's processors.
func (s *Set) Load(ctx context.Context, scope *mlx.Scope, target Target, report func(Progress)) (_ *Tensors, err error) {
	l := loader{set: s, ctx: ctx, report: report}
	l.progress.TensorsTotal, l.progress.BytesTotal = len(s.sources), s.StoredBytes()
	out := &Tensors{arrays: map[string]*mlx.Array{}, packed: map[string]*mlx.Packed{}, coded: map[string]*kernels.TrellisMatrix{}}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	for _, src := range s.sources {
		if src, err = l.scaled(src); err != nil {
			return nil, err
		}
		if target.codes(src) {
			if out.coded[src.Name], err = l.code(scope, src, target.Sources); err != nil {
				return nil, err
			}
		} else if target.packs(src) {
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

// kernelPanel is how many rows of a matrix the kernels hold together: experts are told apart where each is whole panels.
const kernelPanel = 16

// loadsAs is the dtype of an array. MLX gathers the matrices of experts on the CPU in float32 only.
func (src Source) loadsAs(dtype mlx.DType) mlx.DType {
	stored, float := src.codec.(floatCodec)
	if src.codec.quantized() || src.Experts || src.KeepFloat32 && float && stored.dtype() == mlx.Float32 {
		return mlx.Float32
	}
	return dtype
}

type loader struct {
	set      *Set
	ctx      context.Context
	report   func(Progress)
	progress Progress
	buffers  [2][parts][]byte // a piece that is converted, and the next one while it is read
	staged   [parts][]byte
}

// scaled is src with its global scale read.
func (l *loader) scaled(src Source) (Source, error) {
	if src.global == nil {
		return src, nil
	}
	buffer := make([]byte, src.global.Bytes)
	if err := l.read(*src.global, buffer, 0); err != nil {
		return src, err
	}
	c := src.codec.(floatBlockCodec)
	c.global = math.Float32frombits(binary.LittleEndian.Uint32(buffer))
	src.codec = c
	l.progress.Bytes += src.global.Bytes
	return src, nil
}

// load decodes one source into memory, which holds its whole array.
func (l *loader) load(src Source, dtype mlx.DType, memory []byte) error {
	rows, width := src.geometry()
	rowOut := len(memory) / rows
	return l.pieces(src, rows, width, func(p piece) error {
		return eachRow(p.count, func(r int, scratch *scratch) error {
			at := halfSplitRow(p.first+r, rows, src.InterleavedHeads)
			scratch.dense(src.codec, dtype, width, memory[at*rowOut:(at+1)*rowOut], p.row(r))
			return nil
		})
	})
}

// pack brings one matrix into the kernels' memory, in the first of its packings that holds it.
func (l *loader) pack(src Source, target Target) (*mlx.Packed, error) {
	before := l.progress.Bytes
	var err error
	for _, how := range src.codec.packings(target.DType) {
		l.progress.Bytes = before
		var p *mlx.Packed
		if p, err = l.packAs(src, target.Kernels, how); errors.Is(err, quant.ErrNotHeld) {
			continue
		}
		if err == nil && target.Int8 && how.affine != nil && !src.Experts {
			if err = p.SetInt8(true); err != nil {
				p.Close()
			}
		}
		return p, err
	}
	return nil, corrupt(src.reads[0], "%w", err).WithNext("load it without kernels (kernels=off), which takes any scale")
}

func (l *loader) packAs(src Source, kernels *mlx.Kernels, how packing) (_ *mlx.Packed, err error) {
	out, err := how.reserve(kernels, int(src.elements())/src.Shape[len(src.Shape)-1], src.Shape[len(src.Shape)-1])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", src.Name, err)
	}
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	rows, width := src.geometry()
	err = l.pieces(src, rows, width, func(p piece) error {
		staged := p.bytes
		if !src.verbatim(how) {
			var err error
			if staged, err = l.stage(src, how, p); err != nil {
				return err
			}
		}
		switch {
		case how.trellis != nil:
			each := src.codec.(trellisCodec).together()
			err = out.SetTrellis(p.first*each, p.count*each, staged[0], staged[1])
		case how.affine != nil:
			err = out.SetAffine(p.first, p.count, staged[0], staged[1], staged[2])
		default:
			err = out.SetDense(p.first, p.count, staged[0])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", src.Name, err)
		}
		return nil
	})
	return out, err
}

// verbatim reports whether the kernels take the rows as the file has them.
func (src Source) verbatim(how packing) bool {
	switch c := src.codec.(type) {
	case affineCodec, awqCodec:
		return src.InterleavedHeads == 0
	case floatCodec:
		return src.InterleavedHeads == 0 && c.dtype() == how.dtype
	}
	return false
}

// stage makes a piece what the kernels take, its rows in the graph's order.
func (l *loader) stage(src Source, how packing, p piece) ([parts][]byte, error) {
	rows, width := src.geometry()
	sizes := how.rowBytes(width)
	for i, n := range sizes {
		l.staged[i] = grown(l.staged[i], p.count*n)
	}
	err := eachRow(p.count, func(r int, scratch *scratch) error {
		var dst [parts][]byte
		at := halfSplitRow(p.first+r, rows, src.InterleavedHeads) - p.first
		for i, n := range sizes {
			dst[i] = l.staged[i][at*n : (at+1)*n]
		}
		switch {
		case how.affine != nil:
			return src.codec.pack(dst, *how.affine, p.row(r))
		case how.trellis != nil:
			return src.codec.pack(dst, mlx.Affine{}, p.row(r))
		}
		if exact := scratch.dense(src.codec, how.dtype, width, dst[0], p.row(r)); !exact && src.codec.quantized() {
			return quant.ErrNotHeld
		}
		return nil
	})
	return l.staged, err
}

// halfSplitRow is where a stored row belongs: row 2i+half of a head goes to half*D/2 + i.
func halfSplitRow(row, rows, heads int) int {
	if heads == 0 {
		return row
	}
	dim := rows / heads
	head, within := row/dim, row%dim
	return head*dim + within%2*(dim/2) + within/2
}
