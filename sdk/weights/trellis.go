package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

const trellisMode = "trellis"

// trellis reads an entry of mode trellis. Nothing of it has a default of MLX's: what a path's entry leaves out is the block's.
func (r moduleReader) trellis(field string, entry map[string]any) (Module, error) {
	var m Module
	value := func(key string) any {
		if v, ok := entry[key]; ok || r.block["mode"] != trellisMode {
			return v
		}
		return r.block[key]
	}
	number := func(key string, into *int) error {
		v := value(key)
		n, isInt := v.(int64)
		switch {
		case v == nil:
			return contract.Errorf(contract.ArtifactCorrupt, r.name+": "+field+"."+key, "is missing, and mode trellis has no default")
		case !isInt || n < 0 || n > math.MaxInt16:
			return contract.Errorf(contract.ArtifactCorrupt, r.name+": "+field+"."+key, "%v is no such number", v)
		}
		*into = int(n)
		return nil
	}
	for _, one := range []struct {
		key  string
		into *int
	}{{"bits", &m.Bits}, {"group_size", &m.Group}, {"L", &m.State}, {"axis", &m.Axis}} {
		if err := number(one.key, one.into); err != nil {
			return m, err
		}
	}
	if code := value("code"); code != quant.TrellisCode {
		return m, contract.Errorf(contract.UnsupportedModel, r.name+": "+field+".code", "the trellis code %v is not known", code).
			WithNext("use a checkpoint of the code " + quant.TrellisCode)
	}
	if m.Mode = trellisMode; !m.trellis().Valid() {
		return m, contract.Errorf(contract.ArtifactCorrupt, r.name+": "+field, "%s is no format", m)
	}
	return m, nil
}

// trellis is the module's format, of mode trellis.
func (m Module) trellis() quant.Trellis {
	return quant.Trellis{Bits: m.Bits, Block: m.Group, State: m.State, Axis: m.Axis}
}

// trellisOf is the entry by which a matrix is a trellis, nil where it is none: its own, or the block's where it has none.
func (m *matcher) trellisOf(entry Module, listed bool) *Module {
	switch {
	case !listed:
		return m.rules.Quantization.Trellis
	case entry.Mode == trellisMode:
		return &entry
	}
	return nil
}

// trellis is a matrix of mode trellis: rings and scales. Nothing in the file tells its states, code and axis: the config must.
func (m *matcher) trellis(p Param, path string, packed, scales artifact.Tensor, is Module) (Source, error) {
	t := is.trellis()
	scale, isFloat := floatCodecOf(scales.DType)
	switch {
	case len(p.Shape) != 2 || p.Part != nil || p.InterleavedHeads != 0:
		return Source{}, unsupportedMode(m.artifact.Path+": "+path, "mode trellis, though it is no plain matrix of its own")
	case packed.DType != artifact.U32:
		return Source{}, corrupt(packed, "trellis codes are %s, not U32", packed.DType)
	case !isFloat:
		return Source{}, corrupt(scales, "scales are %s, not floats", scales.DType)
	}
	lines, width := p.Shape[0], p.Shape[1] // what lies together, and how many values that are
	if t.Axis == 0 {
		lines, width = lines/t.Block, width*t.Block
	}
	if p.Shape[t.Axis]%t.Block != 0 {
		return Source{}, corrupt(packed, "blocks of %d do not divide axis %d of a matrix of %v", t.Block, t.Axis, p.Shape)
	}
	fits := func(t artifact.Tensor, cols int) bool {
		return slices.Equal(t.Shape, []int64{int64(lines), int64(cols)})
	}
	if !fits(packed, width*t.Bits/32) || !fits(scales, width/t.Block) {
		return Source{}, corrupt(packed, "packed %v with scales %v cannot hold a matrix of %v as %s", packed.Shape, scales.Shape, p.Shape, is)
	}
	return Source{Param: p, codec: trellisCodec{t, scale}, reads: []artifact.Tensor{packed, scales}}, nil
}

// trellisCodec decodes what lies together: a row, or of axis 0 a block of rows.
type trellisCodec struct {
	trellis quant.Trellis
	scales  floatCodec
}

