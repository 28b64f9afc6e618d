package qwen35

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

var tinyPaths map[string]string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clade-tiny-")
	if err == nil {
		tinyPaths, err = tiny.WriteAll(dir, checkpoints())
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// checkpoints are the models of both graphs, and heads beside them.
func checkpoints() []tiny.Checkpoint {
	out := slices.Concat(tiny.Qwen35(), tiny.Qwen35MoE())
	for _, name := range []string{"qwen35-hf-mtp", "qwen35-moe-hf-mtp", "qwen35-agrees"} {
		out = append(out, tiny.Qwen35Heads(name)...)
	}
	return out
}

// manifest is the plugin's own, whose records read the configs.
const manifest = "../plugin.yaml"

func subject(name string, target weights.Target, config engine.Config) enginetest.Subject {
	graph := Graph()
	if strings.HasPrefix(name, "qwen35-moe") {
		graph = MoEGraph()
	}
	return enginetest.Subject{Graph: graph, Manifest: manifest, Path: tinyPaths[name], Target: target, Config: config}
}

func ptr[T any](v T) *T { return &v }

// wrapped is a Read whose models are what wrap makes of them.
func wrapped(read func(*artifact.Artifact, artifact.Config) (engine.Blueprint, error), wrap func(engine.Model) engine.Model) func(*artifact.Artifact, artifact.Config) (engine.Blueprint, error) {
	return func(a *artifact.Artifact, c artifact.Config) (engine.Blueprint, error) {
		b, err := read(a, c)
		build := b.Build
		b.Build = func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model { return wrap(build(s, w, dtype)) }
		return b, err
	}
}
