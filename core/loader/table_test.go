package loader

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// The table of the built plugin, proposed for devices that this machine may not have.
func TestAnEntryKeyedByDeviceIsProposedForThatDeviceAlone(t *testing.T) {
	exe, err := filepath.Abs("../../bin/plugins/qwen/clade-qwen")
	require.NoError(t, err)
	_, err = os.Stat(exe)
	require.NoError(t, err, "make build makes it")
	out, err := exec.Command(exe, "describe", "--json").Output()
	require.NoError(t, err)
	desc := &cladev1.DescribeResponse{}
	require.NoError(t, protojson.Unmarshal(out, desc))
	for device, want := range map[string]string{
		"cpu-x86_64-avx512": "qwen3-avx512-chained", "cpu-x86_64-avx2": "qwen3", "cpu-arm64-neon": "qwen3", "cuda-sm90": "qwen3", "metal-applegpu_g16s": "qwen3",
	} {
		got, err := propose(desc, "qwen3", "", "any", &cladev1.Composition{Device: &device})
		require.NoError(t, err)
		require.Equal(t, want, got.entry, device)
		got, err = propose(desc, "qwen3", "qwen3-avx512-chained", "any", &cladev1.Composition{Device: &device})
		require.NoError(t, err, "a name bypasses the key")
		require.Equal(t, "qwen3-avx512-chained", got.entry)
	}
	got, err := propose(desc, "qwen3", "", "any", &cladev1.Composition{})
	require.NoError(t, err)
	require.Equal(t, "qwen3", got.entry, "no device is known before the first plan")
}