// together is how many rows of a matrix a row of the codec is.
func (c trellisCodec) together() int {
	if c.trellis.Axis == 0 {
		return c.trellis.Block
	}
	return 1
}

func (c trellisCodec) rowBytes(n int) [parts]int {
	return [parts]int{n * c.trellis.Bits / 8, n / c.trellis.Block * c.scales.float.Size()}
}

func (c trellisCodec) row(dst []float32, src [parts][]byte) {
	scales := make([]float32, len(dst)/c.trellis.Block)
	c.scales.decode(scales, src[1])
	c.trellis.Row(dst, src[0], scales)
}

func (c trellisCodec) packings(mlx.DType) []packing {
	t := c.trellis
	return []packing{{trellis: &mlx.Trellis{Bits: t.Bits, Block: t.Block, State: t.State, Axis: t.Axis}}}
}

// pack leaves the rings as they are; the kernels take float32 scales.
func (c trellisCodec) pack(dst [parts][]byte, _ mlx.Affine, src [parts][]byte) error {
	copy(dst[0], src[0])
	scales := make([]float32, len(dst[1])/4)
	c.scales.decode(scales, src[1])
	for i, v := range scales {
		binary.LittleEndian.PutUint32(dst[1][4*i:], math.Float32bits(v))
	}
	return nil
}

func (c trellisCodec) quantized() bool { return true }

// held: of axis 0 the kernels keep 16 rows together, each with whole states.
func (c trellisCodec) held() string {
	if t := c.trellis; t.Axis == 0 {
		return fmt.Sprintf("windows of %d bits for 16 values", ((15*t.Bits+t.State+31)/32+1)*32)
	}
	return ""
}

func (c trellisCodec) String() string {
	t := c.trellis
	return fmt.Sprintf("trellis %d-bit in blocks of %d along axis %d", t.Bits, t.Block, t.Axis)
}

// Kernels names the kernels that the set's packed matrices take beside those of a graph.
func (s *Set) Kernels() []string {
	for _, src := range s.sources {
		if _, ok := src.codec.(trellisCodec); ok && strings.HasSuffix(src.Name, ".weight") {
			return []string{kernels.Trellis.Name}
		}
	}
	return nil
}

// codes reports whether a source goes to a GPU as codes.
func (t Target) codes(src Source) bool {
	_, ok := src.codec.(trellisCodec)
	return ok && t.Sources != nil && !src.Plain && len(src.Shape) == 2 && strings.HasSuffix(src.Name, ".weight")
}

// codedBytes is what a matrix of trellis codes takes on a GPU: its rings, and its scales as float32.
func (src Source) codedBytes() int64 {
	t := src.codec.(trellisCodec).trellis
	return src.elements()*int64(t.Bits)/8 + src.elements()/int64(t.Block)*4
}

// code brings a matrix of trellis codes into arrays, its rings as the file has them.
func (l *loader) code(scope *mlx.Scope, src Source, sources *kernels.Sources) (_ *kernels.TrellisMatrix, err error) {
	c := src.codec.(trellisCodec)
	lines, width := src.geometry()
	sizes := [2]int{width * c.trellis.Bits / 8, width / c.trellis.Block * 4}
	var arrays [2]*mlx.Array
	var memory [2][]byte
	for i, dtype := range []mlx.DType{mlx.Uint32, mlx.Float32} {
		if arrays[i], memory[i], err = scope.Empty(dtype, lines, sizes[i]/4); err != nil {
			return nil, fmt.Errorf("allocate %s: %w", src.Name, err)
		}
	}
	err = l.pieces(src, lines, width, func(p piece) error {
		return eachRow(p.count, func(r int, _ *scratch) error {
			var dst [parts][]byte
			for i, n := range sizes {
				dst[i] = memory[i][(p.first+r)*n : (p.first+r+1)*n]
			}
			return c.pack(dst, mlx.Affine{}, p.row(r))
		})
	})
	if err != nil {
		return nil, err
	}
	return sources.Trellis(scope.Keep(arrays[0]), scope.Keep(arrays[1]), c.trellis, src.Shape[0], src.Shape[1]), nil
}
