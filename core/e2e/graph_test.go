package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// `show` says which graph of the table runs and why, on whatever processor this is: the written one where its device is and the weights
// suit it, the generic one elsewhere with the reason; and one that is named, whatever its key.
func TestShowExplainsTheGraphChoice(t *testing.T) {
	const written, device = "qwen3-avx512-decoder", "cpu-x86_64-avx512"
	show := func(name string, more ...string) (entry, ran, why string) {
		path, err := tiny.Qwen3(name)[0].Write(t.TempDir())
		require.NoError(t, err)
		var s struct {
			GraphEntry string `json:"graph_entry"`
			Why        []string
			Plan       struct{ Device string }
		}
		jsonOf(t, &s, append([]string{"show", path, "--json"}, more...)...)
		return s.GraphEntry, s.Plan.Device, strings.Join(s.Why, "\n")
	}
	entry, ran, why := show("qwen3-affine4")
	if ran == device {
		require.Equal(t, written, entry)
		require.Contains(t, why, "its key fits")
		entry, _, why = show("qwen3-affine4", "--kernels", "off")
		require.Contains(t, why, written+" gives way: its kernels do not run")
	} else {
		require.Contains(t, why, written+" wants device "+device+", this is "+ran)
	}
	if ran != device || entry != written {
		require.Equal(t, "qwen3", entry)
	}
	for _, named := range []string{"qwen3", written} {
		entry, _, why = show("qwen3-affine4", "--graph", named)
		require.Equal(t, named, entry)
		require.Contains(t, why, "named by the caller, whatever its key")
	}
	path, err := tiny.Qwen3("qwen3-f32")[0].Write(t.TempDir())
	require.NoError(t, err)
	r := clade(t, "show", path, "--graph", "warp")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.errors, `"warp" is not in the table of qwen3: `+written+", qwen3")
}
