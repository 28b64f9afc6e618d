package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// withDraft is a model's spec with another model that drafts for it.
func withDraft(t *testing.T, target, small string) *cladev1.ModelSpec {
	t.Helper()
	out := spec(t, target, &cladev1.Composition{Context: ptr(uint32(512)), Rows: ptr(uint32(1))})
	out.Artifacts = append(out.Artifacts, &cladev1.Artifact{Role: cladev1.Role_ROLE_DRAFT, Path: small, Format: "safetensors"})
	out.Composition.Draft = &cladev1.Draft{Kind: "two-model", Dir: &small, Graph: ptr("universal-dense"), Depth: ptr(uint32(4))}
	return out
}

// The plan of a draft is that of the draft alone, over the target's context: weights and cache, and the activations of a step.
func TestThePlanIncludesAModelThatDrafts(t *testing.T) {
	b := backend(t)
	target, small := tinyPaths["llama-f32"], tinyPaths["llama-affine4"]
	both := withDraft(t, target, small)
	plain := proto.Clone(both).(*cladev1.ModelSpec)
	plain.Artifacts, plain.Composition.Draft = plain.Artifacts[:1], nil
	alone, err := b.Plan(t.Context(), &cladev1.PlanRequest{Model: plain})
	require.NoError(t, err)
	draft, err := b.Plan(t.Context(), &cladev1.PlanRequest{Model: spec(t, small, plain.Composition)})
	require.NoError(t, err)
	plan, err := b.Plan(t.Context(), &cladev1.PlanRequest{Model: both})
	require.NoError(t, err)
	line := plan.Lines[len(plan.Lines)-1]
	require.Equal(t, "auxiliaries", line.Name)
	require.Greater(t, plan.TotalBytes, alone.TotalBytes+line.Bytes, "drafts are checked beside the rows")
	held := uint64(0)
	for _, l := range draft.Lines {
		if l.Name == "weights" || l.Name == "kv" {
			held += l.Bytes
		}
	}
	require.Greater(t, line.Bytes, held)
	require.Less(t, line.Bytes, held+1<<20, "a tiny draft's step is small")
}

// A model with a draft answers as without, says how the drafts did, and takes what the plan says.
func TestAModelThatDraftsIsOpenedBesideItsTarget(t *testing.T) {
	b := backend(t)
	target := tinyPaths["llama-f32"]
	job := func() *plugin.GenerateJob {
		return &plugin.GenerateJob{IDs: tiny.Prompt(40, 256), Start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(400)), Sampling: &cladev1.Sampling{
			IgnoreEos: ptr(true), Temperature: ptr(0.9), Seed: ptr(uint64(3)),
		}}}
	}
	both := withDraft(t, target, tinyPaths["llama-affine4"])
	plain := proto.Clone(both).(*cladev1.ModelSpec)
	plain.Artifacts, plain.Composition.Draft = plain.Artifacts[:1], nil
	alone, _ := open(t, b, plain, nil)
	want, _ := generate(t, alone, job())
	m, plan := open(t, b, both, nil)
	got, finish := generate(t, m, job())
	require.Equal(t, want, got)
	require.Positive(t, finish.Usage.Drafted, finish.Usage.DraftParked)
	require.Equal(t, "two-model", finish.Provenance.DraftKind)
	require.LessOrEqual(t, m.Facts().Memory.PeakBytes, plan.TotalBytes)
}

// A draft as dear as the model could not win if it were always right: nothing is asked of it, and the answer says why.
func TestADraftAsDearAsItsTargetIsNeverAsked(t *testing.T) {
	b := backend(t)
	target := tinyPaths["llama-f32"]
	m, _ := open(t, b, withDraft(t, target, target), nil)
	_, finish := generate(t, m, &plugin.GenerateJob{IDs: tiny.Prompt(40, 256), Start: &cladev1.GenerateStart{
		MaxTokens: ptr(uint32(300)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)},
	}})
	require.Zero(t, finish.Usage.Drafted)
	require.Contains(t, finish.Usage.DraftParked, "takes 1.15 of the model's own step")
	stats := m.Stats()
	require.Equal(t, finish.Usage.DraftParked, stats.DraftParked)
	require.Equal(t, "two-model", stats.DraftKind)
}

// What a draft keeps is neither in blocks nor coded, which plan and answers say where the model's own caches are; they answer alike.
func TestADraftsCachesArePlainAndSaidToBe(t *testing.T) {
	b := backend(t)
	target := tinyPaths["llama-untied-headdim"]
	both := withDraft(t, target, target)
	k, err := family.ParseKV("affine:8g32")
	require.NoError(t, err)
	both.Composition.Kv, both.Composition.Paging = k.Proto(), ptr(true)
	plain := proto.Clone(both).(*cladev1.ModelSpec)
	plain.Artifacts, plain.Composition.Draft = plain.Artifacts[:1], nil
	alone, planned := open(t, b, plain, nil)
	require.NotContains(t, fmt.Sprint(planned.Notes), "the draft's caches")
	want, _ := generate(t, alone, kvJob(kvPrompt(1, 300)))
	m, planned := open(t, b, both, nil)
	got, finish := generate(t, m, kvJob(kvPrompt(1, 300)))
	require.Equal(t, want, got)
	for _, notes := range [][]string{planned.Notes, finish.Provenance.Notes} {
		require.Contains(t, notes, "the draft's caches are not paged: each text has its own, of which nothing is shared")
		require.Contains(t, notes, "the draft's caches are stored as they are computed, not as affine:8g32")
	}
}

func TestADraftWithOtherTokensIsRefused(t *testing.T) {
	b := backend(t)
	copied := func(edit func(tokens []byte) []byte) string {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(tinyPaths["llama-f32"])))
		require.NoError(t, tiny.WriteByteTokenizer(dir))
		path := filepath.Join(dir, "tokenizer.json")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, edit(data), 0o600))
		return dir
	}
	same := func(d []byte) []byte { return d }
	target := copied(same)
	plan := func(small string) error {
		_, err := b.Plan(t.Context(), &cladev1.PlanRequest{Model: withDraft(t, target, small)})
		return err
	}
	require.NoError(t, plan(copied(same)))
	require.NoError(t, plan(copied(func(d []byte) []byte { return append(d, '\n') })), "another file, the same tokens")
	for text, small := range map[string]string{
		`id 257 is "<other>", not "<pad>"`: copied(func(d []byte) []byte { return bytes.ReplaceAll(d, []byte(`pad\u003e`), []byte(`other\u003e`)) }),
		"only one of them has a tokenizer": tinyPaths["llama-f32"],
	} {
		err := plan(small)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "has another vocabulary than the model: "+text)
	}
}
