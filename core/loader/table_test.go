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
		"cpu-x86_64-avx512": "qwen3-avx512-decoder", "cpu-x86_64-avx2": "qwen3", "cpu-arm64-neon": "qwen3", "cuda-sm90": "qwen3", "metal-applegpu_g16s": "qwen3",
	} {
		got, err := propose(desc, "qwen3", "", "any", &cladev1.Composition{Device: &device})
		require.NoError(t, err)
		require.Equal(t, want, got.entry, device)
		got, err = propose(desc, "qwen3", "qwen3-avx512-decoder", "any", &cladev1.Composition{Device: &device})
		require.NoError(t, err, "a name bypasses the key")
		require.Equal(t, "qwen3-avx512-decoder", got.entry)
	}
	got, err := propose(desc, "qwen3", "", "any", &cladev1.Composition{})
	require.NoError(t, err)
	require.Equal(t, "qwen3", got.entry, "no device is known before the first plan")
}

// A key as the original writes one: fingerprint, device, rows and KV schemes of one entry, all of which must hold.
func TestAKeyOfFingerprintDeviceRowsAndKVHoldsAsAWhole(t *testing.T) {
	desc := &cladev1.DescribeResponse{GraphTables: []*cladev1.GraphTable{{Graph: "g", Entries: []*cladev1.GraphEntry{
		{
			Id: "written", Programs: []string{"ane-mlp"},
			Serves: &cladev1.GraphKey{Fingerprint: new("cfa205c8f5af046a"), Device: new("metal-applegpu_g16s"), MaxRows: new(uint32(4)), Kv: []string{"native", "affine:4g64"}},
		},
		{Id: "generic"},
	}}}}
	affine := func(bits uint32) *cladev1.KvScheme {
		return &cladev1.KvScheme{Scheme: &cladev1.KvScheme_Affine{Affine: &cladev1.KvAffine{Bits: bits, Group: 64}}}
	}
	for _, tt := range []struct {
		fingerprint, device string
		rows                uint32
		kv                  *cladev1.KvScheme
		why                 string // it is not the written one
	}{
		{"cfa205c8f5af046a", "metal-applegpu_g16s", 4, nil, ""},
		{"cfa205c8f5af046a", "metal-applegpu_g16s", 1, affine(4), ""},
		{"50117975cb405944", "metal-applegpu_g16s", 1, nil, "fingerprint cfa205c8f5af046a, this has 50117975cb405944"},
		{"cfa205c8f5af046a", "metal-applegpu_g13s", 1, nil, "device metal-applegpu_g16s, this is metal-applegpu_g13s"},
		{"cfa205c8f5af046a", "metal-applegpu_g16s", 5, nil, "at most 4 rows, a phase of this has 5"},
		{"cfa205c8f5af046a", "metal-applegpu_g16s", 1, affine(8), "KV native or affine:4g64, this has affine:8"},
	} {
		got, err := propose(desc, "g", "", tt.fingerprint, &cladev1.Composition{Device: &tt.device, Rows: &tt.rows, Kv: tt.kv})
		require.NoError(t, err)
		if tt.why == "" {
			require.Equal(t, proposal{"written", "its key fits"}, got)
			continue
		}
		require.Equal(t, "generic", got.entry)
		require.Contains(t, got.why, "written wants "+tt.why)
	}
}
