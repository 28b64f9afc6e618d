package e2e

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// golden is one checkpoint of plugins/universal/testdata/llama.json, made by mlx-lm on the CPU at float32 (oracle.py beside
// it): the last row of logits after prompts of some lengths, and greedy ids after the prompt of 7.
type golden struct {
	Name     string            `json:"name"`
	Vocab    int               `json:"vocab"`
	LastRows map[string]string `json:"last_rows"`
	Greedy   []int32           `json:"greedy"`
}

func goldens(t *testing.T) map[string]golden {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository(), "plugins", "universal", "testdata", "llama.json"))
	require.NoError(t, err)
	var file struct{ Checkpoints []golden }
	require.NoError(t, json.Unmarshal(data, &file))
	out := map[string]golden{}
	for _, g := range file.Checkpoints {
		out[g.Name] = g
	}
	return out
}

func floats(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[i*4:]))
	}
	return out
}

func TestScoreAndGenerateEqualMLXLMOnEveryTinyCheckpoint(t *testing.T) {
	want := goldens(t)
	for _, c := range tiny.Llama() {
		t.Run(c.Name, func(t *testing.T) {
			g, found := want[c.Name]
			require.True(t, found, "no golden for %s", c.Name)
			model, err := c.Write(t.TempDir())
			require.NoError(t, err)
			long := write(t, filepath.Join(t.TempDir(), "long"), tiny.Prompt(65, g.Vocab))
			logits := filepath.Join(t.TempDir(), "logits.safetensors")
			ok(t, "score", model, "--ids", long, "--logits", logits, "--dtype", "float32")
			requireLastRow(t, g, "65", logits)

			short := write(t, filepath.Join(t.TempDir(), "short"), tiny.Prompt(7, g.Vocab))
			var r struct {
				TokenIDs     []int32 `json:"token_ids"`
				FinishReason string  `json:"finish_reason"`
				Provenance   struct {
					Device        string `json:"device"`
					Deterministic bool   `json:"deterministic"`
				} `json:"provenance"`
			}
			jsonOf(t, &r, "generate", model, "--ids", short, "--max-tokens", "64", "--temperature", "0", "--ignore-eos", "--dtype", "float32", "--json")
			require.Equal(t, g.Greedy, r.TokenIDs)
			require.Equal(t, "length", r.FinishReason)
			require.Contains(t, r.Provenance.Device, "cpu-")
			require.True(t, r.Provenance.Deterministic)
		})
	}
}

// requireLastRow compares the last row of a logits file with the golden: at most 1e-5 of the largest value apart.
func requireLastRow(t *testing.T, g golden, length, file string) {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	write(t, filepath.Join(dir, "config.json"), `{"model_type":"logits"}`)
	write(t, filepath.Join(dir, "model.safetensors"), string(data))
	a, err := artifact.Open(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	tensor, found := a.Tensor("logits")
	require.True(t, found)
	require.Equal(t, artifact.F32, tensor.DType)
	require.Equal(t, int64(g.Vocab), tensor.Shape[1])
	row := make([]byte, g.Vocab*4)
	_, err = a.ReadAt(tensor, row, tensor.Bytes-int64(len(row)))
	require.NoError(t, err)
	raw, err := base64.StdEncoding.DecodeString(g.LastRows[length])
	require.NoError(t, err)
	want, got := floats(raw), floats(row)
	var diff, top float64
	for i := range want {
		diff, top = max(diff, math.Abs(float64(want[i]-got[i]))), max(top, math.Abs(float64(want[i])))
	}
	require.LessOrEqual(t, diff, 1e-5*top)
}
