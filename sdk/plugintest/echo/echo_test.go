package echo

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/tokenizer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a model in this process.
func open(t *testing.T, s Shape, faults ...Fault) plugin.Model {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, WriteModel(dir, s))
	a, err := artifact.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	f := Family(Version, faults...)
	manifest, err := family.ParseManifest(f.Manifest)
	require.NoError(t, err)
	parsed, err := manifest.Families[0].Parse(a)
	require.NoError(t, err)
	p, err := manifest.Families[0].ProfileFor(a.Format)
	require.NoError(t, err)
	m, err := plugin.Create(t.Context(), f, a, &cladev1.ModelSpec{
		Graph: Graph, ParsedConfigJson: parsed.JSON(), Composition: &cladev1.Composition{},
		Profile: &cladev1.Profile{
			Id: p.ID, Fidelity: string(p.Fidelity), Specialization: string(p.Specialization), Loader: p.Loader, Loop: string(p.Loop),
			RequiredCapabilities: p.Capabilities,
		},
	}, "/runtime")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func generate(t *testing.T, m plugin.Model, ids []int32, start *cladev1.GenerateStart) (out []int32, finish *cladev1.Finish) {
	t.Helper()
	err := m.Generate(context.Background(), &plugin.GenerateJob{Start: start, IDs: ids, Control: make(chan *cladev1.Control)},
		func(r *cladev1.GenerateResponse) error {
			out = append(out, r.GetStep().GetIds()...)
			if f := r.GetFinish(); f != nil {
				finish = f
			}
			return nil
		})
	require.NoError(t, err)
	return out, finish
}

func TestAnAnswerGoesOnWhereItWasBroken(t *testing.T) {
	m := open(t, Shape{})
	five, eight := uint32(5), uint32(8)
	temperature, seed, yes := 1.0, uint64(7), true
	start := func(prefix *uint32) *cladev1.GenerateStart {
		return &cladev1.GenerateStart{
			MaxTokens: &eight, GeneratedPrefix: prefix, PrefixCache: &yes,
			Sampling: &cladev1.Sampling{Temperature: &temperature, Seed: &seed, IgnoreEos: &yes},
		}
	}
	whole, finish := generate(t, m, []int32{1, 2, 3, 4, 5}, start(nil))
	require.Len(t, whole, 8)
	require.EqualValues(t, 8, finish.Usage.GeneratedTokens)
	rest, finish := generate(t, m, append([]int32{1, 2, 3, 4, 5}, whole[:3]...), start(&five))
	require.Equal(t, whole[3:], rest)
	require.EqualValues(t, 8, finish.Usage.GeneratedTokens)
	require.EqualValues(t, 7, finish.Usage.CachedTokens)
	require.True(t, finish.Provenance.Resumed)
}

func TestTheModelsTokenizerIsItsBytes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteModel(dir, Shape{}))
	a, err := artifact.Open(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	tok, err := tokenizer.FromArtifact(a)
	require.NoError(t, err)
	ids, err := tok.Encode("A é\n", true)
	require.NoError(t, err)
	require.Equal(t, []int32{65, 32, 0xc3, 0xa9, 10}, ids)
}

func TestABuildHasTheVersionThatWasAskedFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "echo")
	require.NoError(t, Build(dir, "0.9.1"))
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "clade-echo"), "version").Output()
	require.NoError(t, err)
	require.Equal(t, "echo 0.9.1", strings.TrimSpace(string(out)))
}
