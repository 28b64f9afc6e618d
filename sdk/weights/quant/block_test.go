package quant

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

type blockCase struct {
	Name        string
	Rows        int
	Src, Values string
}

func golden(t testing.TB, file string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, into))
}

func raw(t testing.TB, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	return data
}

func blockCases(t testing.TB) []blockCase {
	t.Helper()
	var file struct{ Types []blockCase }
	golden(t, "blocks.json", &file)
	require.Len(t, file.Types, len(blocks)-1, "all but Q8_K")
	return file.Types
}

// requireBits holds got to the bits of want, where any NaN is as good as another.
func requireBits(t *testing.T, want, got []float32, what string) {
	t.Helper()
	for i := range want {
		if want[i] != want[i] && got[i] != got[i] {
			continue
		}
		require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "%s: value %d is %g, want %g", what, i, got[i], want[i])
	}
}

func TestBlocksEqualGGUFPyBitForBit(t *testing.T) {
	for _, c := range blockCases(t) {
		b, ok := BlockFormat(c.Name)
		require.True(t, ok)
		src, want := raw(t, c.Src), make([]float32, c.Rows*b.Values)
		F32Row(want, raw(t, c.Values))
		require.Len(t, src, b.RowBytes(len(want)))
		got := make([]float32, len(want))
		b.Row(got, src)
		requireBits(t, want, got, c.Name)
	}
}

// kernelRow is what the kernels make of packed codes: one fused multiply-add a value.
func kernelRow(n int, a Affine, float Float, codes, scales, biases []byte) []float32 {
	q := make([]float32, n)
	ones, zeros := slices.Repeat([]float32{1}, n/a.Group), make([]float32, n/a.Group)
	a.Row(q, codes, ones, zeros)
	s, b := make([]float32, n/a.Group), make([]float32, n/a.Group)
	decode := map[Float]func([]float32, []byte){Float32: F32Row, Float16: F16Row, BFloat16: BF16Row}[float]
	decode(s, scales)
	decode(b, biases)
	for i := range q {
		// Exact in float64: a code has 8 bits, a scale 24; the sum rounds once more than a fused one, at the 53rd bit.
		q[i] = float32(float64(q[i])*float64(s[i/a.Group]) + float64(b[i/a.Group]))
	}
	return q
}

func packBlocks(b Block, float Float, n int, src []byte) (codes, scales, biases []byte, err error) {
	groups := n / b.Codes.Group * float.Size()
	codes, scales, biases = make([]byte, b.Codes.RowBytes(n)), make([]byte, groups), make([]byte, groups)
	return codes, scales, biases, b.Pack(codes, scales, biases, float, src)
}

// A zero may change its sign, and a group without a finite scale is NaN where the format has an offset.
func TestPackedBlocksHaveTheDecodersValues(t *testing.T) {
	for _, c := range blockCases(t) {
		b, _ := BlockFormat(c.Name)
		src := raw(t, c.Src)
		for r := range c.Rows {
			block := src[r*b.Bytes : (r+1)*b.Bytes]
			want := make([]float32, b.Values)
			b.Row(want, block)
			codes, scales, biases, err := packBlocks(b, b.Scales, b.Values, block)
			if err != nil {
				require.ErrorIs(t, err, ErrNotHeld)
				continue // held to what may overflow in the test below
			}
			got := kernelRow(b.Values, b.Codes, b.Scales, codes, scales, biases)
			for i := range want {
				switch {
				case want[i] == got[i], want[i] != want[i] && got[i] != got[i]:
				case b.Offset > 0 && math.IsInf(float64(want[i]), 0) && got[i] != got[i]:
				default:
					require.Failf(t, "another value", "%s block %d value %d: %g, want %g", c.Name, r, i, got[i], want[i])
				}
			}
		}
	}
}

// gguf-py has no decoder of Q8_K, which llama.cpp keeps for what it multiplies with: held to its definition, d*q.
func TestQ8KIsScaleTimesByte(t *testing.T) {
	b, ok := BlockFormat("Q8_K")
	require.True(t, ok)
	for _, d := range []float32{0.0078125, -3.1e-5, 1.5e38, 1e-45, 0} {
		src := make([]byte, b.Bytes)
		binary.LittleEndian.PutUint32(src, math.Float32bits(d))
		want := make([]float32, b.Values)
		for i := range 256 {
			src[4+i] = byte(i * 37)
			want[i] = d * float32(int8(i*37))
		}
		for i := range 32 {
			src[260+i] = 0xa5 // sums of sixteens, which nothing here reads
		}
		got := make([]float32, b.Values)
		b.Row(got, src)
		requireBits(t, want, got, "Q8_K")
		codes, scales, biases, err := packBlocks(b, Float32, b.Values, src)
		if d > 1e38 {
			require.ErrorIs(t, err, ErrNotHeld, "128 times the scale is infinite")
			continue
		}
		require.NoError(t, err)
		for i, v := range kernelRow(b.Values, b.Codes, Float32, codes, scales, biases) {
			require.Equal(t, want[i]+0, v+0, "value %d", i)
		}
	}
}

