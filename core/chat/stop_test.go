package chat

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStopFilterHoldsWhatCouldBecomeAStop(t *testing.T) {
	f := NewStopFilter([]string{"<|end|>", "", "STOP"})
	out, stopped := f.Push("a<|e")
	require.Equal(t, "a", out)
	require.False(t, stopped)
	out, _ = f.Push("x<")
	require.Equal(t, "<|ex", out)
	out, stopped = f.Push("|end|>tail")
	require.Equal(t, "", out)
	require.True(t, stopped)
	require.Equal(t, "<|end|>", f.Matched())
	out, stopped = f.Push("more")
	require.Equal(t, "", out)
	require.True(t, stopped)
	require.Equal(t, "", f.Flush())
}

func TestStopFilterFlushesWhenNoStopCame(t *testing.T) {
	f := NewStopFilter([]string{"abc"})
	out, _ := f.Push("xab")
	require.Equal(t, "x", out)
	require.Equal(t, "ab", f.Flush())
	require.Empty(t, f.Matched())
}

func TestStopFilterWithoutStopsHoldsNothing(t *testing.T) {
	out, stopped := NewStopFilter(nil).Push("abc")
	require.Equal(t, "abc", out)
	require.False(t, stopped)
}

func TestStopFilterGivesTheSameForEveryCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stops := rapid.SliceOfN(rapid.StringMatching(`[ab]{1,4}`), 0, 3).Draw(t, "stops")
		text := rapid.StringMatching(`[abc]{0,12}`).Draw(t, "text")
		whole := NewStopFilter(stops)
		want, wantStopped := whole.Push(text)
		if !wantStopped {
			want += whole.Flush()
		}
		f := NewStopFilter(stops)
		var got strings.Builder
		stopped := false
		for rest := text; rest != "" && !stopped; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			var out string
			out, stopped = f.Push(rest[:n])
			got.WriteString(out)
			rest = rest[n:]
		}
		if !stopped {
			got.WriteString(f.Flush())
		}
		require.Equal(t, want, got.String())
		require.Equal(t, wantStopped, stopped)
		require.Equal(t, whole.Matched(), f.Matched())
		for _, s := range stops {
			if !wantStopped {
				require.NotContains(t, got.String(), s)
			}
		}
	})
}
