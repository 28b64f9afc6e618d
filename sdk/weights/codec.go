package weights

import (
	"fmt"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

// codec decodes rows. Row r of a source is decoded from row r of each of its tensors. Its methods are safe for several
// goroutines.
type codec interface {
	// rowBytes is the size of a row of n values in each tensor that the source reads.
	rowBytes(n int) [parts]int
	// row decodes one row from its bytes in each tensor.
	row(dst []float32, src [parts][]byte)
	// packings are the ways the kernels may hold the source when the graph computes in dtype. The first holds what ordinary
	// files hold, and is what a plan counts; another is taken for a tensor of which pack says quant.ErrNotHeld.
	packings(dtype mlx.DType) []packing
	// pack rewrites one row as codes, scales and biases of an affine packing.
	pack(dst [parts][]byte, how mlx.Affine, src [parts][]byte) error
	// quantized reports whether the values are codes, which load as float32 where no kernels hold them.
	quantized() bool
	// held names how the kernels hold the source where they cannot hold its codes as the file does; else "".
	held() string
	String() string
}

// parts is how many tensors a source reads at most, and how many streams a packed weight has: codes, scales, biases.
const parts = 3

// packing is a dense weight of dtype, or one of affine or trellis codes.
type packing struct {
	dtype   mlx.DType
	affine  *mlx.Affine
	trellis *mlx.Trellis
}

func affinePacking(a quant.Affine, scale mlx.DType) packing {
	return packing{affine: &mlx.Affine{Bits: a.Bits, Group: a.Group, Scale: scale}}
}

// rowBytes is the size of a row of n values as the kernels take it: values, or codes, scales and biases.
func (p packing) rowBytes(n int) [parts]int {
	switch {
	case p.trellis != nil:
		return [parts]int{n * p.trellis.Bits / 8, n / p.trellis.Block * mlx.Float32.Size()}
	case p.affine == nil:
		return [parts]int{n * p.dtype.Size()}
	}
	groups := n / p.affine.Group * p.affine.Scale.Size()
	return [parts]int{n * p.affine.Bits / 8, groups, groups}
}

// floatTypes names MLX's and the file's type of each plain float.
var floatTypes = []struct {
	float  quant.Float
	mlx    mlx.DType
	stored artifact.DType
	decode func(dst []float32, src []byte)
}{
	{quant.Float32, mlx.Float32, artifact.F32, quant.F32Row},
	{quant.Float16, mlx.Float16, artifact.F16, quant.F16Row},
	{quant.BFloat16, mlx.BFloat16, artifact.BF16, quant.BF16Row},
}

// dtypeOf is MLX's type of a float.
func dtypeOf(f quant.Float) mlx.DType { return floatTypes[f].mlx }

// floatOf is the float of MLX's type, which is one of the three.
func floatOf(d mlx.DType) quant.Float {
	for _, t := range floatTypes {
		if t.mlx == d {
			return t.float
		}
	}
	return quant.Float32
}

type floatCodec struct {
	stored artifact.DType
	float  quant.Float
	decode func(dst []float32, src []byte)
}

// floatCodecOf is the codec of a plain float type; false for any other.
func floatCodecOf(stored artifact.DType) (floatCodec, bool) {
	for _, t := range floatTypes {
		if t.stored == stored {
			return floatCodec{stored, t.float, t.decode}, true
		}
	}
	return floatCodec{}, false
}

func (c floatCodec) dtype() mlx.DType                     { return dtypeOf(c.float) }
func (c floatCodec) rowBytes(n int) [parts]int            { return [parts]int{n * c.float.Size()} }
func (c floatCodec) row(dst []float32, src [parts][]byte) { c.decode(dst, src[0]) }
func (c floatCodec) quantized() bool                      { return false }
func (c floatCodec) held() string                         { return "" }
func (c floatCodec) String() string                       { return string(c.stored) }

// A narrower dtype of the graph rounds the weight, as it would round the array; a wider one leaves it as stored.
func (c floatCodec) packings(dtype mlx.DType) []packing {
	if c.float.Size() < dtype.Size() {
		dtype = c.dtype()
	}
	return []packing{{dtype: dtype}}
}

func (c floatCodec) pack([parts][]byte, mlx.Affine, [parts][]byte) error { return quant.ErrNotHeld }

// blockCodec is a GGUF block format.
type blockCodec struct{ block quant.Block }

func (c blockCodec) packings(mlx.DType) []packing {
	out := []packing{affinePacking(c.block.Codes, dtypeOf(c.block.Scales))}
	if c.block.Scales != quant.Float32 {
		out = append(out, affinePacking(c.block.Codes, mlx.Float32))
	}
	return out
}

func (c blockCodec) pack(dst [parts][]byte, how mlx.Affine, src [parts][]byte) error {
	return c.block.Pack(dst[0], dst[1], dst[2], floatOf(how.Scale), src[0])
}

func (c blockCodec) held() string {
	if !c.block.Wider() {
		return ""
	}
	return fmt.Sprintf("%d-bit codes", c.block.Codes.Bits)
}

func (c blockCodec) rowBytes(n int) [parts]int            { return [parts]int{c.block.RowBytes(n)} }
func (c blockCodec) row(dst []float32, src [parts][]byte) { c.block.Row(dst, src[0]) }
func (c blockCodec) quantized() bool                      { return true }
func (c blockCodec) String() string                       { return c.block.Name }

// affineCodec is MLX's affine triple.
type affineCodec struct {
	affine quant.Affine
	scales floatCodec
}

func (c affineCodec) rowBytes(n int) [parts]int {
	groups := n / c.affine.Group * c.scales.float.Size()
	return [parts]int{c.affine.RowBytes(n), groups, groups}
}

func (c affineCodec) row(dst []float32, src [parts][]byte) {
	groups := len(dst) / c.affine.Group
	both := make([]float32, 2*groups)
	scales, biases := both[:groups], both[groups:]
	c.scales.decode(scales, src[1])
	c.scales.decode(biases, src[2])
	c.affine.Row(dst, src[0], scales, biases)
}

func (c affineCodec) packings(mlx.DType) []packing {
	return []packing{affinePacking(c.affine, c.scales.dtype())}
}

func (c affineCodec) pack(dst [parts][]byte, _ mlx.Affine, src [parts][]byte) error {
	for i := range dst {
		copy(dst[i], src[i])
	}
	return nil
}

func (c affineCodec) quantized() bool { return true }
func (c affineCodec) held() string    { return "" }
func (c affineCodec) String() string {
	return fmt.Sprintf("affine %d-bit in groups of %d", c.affine.Bits, c.affine.Group)
}

// floatBlockCodec is one of MLX's modes of small floats: codes and scale bytes.
type floatBlockCodec struct {
	block  quant.FloatBlock
	scaled bool    // the tensor has a global scale
	global float32 // its value once loading has read it; else quant.NoGlobal
}

func (c floatBlockCodec) rowBytes(n int) [parts]int {
	return [parts]int{c.block.RowBytes(n), n / c.block.Group}
}

func (c floatBlockCodec) row(dst []float32, src [parts][]byte) {
	c.block.Row(dst, src[0], src[1], c.global)
}

// A global scale takes a float32's bits into every scale. e4m3 elements are no codes: bfloat16 holds them but for values below
// 2^-124 or so, for which the tensor becomes float32.
func (c floatBlockCodec) packings(mlx.DType) []packing {
	switch {
	case !c.block.HasAffine():
		return []packing{{dtype: mlx.BFloat16}, {dtype: mlx.Float32}}
	case c.scaled:
		return []packing{affinePacking(c.block.Affine, mlx.Float32)}
	}
	return []packing{affinePacking(c.block.Affine, mlx.BFloat16)}
}

func (c floatBlockCodec) pack(dst [parts][]byte, how mlx.Affine, src [parts][]byte) error {
	return c.block.Pack(dst[0], dst[1], dst[2], floatOf(how.Scale), src[0], src[1], c.global)
}

func (c floatBlockCodec) quantized() bool { return true }
func (c floatBlockCodec) String() string  { return c.block.Mode }
func (c floatBlockCodec) held() string {
	if !c.block.HasAffine() {
		return "bfloat16"
	}
	return fmt.Sprintf("%d-bit codes", c.block.Affine.Bits)
}