// A half beyond 8188 times -8 is no half: the scales are float32 then, not refused, not rounded.
func TestABiasBeyondAHalfNeedsWiderScales(t *testing.T) {
	for name, largest := range map[string]float32{"Q4_0": 8184, "Q5_0": 4092, "Q8_0": 511.5, "IQ4_NL": 511.5} {
		b, _ := BlockFormat(name)
		src := make([]byte, b.Bytes)
		for d, narrow := range map[float32]bool{largest: true, -largest: true, largest * 2: false, -largest * 2: false} {
			binary.LittleEndian.PutUint16(src, ToF16(d))
			src[len(src)-1] = 0x5a
			_, _, _, err := packBlocks(b, Float16, b.Values, src)
			if narrow {
				require.NoError(t, err, "%s d=%g", name, d)
			} else {
				require.ErrorIs(t, err, ErrNotHeld, "%s d=%g", name, d)
			}
			codes, scales, biases, err := packBlocks(b, Float32, b.Values, src)
			require.NoError(t, err)
			want := make([]float32, b.Values)
			b.Row(want, src)
			require.Equal(t, want, kernelRow(b.Values, b.Codes, Float32, codes, scales, biases), name)
		}
	}
}

func TestAnInfiniteScaleIsNaNWhenPackedNotACrash(t *testing.T) {
	b, _ := BlockFormat("Q4_0")
	src := make([]byte, b.Bytes)
	binary.LittleEndian.PutUint16(src, 0x7c00)
	codes, scales, biases, err := packBlocks(b, Float16, 32, src)
	require.NoError(t, err)
	for _, v := range kernelRow(32, b.Codes, Float16, codes, scales, biases) {
		require.NotEqual(t, v, v)
	}
	decoded := make([]float32, 32)
	b.Row(decoded, src)
	require.True(t, math.IsInf(float64(decoded[0]), -1), "the decoder does as llama.cpp does")
}

func TestBlocksWhoseLevelsAreATableTakeWiderCodes(t *testing.T) {
	var wider []string
	for name, b := range blocks {
		require.Equal(t, name, b.Name)
		require.Zero(t, b.Values%b.Codes.Group)
		require.LessOrEqual(t, b.Values/b.Codes.Group, maxGroups)
		require.LessOrEqual(t, b.Values, maxValues)
		if b.Wider() {
			wider = append(wider, name)
		}
	}
	slices.Sort(wider)
	require.Equal(t, []string{"IQ4_NL", "IQ4_XS", "MXFP4"}, wider)
}

func TestFormatsWithoutADecoderAreNotGuessed(t *testing.T) {
	for _, name := range []string{"Q8_1", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0", "NVFP4", "Q1_0", "Q2_0", ""} {
		_, ok := BlockFormat(name)
		require.False(t, ok, name)
	}
}

// Any bytes are a row: decoders neither panic nor read beyond it, and what is packed is what is decoded.
func FuzzBlocks(f *testing.F) {
	for _, c := range blockCases(f) {
		f.Add(c.Name, raw(f, c.Src))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		b, ok := BlockFormat(name)
		if !ok {
			return
		}
		n := len(data) / b.Bytes * b.Values
		src := data[:b.RowBytes(n)]
		want := make([]float32, n)
		b.Row(want, src)
		codes, scales, biases, err := packBlocks(b, Float32, n, src)
		if err != nil {
			require.ErrorIs(t, err, ErrNotHeld)
			return
		}
		got := kernelRow(n, b.Codes, Float32, codes, scales, biases)
		for i := range want {
			if want[i]-want[i] == 0 {
				require.Equal(t, want[i]+0, got[i]+0, "%s value %d", name, i)
			} else {
				require.NotZero(t, got[i]-got[i], "%s value %d is %g, want %g", name, i, got[i], want[i])
			}
		}
	})
}

func BenchmarkPack(b *testing.B) {
	for _, name := range []string{"Q4_0", "Q8_0", "Q3_K", "Q4_K", "Q6_K", "IQ4_XS"} {
		b.Run(name, func(b *testing.B) {
			f, _ := BlockFormat(name)
			const n = 1 << 16
			src := make([]byte, f.RowBytes(n))
			codes, scales, biases := make([]byte, f.Codes.RowBytes(n)), make([]byte, n), make([]byte, n)
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := f.Pack(codes, scales, biases, f.Scales, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
