package weights

import (
	"fmt"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

// codec decodes rows. Row r of a source is decoded from row r of each of its tensors.
type codec interface {
	// rowBytes is the size of a row of n values in each tensor that the source reads.
	rowBytes(n int) []int
	// row decodes one row from its bytes in each tensor.
	row(dst []float32, src [][]byte)
	// packing is how the kernels hold the source when the graph computes in dtype.
	packing(dtype mlx.DType) packing
	// pack rewrites one row into the kernels' input: the row in the packing's dtype, or codes, scales and biases.
	pack(dst [3][]byte, src [][]byte) error
	// quantized reports whether the values are codes, which load as float32 whatever dtype the graph computes in.
	quantized() bool
	String() string
}

// packing is a dense weight of dtype or a quantized one.
type packing struct {
	dtype  mlx.DType
	affine *mlx.Affine
}

// rowBytes is the size of a row of n values as the kernels take it: values, or codes, scales and biases.
func (p packing) rowBytes(n int) [3]int {
	if p.affine == nil {
		return [3]int{n * p.dtype.Size()}
	}
	groups := n / p.affine.Group * p.affine.Scale.Size()
	return [3]int{n * p.affine.Bits / 8, groups, groups}
}

type floatCodec struct {
	name   string
	size   int
	decode func(dst []float32, src []byte)
}

// floatCodecs are the plain types; the zero value of a missing one has size 0.
var floatCodecs = map[artifact.DType]floatCodec{
	artifact.F32:  {"F32", 4, quant.F32Row},
	artifact.F16:  {"F16", 2, quant.F16Row},
	artifact.BF16: {"BF16", 2, quant.BF16Row},
}

func (c floatCodec) rowBytes(n int) []int            { return []int{n * c.size} }
func (c floatCodec) row(dst []float32, src [][]byte) { c.decode(dst, src[0]) }
func (c floatCodec) quantized() bool                 { return false }
func (c floatCodec) String() string                  { return c.name }

// A narrower dtype of the graph rounds the weight, as it would round the array; a wider one leaves it as stored.
func (c floatCodec) packing(dtype mlx.DType) packing {
	for d, name := range stores {
		if name == c.name && d.Size() < dtype.Size() {
			return packing{dtype: d}
		}
	}
	return packing{dtype: dtype}
}

func (c floatCodec) pack(dst [3][]byte, src [][]byte) error {
	copy(dst[0], src[0])
	return nil
}

type blockCodec struct{ block quant.Block }

func (c blockCodec) packing(mlx.DType) packing {
	return packing{affine: &mlx.Affine{Bits: c.block.Affine.Bits, Group: c.block.Affine.Group, Scale: mlx.Float16}}
}

func (c blockCodec) pack(dst [3][]byte, src [][]byte) error {
	return c.block.AffineRow(dst[0], dst[1], dst[2], src[0])
}

func (c blockCodec) rowBytes(n int) []int            { return []int{c.block.RowBytes(n)} }
func (c blockCodec) row(dst []float32, src [][]byte) { c.block.Row(dst, src[0]) }
func (c blockCodec) quantized() bool                 { return true }
func (c blockCodec) String() string                  { return c.block.Name }

type affineCodec struct {
	affine quant.Affine
	scales floatCodec
}

func (c affineCodec) rowBytes(n int) []int {
	groups := n / c.affine.Group * c.scales.size
	return []int{c.affine.RowBytes(n), groups, groups}
}

func (c affineCodec) row(dst []float32, src [][]byte) {
	groups := len(dst) / c.affine.Group
	both := make([]float32, 2*groups)
	scales, biases := both[:groups], both[groups:]
	c.scales.decode(scales, src[1])
	c.scales.decode(biases, src[2])
	c.affine.Row(dst, src[0], scales, biases)
}

func (c affineCodec) packing(mlx.DType) packing {
	scale := mlx.Float32
	for d, name := range stores {
		if name == c.scales.name {
			scale = d
		}
	}
	return packing{affine: &mlx.Affine{Bits: c.affine.Bits, Group: c.affine.Group, Scale: scale}}
}

func (c affineCodec) pack(dst [3][]byte, src [][]byte) error {
	for i := range dst {
		copy(dst[i], src[i])
	}
	return nil
}

func (c affineCodec) quantized() bool { return true }
func (c affineCodec) String() string {
	return fmt.Sprintf("affine %d-bit in groups of %d", c.affine.Bits, c.affine.Group)
}
