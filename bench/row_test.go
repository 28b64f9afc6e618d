package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A load that comes and goes touches both sides of a pair: the ratio of medians would be 2, that of the pairs is 1.
func TestRatioIsTheMedianOverPairs(t *testing.T) {
	r := paired("x", "tok/s", "peer", []float64{10, 10, 1}, []float64{10, 1, 1}, "")
	require.Equal(t, 10.0, r.Value)
	require.Equal(t, 1.0, *r.PeerValue)
	require.Equal(t, 1.0, *r.Ratio)
	require.Equal(t, []float64{1, 10}, r.RatioSpread)
}

func TestMedianOfAnEvenCountIsTheMiddle(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	require.Equal(t, 2.5, median(v))
	require.Equal(t, []float64{4, 1, 3, 2}, v, "the order of the repeats is kept")
}

// Other programs read out.json: the six keys are there even where there is no peer.
func TestEveryRowHasThePublishedKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	require.NoError(t, write(path, []Row{single("a", "ms", []float64{1, 2, 3}, "< 30", "")}))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var rows []map[string]any
	require.NoError(t, json.Unmarshal(data, &rows))
	for _, key := range []string{"name", "value", "unit", "peer", "peer_value", "ratio"} {
		require.Contains(t, rows[0], key)
	}
	require.Nil(t, rows[0]["ratio"])
}

func TestTableShowsNotesAndRatios(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, table(&out, []Row{
		paired("p", "tok/s", "llama.cpp", []float64{12}, []float64{10}, ">= 1.2 x"),
		{Name: "q", Unit: "available", Note: "not measured: it ended"},
	}))
	require.Contains(t, out.String(), "llama.cpp 10 [10 10]")
	require.Contains(t, out.String(), "1.2 [1.2 1.2]")
	require.Contains(t, out.String(), "q: not measured: it ended")
}

func TestSumReadsEveryWord(t *testing.T) {
	for n := range 20 {
		words, want := make([]uint64, n), uint64(0)
		for i := range words {
			words[i] = uint64(i*i + 1)
			want += words[i]
		}
		require.Equal(t, want, sum64(words), "%d words", n)
	}
}
