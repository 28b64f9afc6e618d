package quant

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

type affineCase struct {
	Bits                                int
	Row, Packed, Scales, Biases, Values string
}

// affineRow is the same arithmetic as testdata/affine.py.
func affineRow(name string) []float32 {
	row := make([]float32, 128)
	for i := range row {
		switch name {
		case "mixed":
			row[i] = float32(i*37%101-50) / 64
		case "negative":
			row[i] = -float32(i*29%97+1) / 128
		case "positive":
			row[i] = float32(i*53%89+1) / 32
		}
	}
	return row
}

func floats(t *testing.T, text string) []float32 {
	raw, err := hex.DecodeString(text)
	require.NoError(t, err)
	out := make([]float32, len(raw)/4)
	F32Row(out, raw)
	return out
}

func TestAffineEqualsMLXBitForBit(t *testing.T) {
	data, err := os.ReadFile("testdata/affine.json")
	require.NoError(t, err)
	var golden struct{ Cases []affineCase }
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Len(t, golden.Cases, 24)
	for _, c := range golden.Cases {
		t.Run(fmt.Sprintf("%d bits %s", c.Bits, c.Row), func(t *testing.T) {
			a := Affine{Bits: c.Bits, Group: 64}
			require.True(t, a.Valid())
			packed, scales, biases := a.Quantize(affineRow(c.Row))
			require.Equal(t, c.Packed, hex.EncodeToString(packed))
			require.Equal(t, floats(t, c.Scales), scales)
			require.Equal(t, floats(t, c.Biases), biases)

			values := make([]float32, 128)
			a.Row(values, packed, scales, biases)
			for i, want := range floats(t, c.Values) {
				// MLX's build may fuse the product into the sum: one rounding less.
				require.InDelta(t, want, values[i], 1e-6*math.Abs(float64(want))+1e-7)
			}
		})
	}
}

func TestOddBitWidthsStraddleWords(t *testing.T) {
	for _, bits := range []int{3, 5, 6} {
		a := Affine{Bits: bits, Group: 32}
		packed := make([]byte, a.RowBytes(32))
		want := make([]float32, 32)
		for i := range want {
			code := uint32(i*7) & (1<<bits - 1)
			putBits(packed, i*bits, bits, code)
			want[i] = float32(code)
		}
		got := make([]float32, 32)
		a.Row(got, packed, []float32{1}, []float32{0})
		require.Equal(t, want, got, "%d bits", bits)
	}
}

func TestBlocksFollowGGMLsLayout(t *testing.T) {
	half := func(f float32) []byte { return binary.LittleEndian.AppendUint16(nil, ToF16(f)) }
	nibbles := make([]byte, 16) // low nibble i, high nibble 15-i
	signed := make([]byte, 32)  // 0, -1, 2, -3, ...
	for i := range nibbles {
		nibbles[i] = byte(i | (15-i)<<4)
	}
	for i := range signed {
		signed[i] = byte(int8(i * (1 - 2*(i&1))))
	}
	tests := []struct {
		name string
		src  []byte
		want func(i int) float32
	}{
		{"Q4_0", append(half(0.5), nibbles...), func(i int) float32 { return 0.5 * float32(nibble(i)-8) }},
		{"Q4_1", append(append(half(0.5), half(-3)...), nibbles...), func(i int) float32 { return 0.5*float32(nibble(i)) - 3 }},
		{"Q8_0", append(half(0.25), signed...), func(i int) float32 { return 0.25 * float32(i*(1-2*(i&1))) }},
	}
	for _, tt := range tests {
		b, ok := BlockFormat(tt.name)
		require.True(t, ok)
		require.Len(t, tt.src, b.Bytes)
		got := make([]float32, 32)
		b.Row(got, tt.src)
		for i := range got {
			require.Equal(t, tt.want(i), got[i], "%s value %d", tt.name, i)
		}
	}
}

func nibble(i int) int {
	if i < 16 {
		return i
	}
	return 15 - (i - 16)
}

func TestBlockQuantizersStayWithinHalfAStep(t *testing.T) {
	row := affineRow("mixed")
	for name, step := range map[string]float64{"Q4_0": 1.6 / 15, "Q4_1": 1.6 / 15, "Q8_0": 1.6 / 254} {
		b, _ := BlockFormat(name)
		got := make([]float32, len(row))
		packed, ok := b.Quantize(row)
		require.True(t, ok)
		b.Row(got, packed)
		for i := range row {
			require.InDelta(t, row[i], got[i], step+1e-3, "%s value %d", name, i)
		}
	}
}

func TestHalvesRoundTripExactly(t *testing.T) {
	for h := range 1 << 16 {
		h := uint16(h)
		if v := F16(h); v == v {
			require.Equal(t, h, ToF16(v), "half %#04x is %g", h, v)
		}
		if v := BF16(h); v == v {
			require.Equal(t, h, ToBF16(v), "bfloat16 %#04x is %g", h, v)
		}
	}
}

func TestHalvesRoundTiesToEven(t *testing.T) {
	tests := []struct {
		in        float32
		f16, bf16 uint16
	}{
		{1 + 0x1p-11, 0x3c00, 0x3f80},
		{1 + 3*0x1p-11, 0x3c02, 0x3f80},
		{1 + 0x1p-8, 0x3c04, 0x3f80},
		{1 + 3*0x1p-8, 0x3c0c, 0x3f82},
		{65519, 0x7bff, 0x4780},
		{65520, 0x7c00, 0x4780},
		{0x1p-25, 0x0000, 0x3300},
		{0x1.8p-24, 0x0002, 0x33c0},
		{float32(math.Inf(-1)), 0xfc00, 0xff80},
	}
	for _, tt := range tests {
		require.Equal(t, tt.f16, ToF16(tt.in), "%g as half", tt.in)
		require.Equal(t, tt.bf16, ToBF16(tt.in), "%g as bfloat16", tt.in)
	}
	nan := float32(math.NaN())
	require.NotEqual(t, F16(ToF16(nan)), F16(ToF16(nan)))
	require.NotEqual(t, BF16(ToBF16(nan)), BF16(ToBF16(nan)))
}
