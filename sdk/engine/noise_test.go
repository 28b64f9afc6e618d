package engine

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Known answers of philox4x32-10 published with Random123 1.14 (tests/kat_vectors).
func TestPhiloxMatchesThePublishedVectors(t *testing.T) {
	tests := []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
			[2]uint32{0xffffffff, 0xffffffff},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, philox(tt.counter, tt.key))
	}
}

// The table freezes the noise: a change breaks every stream that resumes across versions.
func TestNoiseIsFrozen(t *testing.T) {
	tests := []struct {
		seed     uint64
		choice   uint32
		position uint32
		id       int32
		want     float32
	}{
		{0, 0, 0, 0, 2.0616612},
		{0, 0, 0, 1, -0.015734952},
		{0, 0, 1, 0, 2.4161365},
		{0, 1, 0, 0, 2.77677},
		{1, 0, 0, 0, 2.1956708},
		{1 << 32, 0, 0, 0, 3.8284032},
		{42, 0, 37, 49151, 1.0050141},
		{math.MaxUint64, math.MaxUint32, math.MaxUint32, math.MaxInt32, -0.9458868},
	}
	for _, tt := range tests {
		got := Noise{Seed: tt.seed, Choice: tt.choice}.At(tt.position, tt.id)
		require.Equal(t, tt.want, got, "%+v", tt)
	}
}

func TestNoiseDoesNotDependOnTheVocabularyWidth(t *testing.T) {
	n := Noise{Seed: 7, Choice: 2}
	narrow, wide := make([]float32, 10), make([]float32, 1000)
	n.Row(5, narrow)
	n.Row(5, wide)
	require.Equal(t, narrow, wide[:10])
}

func TestNoiseIsFiniteAtBothEndsOfTheInterval(t *testing.T) {
	for _, u := range []float64{0.5 * 0x1p-52, (float64(1<<52-1) + 0.5) * 0x1p-52} {
		require.Greater(t, u, 0.0)
		require.Less(t, u, 1.0)
		require.False(t, math.IsInf(-math.Log(-math.Log(u)), 0))
	}
}

func TestNoiseHasTheGumbelMoments(t *testing.T) {
	const count = 200_000
	row := make([]float32, count)
	Noise{Seed: 3}.Row(11, row)
	var sum, squares float64
	for _, v := range row {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	mean := sum / count
	require.InDelta(t, 0.5772156649, mean, 0.01)
	require.InDelta(t, math.Pi*math.Pi/6, squares/count-mean*mean, 0.03)
}
