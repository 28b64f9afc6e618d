package tiny

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/clademl/clade/sdk/weights/quant"
)

// layout says what of a block must be chosen so that any other bytes make a usable weight: half i lies at halves[i] and is about
// ratio[i] of the tensor's deviation (of e the nearest power of two for MXFP4, which has an exponent byte there).
type layout struct {
	halves []int
	ratio  []float64
}

// layouts follow from the ranges of codes and small scales: d times their deviation is that of a value, and dmin centres it.
var layouts = map[string]layout{
	"Q5_0":   {[]int{0}, []float64{1. / 9.2}},
	"Q5_1":   {[]int{0, 2}, []float64{1. / 9.2, -15.5 / 9.2}},
	"Q2_K":   {[]int{80, 82}, []float64{1. / 13, 1.5 / 13}},
	"Q3_K":   {[]int{108}, []float64{1. / 43}},
	"Q4_K":   {[]int{0, 2}, []float64{1. / 250, 7.5 / 250}},
	"Q5_K":   {[]int{0, 2}, []float64{1. / 500, 15.5 / 500}},
	"Q6_K":   {[]int{208}, []float64{1. / 1370}},
	"IQ4_NL": {[]int{0}, []float64{1. / 68}},
	"IQ4_XS": {[]int{0}, []float64{1. / 1260}},
	"MXFP4":  {nil, nil},
}

// randomOf is the generator of a tensor's bytes, which its name decides.
func randomOf(t Tensor) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(t.Name))
	return rand.New(rand.NewPCG(uint64(len(t.Values)), h.Sum64()))
}

// deviationOf is near the deviation that t was drawn with: a power of two, so that no sum's rounding shows.
func deviationOf(t Tensor) float64 {
	var sum float64
	for _, v := range t.Values {
		sum += float64(v) * float64(v)
	}
	return math.Exp2(math.Round(math.Log2(sum/float64(len(t.Values))) / 2))
}

// anyBlocks fills a matrix with blocks of random codes and small scales under halves that give it t's deviation: every bit of the
// format says something, which no quantizer of real weights would promise.
func anyBlocks(b quant.Block, t Tensor) []byte {
	rng, deviation := randomOf(t), deviationOf(t)
	out := make([]byte, b.RowBytes(len(t.Values)))
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	how := layouts[b.Name]
	for i := 0; i < len(out); i += b.Bytes {
		if b.Name == "MXFP4" {
			out[i] = byte(126 + int(math.Log2(deviation)) - rng.IntN(3))
		}
		for h, at := range how.halves {
			// Between 3/4 and 5/4, in steps that fill the half's fraction.
			v := float32(deviation * how.ratio[h] * (0.75 + float64(rng.IntN(1024))/2048))
			binary.LittleEndian.PutUint16(out[i+at:], quant.ToF16(v))
		}
	}
	return out
}

// floatPair is a matrix of random codes in one of MLX's modes of small floats, with scales that give it t's deviation.
func floatPair(path string, t Tensor, mode string, global bool) []stored {
	f, _ := quant.FloatBlockMode(mode)
	rng, power := randomOf(t), int(math.Log2(deviationOf(t)))
	rows, cols := t.Shape[0], t.Shape[1]
	codes, scales := make([]byte, rows*f.RowBytes(cols)), make([]byte, rows*cols/f.Group)
	for i := range codes {
		codes[i] = byte(rng.Uint32())
	}
	for i := range scales {
		switch mode {
		case "mxfp4": // elements deviate by 3
			scales[i] = byte(126 + power - rng.IntN(3))
		case "mxfp8": // by 130
			scales[i] = byte(120 + power - rng.IntN(3))
		case "nvfp4": // an e4m3 of 2^(e-7), 1/4 of the deviation
			scales[i] = byte((5+power)<<3 | rng.IntN(8))
			if global {
				scales[i] = byte(7<<3 | rng.IntN(16))
			}
		}
	}
	out := []stored{
		{path + ".weight", "U32", []int{rows, cols * f.Bits / 32}, codes},
		{path + ".scales", "U8", []int{rows, cols / f.Group}, scales},
	}
	if global {
		// 2688 stands for 1; a value with many bits takes the products' rounding along.
		out = append(out, stored{path + ".global_scale", "F32", []int{}, encode("F32", []float32{float32(math.Exp2(float64(power))) * 777.77})})
	}
	return out
}

// ropeFreqs stores float32 with divisors of the rotary frequencies, as llama.cpp's converter does for llama3 scaling.
func ropeFreqs(c Checkpoint, path string) error {
	factors := []float32{1, 1, 1, 1.25, 2, 3.5, 6, 8}
	c.Tensors = append([]Tensor{{"rope_freqs.weight", []int{len(factors)}, factors}}, c.Tensors...)
	return gguf("F32")(c, path)
}
