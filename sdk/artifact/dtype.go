package artifact

import (
	"fmt"
	"math/bits"
)

// DType names how a tensor's elements are stored: the safetensors name, or the ggml name of a quantized block format.
type DType string

// Types that safetensors and GGUF both know.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	I64  DType = "I64"
	I32  DType = "I32"
	I16  DType = "I16"
	I8   DType = "I8"
)

// Types of safetensors alone.
const (
	U64    DType = "U64"
	U32    DType = "U32"
	U16    DType = "U16"
	U8     DType = "U8"
	Bool   DType = "BOOL"
	F8E4M3 DType = "F8_E4M3"
	F8E5M2 DType = "F8_E5M2"
	F8E8M0 DType = "F8_E8M0"
)

// block is the smallest run of elements that a type stores, and its bytes.
type block struct{ elems, bytes int64 }

// safetensorsTypes follows the dtype list of the safetensors crate 0.8; sub-byte types are counted over the whole tensor.
var safetensorsTypes = map[DType]block{
	F64: {1, 8}, F32: {1, 4}, F16: {1, 2}, BF16: {1, 2},
	I64: {1, 8}, I32: {1, 4}, I16: {1, 2}, I8: {1, 1},
	U64: {1, 8}, U32: {1, 4}, U16: {1, 2}, U8: {1, 1}, Bool: {1, 1},
	F8E4M3: {1, 1}, F8E5M2: {1, 1}, F8E8M0: {1, 1}, "F8_E4M3FNUZ": {1, 1}, "F8_E5M2FNUZ": {1, 1},
	"F4": {2, 1}, "F6_E2M3": {4, 3}, "F6_E3M2": {4, 3}, "C64": {1, 8},
}

// ggmlType is a row of the table below.
type ggmlType struct {
	name DType
	block
}

// ggmlTypes is indexed by ggml's type number. An empty name is a number that ggml removed or has not given out. Sizes as
// ggml_type_size and ggml_blck_size of llama.cpp (llama-cpp-python 0.3.36) report them.
var ggmlTypes = [...]ggmlType{
	0: {F32, block{1, 4}}, 1: {F16, block{1, 2}},
	2: {"Q4_0", block{32, 18}}, 3: {"Q4_1", block{32, 20}},
	6: {"Q5_0", block{32, 22}}, 7: {"Q5_1", block{32, 24}},
	8: {"Q8_0", block{32, 34}}, 9: {"Q8_1", block{32, 36}},
	10: {"Q2_K", block{256, 84}}, 11: {"Q3_K", block{256, 110}}, 12: {"Q4_K", block{256, 144}},
	13: {"Q5_K", block{256, 176}}, 14: {"Q6_K", block{256, 210}}, 15: {"Q8_K", block{256, 292}},
	16: {"IQ2_XXS", block{256, 66}}, 17: {"IQ2_XS", block{256, 74}}, 18: {"IQ3_XXS", block{256, 98}},
	19: {"IQ1_S", block{256, 50}}, 20: {"IQ4_NL", block{32, 18}}, 21: {"IQ3_S", block{256, 110}},
	22: {"IQ2_S", block{256, 82}}, 23: {"IQ4_XS", block{256, 136}},
	24: {I8, block{1, 1}}, 25: {I16, block{1, 2}}, 26: {I32, block{1, 4}}, 27: {I64, block{1, 8}}, 28: {F64, block{1, 8}},
	29: {"IQ1_M", block{256, 56}}, 30: {BF16, block{1, 2}},
	34: {"TQ1_0", block{256, 54}}, 35: {"TQ2_0", block{256, 66}},
	39: {"MXFP4", block{32, 17}}, 40: {"NVFP4", block{64, 36}}, 41: {"Q1_0", block{128, 18}}, 42: {"Q2_0", block{64, 18}},
}

var ggmlByName = func() map[DType]block {
	m := map[DType]block{}
	for _, t := range ggmlTypes {
		if t.name != "" {
			m[t.name] = t.block
		}
	}
	return m
}()

// Block is how many elements the smallest stored unit of the type holds and how many bytes it takes (32 and 18 for Q4_0);
// false for a name that neither format knows.
func (d DType) Block() (elems, bytes int64, ok bool) {
	b, ok := safetensorsTypes[d]
	if !ok {
		b, ok = ggmlByName[d]
	}
	return b.elems, b.bytes, ok
}

// elements multiplies a shape, refusing negative dimensions and products beyond int64.
func elements(shape []int64) (int64, error) {
	n := int64(1)
	zero := false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension in shape %v", shape)
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > maxInt64 {
			return 0, fmt.Errorf("shape %v has more elements than fit 63 bits", shape)
		}
		n = int64(lo)
	}
	if zero {
		return 0, nil
	}
	return n, nil
}

const maxInt64 = 1<<63 - 1

// size is the bytes of n elements in blocks of b.
func (b block) size(n int64) (int64, error) {
	if n%b.elems != 0 {
		return 0, fmt.Errorf("%d elements do not fill blocks of %d", n, b.elems)
	}
	hi, lo := bits.Mul64(uint64(n/b.elems), uint64(b.bytes))
	if hi != 0 || lo > maxInt64 {
		return 0, fmt.Errorf("%d elements take more bytes than fit 63 bits", n)
	}
	return int64(lo), nil
}
