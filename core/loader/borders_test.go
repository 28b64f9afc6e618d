package loader

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBordersAreSortedSpreadAndBounded(t *testing.T) {
	require.Equal(t, []uint32{9, 20, 90, 95}, spread([]int{90, 0, 20, 95, 9, 88, 7, 200}, 100))
	var many []int
	for i := range 1000 {
		many = append(many, 10*i)
	}
	got := spread(many, 10_000)
	require.Len(t, got, maxBorders)
	require.EqualValues(t, 10, got[0])
	require.EqualValues(t, 9990, got[maxBorders-1])
	require.EqualValues(t, 10*firstBorders, got[firstBorders-1])
}
