package loader

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/clademl/clade/core/compose"
	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
)

// golden is what is decided of one model of the corpus, frozen in testdata/golden.yaml. Made again by
// go test ./loader -run TestDecisionsAreFrozen -update, and then read by a person.
type golden struct {
	Model           string   `yaml:"model"`
	Family          string   `yaml:"family"`
	Graph           string   `yaml:"graph"`
	Profile         string   `yaml:"profile"`
	Fidelity        string   `yaml:"fidelity"`
	Exact           bool     `yaml:"exact,omitempty"`
	Cell            string   `yaml:"cell,flow"`
	Fingerprint     string   `yaml:"fingerprint"`
	Capabilities    []string `yaml:"capabilities,flow"`
	Full            int64    `yaml:"kv_bytes_per_token_full"`
	Sliding         int64    `yaml:"kv_bytes_per_token_sliding"`
	Window          int64    `yaml:"window"`
	State           int64    `yaml:"linear_state_bytes"`
	Scores          int64    `yaml:"score_bytes"`
	TokensPerSec    float64  `yaml:"tokens_per_second"`
	TotalBytes      int64    `yaml:"fit_total_bytes"`
	LargestThatFits int64    `yaml:"fit_largest_context"`
	PassedOver      []string `yaml:"passed_over,omitempty"`
}

// The inputs of the estimate are those of the system whose numbers reference/behaviour.md 2.11 has.
const (
	goldenWeights   = 1_000_000_000
	goldenExperts   = 500_000_000
	goldenContext   = 4096
	goldenScores    = 8192 // context of the score column
	goldenBandwidth = 400e9
	goldenUsable    = 8 << 30
)

// sampleModel writes a model of the corpus under dir: its files and one weight file without a tensor.
func sampleModel(t *testing.T, s corefamily.Sample) hub.Model {
	t.Helper()
	dir := filepath.Join(t.TempDir(), filepath.FromSlash(s.Path), "")
	if s.Path == "" {
		dir = filepath.Join(dir, s.Name)
	}
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), s.ConfigJSON, 0o600))
	if s.KVConfigJSON != nil {
		require.NoError(t, os.WriteFile(filepath.Join(dir, artifact.KVConfigFile), s.KVConfigJSON, 0o600))
	}
	weights := "model.safetensors"
	if s.Format == artifact.Colibri {
		weights = "out-00000.safetensors"
	}
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, weights), nil, nil))
	return hub.Model{ID: s.Name, Path: dir}
}

func goldenOf(t *testing.T, h *Host, s corefamily.Sample) golden {
	t.Helper()
	d, err := h.Decide(sampleModel(t, s))
	require.NoError(t, err, s.Name)
	defer func() { require.NoError(t, d.Close()) }()
	out := golden{
		Model: s.Name, Family: d.Family.Record.Label, Graph: d.Family.Record.Graph, Profile: d.Profile.GetId(), Fidelity: d.Profile.GetFidelity(),
		Exact: d.Profile.GetExactArtifact(), Cell: fmt.Sprintf("%s x %s: %s", d.Profile.GetLoader(), d.Profile.GetLoop(), d.Cell),
		Fingerprint: d.ConfigFingerprint, Capabilities: d.Profile.GetRequiredCapabilities(), PassedOver: d.Passed,
	}
	g, err := d.Parsed.Geometry()
	require.NoError(t, err, s.Name)
	half := family.KVBytes{}
	out.Full, out.Sliding = g.PerToken(half, true)
	out.State = g.StateBytes()
	for _, l := range g.Layers {
		out.Window = max(out.Window, l.Window)
	}
	heads, _, err := d.Parsed.Int("num_attention_heads")
	require.NoError(t, err)
	out.Scores = g.ScoreBytes(heads, compose.EstimateChunk, goldenScores)
	all, used, err := d.Parsed.Experts()
	require.NoError(t, err)
	// That estimator counts layers that share another's cache.
	kv := goldenContext*out.Full + min(goldenContext, out.Window)*out.Sliding + out.State
	speed := compose.TokensPerSecond(compose.SpeedInput{
		WeightBytes: goldenWeights, ExpertBytes: goldenExperts, All: all, Used: used, KVBytes: kv, BytesPerSecond: goldenBandwidth,
	})
	out.TokensPerSec = math.Round(speed*1000) / 1000
	longest, _, err := d.Parsed.Int("max_position_embeddings")
	require.NoError(t, err)
	fit := compose.Estimate(compose.FitInput{
		Geometry: g, Heads: heads, WeightBytes: goldenWeights, KV: family.KV{Plain: family.BF16KV}, ElementBytes: 2, Context: goldenContext,
		MaxContext: longest, BudgetBytes: goldenUsable,
	})
	out.TotalBytes, out.LargestThatFits = fit.TotalBytes, fit.LargestContext
	return out
}

var update = flag.Bool("update", false, "write testdata/golden.yaml anew")

