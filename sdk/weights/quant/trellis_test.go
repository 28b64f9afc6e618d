package quant

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// trellisCase is one matrix of testdata/trellis.json, which numpy decoded.
type trellisCase struct {
	Bits, Block, State, Axis, Out, In int
	Rings, Scales, SHA256             string
	First                             []float64
}

func trellisCases(t testing.TB) []trellisCase {
	var golden struct{ Cases []trellisCase }
	data, err := os.ReadFile("testdata/trellis.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &golden))
	require.NotEmpty(t, golden.Cases)
	return golden.Cases
}

func (c trellisCase) format() Trellis { return Trellis{c.Bits, c.Block, c.State, c.Axis} }

func (c trellisCase) data(t testing.TB) (rings []byte, scales []float32) {
	rings, err := base64.StdEncoding.DecodeString(c.Rings)
	require.NoError(t, err)
	raw, err := base64.StdEncoding.DecodeString(c.Scales)
	require.NoError(t, err)
	scales = make([]float32, len(raw)/4)
	F32Row(scales, raw)
	return rings, scales
}

// Each axis, 1 to 8 bits, states that reach around the ring's end: every bit is numpy's.
func TestATrellisDecodesAsNumpyDoes(t *testing.T) {
	for _, c := range trellisCases(t) {
		f := c.format()
		require.True(t, f.Valid(), "%+v", f)
		rings, scales := c.data(t)
		values := make([]float32, c.Out*c.In)
		lines := c.Out
		if c.Axis == 0 {
			lines = c.Out / c.Block
		}
		for i, each := 0, len(values)/lines; i < lines; i++ {
			blocks := each / c.Block
			f.Row(values[i*each:(i+1)*each], rings[i*blocks*f.RingBytes():], scales[i*blocks:(i+1)*blocks])
		}
		for i, want := range c.First {
			require.Equal(t, float32(want), values[i], "%+v, value %d", f, i)
		}
		var raw []byte
		for _, v := range values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		sum := sha256.Sum256(raw)
		require.Equal(t, c.SHA256, hex.EncodeToString(sum[:]), "%+v", f)
	}
}

func TestATrellisOfNoWholeWordsIsNoFormat(t *testing.T) {
	require.True(t, Trellis{2, 256, 16, 1}.Valid())
	for _, f := range []Trellis{
		{0, 256, 16, 1},
		{9, 256, 16, 1},
		{2, 256, 1, 1},
		{2, 256, 33, 1},
		{2, 256, 16, 2},
		{2, 256, 16, -1},
		{3, 16, 16, 1},
		{2, 8, 16, 1},
		{2, 24, 16, 1},
		{1, 32, 33, 1},
		{2, 0, 16, 1},
		{2, -256, 16, 1},
		{2, 8192, 16, 1},
	} {
		require.False(t, f.Valid(), "%+v", f)
	}
}

// Every ring of a valid format is decoded to finite values.
func FuzzTrellis(f *testing.F) {
	f.Add(2, 256, 16, []byte{1, 2, 3})
	f.Add(8, 16, 32, []byte{255})
	f.Add(3, 32, 3, []byte{})
	f.Fuzz(func(t *testing.T, bits, block, state int, data []byte) {
		c := Trellis{bits, block, state, 1}
		if !c.Valid() {
			return
		}
		ring := make([]byte, c.RingBytes())
		copy(ring, data)
		out := make([]float32, block)
		c.Row(out, ring, []float32{1})
		for i, v := range out {
			require.LessOrEqual(t, math.Abs(float64(v)), 510/trellisDeviation)
			// A state's older bits are the newer bits of the one before it, also of the first and the last.
			before := c.StateAt(ring, (i+block-1)%block)
			require.Equal(t, uint64(before)<<bits&(1<<state-1)>>bits, uint64(c.StateAt(ring, i))>>bits)
		}
	})
}
