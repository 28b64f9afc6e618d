package machine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadBandwidthIsThatOfAMachine(t *testing.T) {
	got := ReadBandwidth(2)
	require.Greater(t, got, 50e6, "slower than any memory, even under the race detector")
	require.Less(t, got, 5e12, "faster than any memory: nothing was read")
}

func TestSumAddsEveryWord(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 1000} {
		words, want := make([]uint64, n), uint64(0)
		for i := range words {
			words[i] = uint64(i * i)
			want += words[i]
		}
		require.Equal(t, want, sum(words))
		require.Equal(t, want, each(3, words, sum))
	}
}
