package enginetest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// Logits scores ids and returns all rows.
func Logits(t testing.TB, e *engine.Engine, ids []int32) [][]float32 {
	t.Helper()
	rows := make([][]float32, len(ids))
	job := &plugin.ScoreJob{Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS}, IDs: ids}
	require.NoError(t, e.Score(context.Background(), job, func(r *cladev1.ScoreResponse) error {
		if f := r.GetFrame(); f != nil {
			rows[f.Position] = append(rows[f.Position], f.Values...)
		}
		return nil
	}))
	return rows
}

// Generate collects ids and the finish.
func Generate(t testing.TB, e *engine.Engine, ids []int32, start *cladev1.GenerateStart) ([]int32, *cladev1.Finish) {
	t.Helper()
	var out []int32
	var finish *cladev1.Finish
	require.NoError(t, e.Generate(context.Background(), &plugin.GenerateJob{Start: start, IDs: ids}, func(r *cladev1.GenerateResponse) error {
		out = append(out, r.GetStep().GetIds()...)
		if f := r.GetFinish(); f != nil {
			finish = f
		}
		return nil
	}))
	require.NotNil(t, finish)
	return out, finish
}

// Greedy is n greedy ids behind the prompt, whatever ends a turn.
func Greedy(t testing.TB, e *engine.Engine, prompt []int32, n int) []int32 {
	t.Helper()
	most, ignore := uint32(n), true
	ids, _ := Generate(t, e, prompt, &cladev1.GenerateStart{MaxTokens: &most, Sampling: &cladev1.Sampling{IgnoreEos: &ignore}})
	return ids
}

// Golden is what an oracle makes of one checkpoint: float32 rows as base64, by the length of the prompt, and greedy ids.
type Golden struct {
	Name     string
	Vocab    int
	LastRows map[string]string `json:"last_rows"`
	Greedy   []int32
	// Embeddings are normed last hidden states.
	Embeddings map[string]string
}

// Goldens reads a file of them.
func Goldens(t testing.TB, path string) []Golden {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var file struct{ Checkpoints []Golden }
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Checkpoints)
	return file.Checkpoints
}

// Row decodes one of a golden's rows.
func Row(t testing.TB, encoded string) []float32 {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// Distance is the largest difference, as a fraction of the largest value.
func Distance(want, got []float32) float64 {
	if len(want) != len(got) {
		return math.Inf(1)
	}
	var diff, top float64
	for i := range want {
		diff = max(diff, math.Abs(float64(want[i])-float64(got[i])))
		top = max(top, math.Abs(float64(want[i])))
	}
	if math.IsNaN(diff) {
		return math.Inf(1)
	}
	return diff / top
}

// Hold holds an engine to the golden: the last row of each prompt within bound of the largest logit, and the greedy ids.
func (g Golden) Hold(t testing.TB, e *engine.Engine, bound float64) {
	t.Helper()
	for length, encoded := range g.LastRows {
		n, err := strconv.Atoi(length)
		require.NoError(t, err)
		rows := Logits(t, e, tiny.Prompt(n, g.Vocab))
		d := Distance(Row(t, encoded), rows[n-1])
		t.Logf("prefill %3d: %.1e", n, d)
		require.LessOrEqual(t, d, bound, "prefill of %d", n)
	}
	require.Equal(t, g.Greedy, Greedy(t, e, tiny.Prompt(7, g.Vocab), len(g.Greedy)))
}
