package enginetest

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/adapters"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// RuntimeDir is CLADE_RUNTIME, else bin/runtime/cpu of this repository.
func RuntimeDir() string {
	if dir := os.Getenv("CLADE_RUNTIME"); dir != "" {
		return dir
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "bin", "runtime", "cpu")
}

// Runtime opens it, and Kernels its library.
func Runtime(t testing.TB) *mlx.Runtime {
	t.Helper()
	r, err := mlx.Open(RuntimeDir())
	require.NoError(t, err, "run make setup")
	return r
}

// Kernels is the runtime's library.
func Kernels(t testing.TB) *mlx.Kernels {
	t.Helper()
	k, err := Runtime(t).Kernels()
	require.NoError(t, err, "run make setup")
	return k
}

// Parse reads an artifact's config as the host does: through the record of the manifest that takes it.
func Parse(t testing.TB, manifest string, a *artifact.Artifact) (graph string, parsed artifact.Config) {
	t.Helper()
	data, err := os.ReadFile(manifest)
	require.NoError(t, err)
	m, err := family.ParseManifest(data)
	require.NoError(t, err)
	for _, record := range m.Families {
		if record.Match(a.Config()).OK {
			p, err := record.Parse(a)
			require.NoError(t, err)
			return record.Graph, p.Config
		}
	}
	require.Fail(t, "no record takes "+a.Path)
	return "", artifact.Config{}
}

// Subject is a checkpoint and how it is opened.
type Subject struct {
	Graph    engine.Graph
	Manifest string // the plugin.yaml with the record
	Path     string // the checkpoint
	Target   weights.Target
	// Adapters are loaded with the model, and later ones where AdapterBytes, the room of all, lets them.
	Adapters     []adapters.Spec
	AdapterBytes int64
	// Draft is a head of the graph's; Config may name another drafter.
	Draft Draft
	// Config of the engine; what the model says is filled in. A Context of 0 is 512.
	Config engine.Config
}

// Model builds the graph on a worker of its own. The test ends with no live array.
func (s Subject) Model(t testing.TB) (*mlx.Worker, engine.Model, engine.Blueprint) {
	t.Helper()
	return s.model(t, nn.NewBoard())
}

func (s Subject) model(t testing.TB, board *nn.Board) (*mlx.Worker, engine.Model, engine.Blueprint) {
	t.Helper()
	a, err := artifact.Open(s.Path)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	_, parsed := Parse(t, s.Manifest, a)
	b, err := s.Graph.Read(a, parsed)
	require.NoError(t, err)
	worker, err := Runtime(t).NewWorker(Device)
	require.NoError(t, err)
	var model engine.Model
	require.NoError(t, worker.Do(context.Background(), func(scope *mlx.Scope) error {
		tensors, err := b.Weights.Load(context.Background(), scope, s.Target, func(weights.Progress) {})
		if err != nil {
			return err
		}
		tensors.UseBoard(board)
		model = b.Build(scope, tensors, s.Target.DType)
		return scope.Err()
	}))
	return worker, model, b
}

// Open makes an engine over the checkpoint. It closes with the test, which ends with no live array.
func (s Subject) Open(t testing.TB) *engine.Engine {
	t.Helper()
	before := mlx.LiveHandles()
	board := nn.NewBoard()
	worker, model, b := s.model(t, board)
	config := s.Config
	if config.Context == 0 {
		config.Context = 512
	}
	if config.Queue == 0 {
		config.Queue = 4
	}
	config.Layout, config.EOS, config.Provenance, config.MaxThreads = b.Layout, b.EOS, &cladev1.Provenance{}, 2
	config.Kernels, config.Sampler = s.Target.Kernels, s.Target.Kernels
	if len(s.Adapters) > 0 || s.AdapterBytes > 0 {
		config.Adapters = adapters.NewBook(adapters.Model{Params: b.Weights.Params(), Layer: b.Adapts, Kernels: s.Target.Kernels}, board, worker, s.AdapterBytes)
		for _, a := range s.Adapters {
			require.NoError(t, config.Adapters.Load(context.Background(), a))
		}
	}
	config.Speculation = s.speculation(t, worker, model)
	e := engine.New(Runtime(t), worker, model, config)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.Equal(t, before, mlx.LiveHandles(), "every array is freed")
	})
	return e
}
