package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

var tinyPaths map[string]string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clade-tiny-")
	if err == nil {
		tinyPaths, err = tiny.WriteAll(dir, append(tiny.Llama(), tiny.Dense("minicpm3-a")...))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// backend is the plugin's, with its runtime loaded: CLADE_RUNTIME, else bin/runtime/cpu of this repository.
func backend(t *testing.T) plugin.Backend {
	t.Helper()
	f, err := engine.Plugin(manifest, universal())
	require.NoError(t, err)
	_, _, err = f.Backend.LoadRuntime(runtimeDir())
	require.NoError(t, err, "run make setup")
	return f.Backend
}

func runtimeDir() string {
	if dir := os.Getenv("CLADE_RUNTIME"); dir != "" {
		return dir
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin", "runtime", "cpu")
}

// spec is what the host would send for the model at path.
func spec(t *testing.T, path string, composition *cladev1.Composition) *cladev1.ModelSpec {
	t.Helper()
	m, err := family.ParseManifest(manifest)
	require.NoError(t, err)
	a, err := artifact.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	for _, record := range m.Families {
		if !record.Match(a.Config()).OK {
			continue
		}
		parsed, err := record.Parse(a)
		require.NoError(t, err)
		return &cladev1.ModelSpec{
			Artifacts: []*cladev1.Artifact{{Role: cladev1.Role_ROLE_TARGET, Path: path, Format: string(a.Format)}},
			Graph:     record.Graph, GraphEntry: "dense", Profile: &cladev1.Profile{Id: record.Profile},
			Composition: composition, ParsedConfigJson: parsed.JSON(),
		}
	}
	require.Fail(t, "no record takes "+path)
	return nil
}

// open plans and opens; the model closes with the test.
func open(t *testing.T, b plugin.Backend, model *cladev1.ModelSpec, report func(*cladev1.OpenResponse)) (plugin.Model, *cladev1.Plan) {
	t.Helper()
	plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: model})
	require.NoError(t, err)
	if report == nil {
		report = func(*cladev1.OpenResponse) {}
	}
	m, err := b.Open(context.Background(), &cladev1.OpenRequest{Model: model, Plan: plan}, report)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m, plan
}

// generate collects ids and the finish.
func generate(t *testing.T, m plugin.Model, job *plugin.GenerateJob) ([]int32, *cladev1.Finish) {
	t.Helper()
	var ids []int32
	var finish *cladev1.Finish
	require.NoError(t, m.Generate(context.Background(), job, func(r *cladev1.GenerateResponse) error {
		ids = append(ids, r.GetStep().GetIds()...)
		if f := r.GetFinish(); f != nil {
			finish = f
		}
		return nil
	}))
	require.NotNil(t, finish)
	return ids, finish
}

func ptr[T any](v T) *T { return &v }
