package dense

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

var tinyPaths map[string]string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clade-tiny-")
	if err == nil {
		tinyPaths, err = tiny.WriteAll(dir, append(tiny.Llama(), tiny.Dense(rowNames()...)...))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// openRuntime finds the runtime: CLADE_RUNTIME, else bin/runtime/cpu of this repository.
func openRuntime(t *testing.T) *mlx.Runtime {
	t.Helper()
	dir := os.Getenv("CLADE_RUNTIME")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "..", "bin", "runtime", "cpu")
	}
	r, err := mlx.Open(dir)
	require.NoError(t, err, "run make setup")
	return r
}

// readConfig parses an artifact as the host does, through the plugin's own record.
func readConfig(t *testing.T, a *artifact.Artifact) Config {
	t.Helper()
	data, err := os.ReadFile("../plugin.yaml")
	require.NoError(t, err)
	manifest, err := family.ParseManifest(data)
	require.NoError(t, err)
	for _, record := range manifest.Families {
		if record.Match(a.Config()).OK {
			parsed, err := record.Parse(a)
			require.NoError(t, err)
			c, err := ReadConfig(parsed.Config, stated(a))
			require.NoError(t, err)
			return c
		}
	}
	require.Fail(t, "no record takes "+a.Path)
	return Config{}
}

// open makes an engine over a checkpoint that computes in dtype, on the kernels; the test ends with no live array.
func open(t *testing.T, path string, dtype mlx.DType, chunk int) *engine.Engine {
	t.Helper()
	k, err := openRuntime(t).Kernels()
	require.NoError(t, err, "run make setup")
	return openOn(t, path, weights.Target{DType: dtype, Kernels: k}, chunk)
}

// bothWays runs fn on the kernels and on MLX's own operations.
func bothWays(t *testing.T, fn func(t *testing.T, kernels *mlx.Kernels)) {
	t.Helper()
	enginetest.BothWays(t, func(t *testing.T, target weights.Target) { fn(t, target.Kernels) })
}

func openOn(t *testing.T, path string, target weights.Target, chunk int) *engine.Engine {
	t.Helper()
	return openEngine(t, path, target, engine.Config{PrefillChunk: chunk, Queue: 4})
}

// openConfig makes an engine of a configuration, at float32 on the kernels.
func openConfig(t *testing.T, path string, config engine.Config) *engine.Engine {
	t.Helper()
	k, err := openRuntime(t).Kernels()
	require.NoError(t, err, "run make setup")
	return openEngine(t, path, weights.Target{DType: mlx.Float32, Kernels: k}, config)
}

func openEngine(t *testing.T, path string, target weights.Target, config engine.Config) *engine.Engine {
	t.Helper()
	return openWrapped(t, path, target, config, func(m engine.Model) engine.Model { return m })
}

// openWrapped makes an engine over what wrap makes of the model.
func openWrapped(t *testing.T, path string, target weights.Target, config engine.Config, wrap func(engine.Model) engine.Model) *engine.Engine {
	t.Helper()
	before := mlx.LiveHandles()
	r := openRuntime(t)
	worker, err := r.NewWorker(enginetest.Device)
	require.NoError(t, err)
	model := load(t, worker, path, target)
	if d, ok := config.Speculation.Drafter.(checkpointDraft); ok {
		draft := load(t, worker, d.path, target)
		config.Speculation.Drafter = engine.NewTwoModel(draft, draft.config.layout(), target.Kernels != nil, config.PrefillChunk)
	}
	if config.Context == 0 {
		config.Context = 512
	}
	config.Layout, config.EOS, config.Provenance = model.config.layout(), model.config.EOS, &cladev1.Provenance{}
	config.Kernels, config.Sampler, config.MaxThreads = target.Kernels, target.Kernels, 2
	e := engine.New(r, worker, wrap(model), config)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.Equal(t, before, mlx.LiveHandles(), "every array is freed")
	})
	return e
}

// checkpointDraft stands for a model that drafts, until an engine is opened with it.
type checkpointDraft struct {
	engine.Drafter
	path string
}

// load reads a checkpoint on a worker.
func load(t *testing.T, worker *mlx.Worker, path string, target weights.Target) *Model {
	t.Helper()
	a, err := artifact.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	c := readConfig(t, a)
	set, err := Match(a, &c)
	require.NoError(t, err)
	var model *Model
	require.NoError(t, worker.Do(context.Background(), func(s *mlx.Scope) error {
		tensors, err := set.Load(context.Background(), s, target, func(weights.Progress) {})
		if err != nil {
			return err
		}
		model = New(s, c, tensors, target.DType)
		return s.Err()
	}))
	return model
}

// logits scores ids and returns all rows.
func logits(t *testing.T, e *engine.Engine, ids []int32) [][]float32 {
	t.Helper()
	rows := make([][]float32, len(ids))
	job := &plugin.ScoreJob{Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS}, IDs: ids}
	require.NoError(t, e.Score(context.Background(), job, func(r *cladev1.ScoreResponse) error {
		if f := r.GetFrame(); f != nil {
			require.EqualValues(t, len(rows[f.Position]), f.Offset)
			rows[f.Position] = append(rows[f.Position], f.Values...)
		}
		return nil
	}))
	return rows
}

// answer collects what Generate emits.
type answer struct {
	ids      []int32
	logprobs []*cladev1.TokenLogprobs
	finish   *cladev1.Finish
}

func generate(t *testing.T, e *engine.Engine, ids []int32, start *cladev1.GenerateStart) answer {
	t.Helper()
	var out answer
	err := e.Generate(context.Background(), &plugin.GenerateJob{Start: start, IDs: ids}, func(r *cladev1.GenerateResponse) error {
		if step := r.GetStep(); step != nil {
			out.ids = append(out.ids, step.Ids...)
			out.logprobs = append(out.logprobs, step.Logprobs...)
		}
		if f := r.GetFinish(); f != nil {
			out.finish = f
		}
		return nil
	})
	require.NoError(t, err)
	require.NotNil(t, out.finish)
	return out
}

// How long a test waits for another goroutine.
const waitLimit, waitStep = 10 * time.Second, time.Millisecond

func ptr[T any](v T) *T { return &v }

// golden is one checkpoint of testdata/llama.json, which testdata/oracle.py makes with mlx-lm.
type golden struct {
	Name     string
	Vocab    int
	LastRows map[string]string `json:"last_rows"`
	Greedy   []int32
	BFloat16 map[string]string // digests of last rows
}

func goldens(t *testing.T) []golden {
	t.Helper()
	all := readGoldens(t, "llama.json")
	require.Len(t, all, len(tiny.Llama()))
	return all
}

func readGoldens(t *testing.T, name string) []golden {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", name))
	require.NoError(t, err)
	var file struct{ Checkpoints []golden }
	require.NoError(t, json.Unmarshal(data, &file))
	return file.Checkpoints
}

func (g golden) lastRow(t *testing.T, length string) []float32 {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(g.LastRows[length])
	require.NoError(t, err)
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(uint32(raw[4*i]) | uint32(raw[4*i+1])<<8 | uint32(raw[4*i+2])<<16 | uint32(raw[4*i+3])<<24)
	}
	return out
}

// distance is the largest difference, as a fraction of the largest value.
func distance(want, got []float32) float64 {
	var diff, top float64
	for i := range want {
		diff = max(diff, math.Abs(float64(want[i])-float64(got[i])))
		top = max(top, math.Abs(float64(want[i])))
	}
	return diff / top
}