func corpusHost(t *testing.T) *Host {
	t.Helper()
	h := hostOf(t, newFake())
	h.Find = func(name string) (Plugin, error) {
		return Plugin{}, contract.Errorf(contract.PluginMissing, name, "none is installed")
	}
	return h
}

func TestDecisionsAreFrozen(t *testing.T) {
	samples, err := corefamily.Corpus()
	require.NoError(t, err)
	h := corpusHost(t)
	var rows []golden
	for _, s := range samples {
		if s.Graph != "" {
			rows = append(rows, goldenOf(t, h, s))
		}
	}
	require.GreaterOrEqual(t, len(rows), 12)
	path := filepath.Join("testdata", "golden.yaml")
	if *update {
		var out bytes.Buffer
		out.WriteString("# What is decided of each model of core/family/corpus.jsonl, and the estimate with 1 GB of weights (half of them experts in a\n" +
			"# mixture), 4096 tokens, 400 GB/s, 8 GiB usable; scores for 8192 tokens. See golden_test.go for how it is made.\n")
		e := yaml.NewEncoder(&out)
		e.SetIndent(2)
		require.NoError(t, e.Encode(rows))
		require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var want []golden
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&want))
	require.Equal(t, want, rows)
}

// The numbers are not ours: constants of the system that defined them (reference/behaviour.md 2.2 and 2.11). Whoever makes
// the golden file anew cannot change them.
func TestTheGoldenTableHoldsThePublishedNumbers(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "golden.yaml"))
	require.NoError(t, err)
	var rows []golden
	require.NoError(t, yaml.Unmarshal(data, &rows))
	byModel := map[string]golden{}
	for _, r := range rows {
		byModel[r.Model] = r
	}
	for model, want := range map[string]struct {
		full, sliding, window, state, scores int64
		speed                                float64
	}{
		"gemma-4-12b-optiq":       {16384, 327680, 1024, 0, 536870912, 233.843},
		"gemma-4-e4b":             {28672, 71680, 512, 0, 268435456, 284.194},
		"gemma-4-e2b-qat":         {14336, 28672, 512, 0, 268435456, 305.571},
		"diffusion-gemma-26b-a4b": {20480, 204800, 1024, 0, 536870912, 368.551},
		"qwen3.5-0.8b":            {12288, 0, 0, 19537920, 268435456, 306.579},
		"qwen3.8-27b-optiq":       {65536, 0, 0, 153944064, 805306368, 230.599},
		"minicpm5-1b":             {24576, 0, 0, 0, 0, 298.002},
		"llama-3.2-3b":            {114688, 0, 0, 0, 0, 223.165},
		"glm-5.2-colibri":         {5111808, 0, 0, 0, 2147483648, 14.170},
	} {
		r := byModel[model]
		require.Equal(t, []int64{want.full, want.sliding, want.window, want.state, want.scores}, []int64{r.Full, r.Sliding, r.Window, r.State, r.Scores}, model)
		require.InDelta(t, want.speed, r.TokensPerSec, 0.0005, model)
	}
	// Of the two that were recorded without their kv_config.json, which layers have 8 bits was found by trying: e4b lists the 24
	// layers with a cache of their own (all 2^24 tried, one fits), 26B all 30 (up to ten of 8 bits tried, one fits).
	for model, fingerprint := range map[string]string{
		"gemma-4-e4b-optiq": "418e9adc386ea67c", "gemma-4-26b-a4b-optiq": "c9dd67ed5a525231",
		"gemma-4-12b-optiq": "9f812d2eb461fcbe", "qwen3.8-27b-optiq": "50117975cb405944", "glm-5.2-colibri": "8b49d0941e18f1b9",
	} {
		require.Equal(t, fingerprint, byModel[model].Fingerprint, model)
	}
	for model, profile := range map[string]string{
		"qwen3.8-27b-optiq": "qwen3.8-27b-optiq-4bit", "glm-5.2-colibri": "glm5.2-colibri-int4-int8-mtp",
	} {
		require.Equal(t, profile, byModel[model].Profile)
		require.True(t, byModel[model].Exact)
	}
	require.Zero(t, byModel["whisper-tiny"].Full, "whisper keeps nothing that grows with the context")
}

func TestDecidingIsDeterministic(t *testing.T) {
	samples, err := corefamily.Corpus()
	require.NoError(t, err)
	h := corpusHost(t)
	for _, s := range samples {
		if s.Graph == "" {
			_, err := h.Decide(sampleModel(t, s))
			require.Equal(t, contract.UnsupportedModel, contract.KindOf(err), s.Name)
			require.Equal(t, 3, contract.KindOf(err).ExitCode())
			continue
		}
		require.Equal(t, goldenOf(t, h, s), goldenOf(t, h, s))
		d, err := h.Decide(sampleModel(t, s))
		require.NoError(t, err)
		var missing *contract.Error
		require.ErrorAs(t, d.PluginErr, &missing, "without a plugin all else is decided")
		require.True(t, missing.Kind == contract.PluginMissing || missing.Kind == contract.UnsupportedModel, s.Name)
		require.NoError(t, errors.Join(d.Close()))
	}
}
