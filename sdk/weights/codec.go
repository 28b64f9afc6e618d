package weights

import (
	"fmt"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/weights/quant"
)

// codec decodes rows. Row r of a source is decoded from row r of each of its tensors.
type codec interface {
	// rowBytes is the size of a row of n values in each tensor that the source reads.
	rowBytes(n int) []int
	// row decodes one row from its bytes in each tensor.
	row(dst []float32, src [][]byte)
	// quantized reports whether the values are codes, which load as float32 whatever dtype the graph computes in.
	quantized() bool
	String() string
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

type blockCodec struct{ block quant.Block }

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

func (c affineCodec) quantized() bool { return true }
func (c affineCodec) String() string {
	return fmt.Sprintf("affine %d-bit in groups of %d", c.affine.Bits, c.affine.Group)
}
