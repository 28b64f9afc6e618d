package main

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/plugin"
)

// kvPrompt is n ids that no other start has.
func kvPrompt(start, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((start*7 + i*i + 3*i) % 64)
	}
	return out
}

// kvJob samples a dozen tokens.
func kvJob(ids []int32) *plugin.GenerateJob {
	return &plugin.GenerateJob{IDs: ids, Start: &cladev1.GenerateStart{
		MaxTokens: ptr(uint32(12)), Sampling: &cladev1.Sampling{Temperature: ptr(0.8), Seed: ptr(uint64(5)), IgnoreEos: ptr(true)},
	}}
}

func kvComposition(t *testing.T, scheme string, rows, chunk uint32, prefix uint64) *cladev1.Composition {
	t.Helper()
	k, err := family.ParseKV(scheme)
	require.NoError(t, err)
	return &cladev1.Composition{
		Kv: k.Proto(), Rows: ptr(rows), PrefillChunk: ptr(chunk), Context: ptr(uint32(512)), Deterministic: ptr(true), PrefixCacheBytes: ptr(prefix),
	}
}

// Whatever a cache is stored as, a request has the tokens of its cold run alone: beside others, in other chunks, from the prefix
// cache, when it goes on after a restart, and in blocks.
func TestTokensOfEverySchemeDoNotDependOnHowTheyCame(t *testing.T) {
	b := backend(t)
	prompts := [][]int32{kvPrompt(1, 300), kvPrompt(1, 290), kvPrompt(2, 40)}
	answers := map[string]bool{}
	for _, scheme := range []string{"native", "bf16", "affine:8g32", "affine:4g32", "turbo", "turbo:k4v4", "layers:0=4g32,2=8g32", "affine:4g32@295", "turbo:k2v2@45"} {
		for _, name := range []string{"llama-untied-headdim", "llama-sliding", "minicpm3-a"} {
			if name == "llama-sliding" && scheme != "native" && scheme != "bf16" && scheme != "turbo" {
				continue // its heads are 16 wide
			}
			if name == "minicpm3-a" && (scheme == "bf16" || scheme == "turbo" || scheme == "layers:0=4g32,2=8g32" || scheme == "turbo:k2v2@45") {
				continue // of latents some schemes are enough, and of two codes none
			}
			t.Run(scheme+" "+name, func(t *testing.T) {
				path := tinyPaths[name]
				cold, _ := open(t, b, spec(t, path, kvComposition(t, scheme, 1, 256, 0)), nil)
				warm, plan := open(t, b, spec(t, path, kvComposition(t, scheme, 4, 7, 64<<20)), nil)
				pages := kvComposition(t, scheme, 4, 60, 64<<20)
				pages.Paging = ptr(true)
				paged, planned := open(t, b, spec(t, path, pages), nil)
				require.Contains(t, fmt.Sprint(planned.Notes), "layers are paged")
				var want [][]int32
				for _, p := range prompts {
					ids, finish := generate(t, cold, kvJob(p))
					require.True(t, finish.Provenance.Deterministic)
					want = append(want, ids)
				}
				answers[fmt.Sprint(name, want)] = true
				next := append(append([]int32{}, prompts[0]...), want[0]...)
				straight, _ := generate(t, cold, kvJob(next))
				k, err := family.ParseKV(scheme)
				require.NoError(t, err)
				resumed := kvJob(append(append([]int32{}, prompts[0]...), want[0][:5]...))
				resumed.Start.GeneratedPrefix, resumed.Start.KvConversionOffset = ptr(uint32(len(prompts[0]))), ptr(uint32(k.Start))
				ids, _ := generate(t, cold, resumed)
				require.Equal(t, want[0][5:], ids)
				for _, m := range []plugin.Model{warm, paged} {
					for range 2 { // the second time from what was kept
						got := make([][]int32, len(prompts))
						var wg sync.WaitGroup
						for i, p := range prompts {
							wg.Go(func() { got[i], _ = generate(t, m, kvJob(p)) })
						}
						wg.Wait()
						require.Equal(t, want, got)
					}
					ids, finish := generate(t, m, kvJob(next))
					require.Equal(t, straight, ids)
					require.NotZero(t, finish.Usage.CachedTokens)
					ids, _ = generate(t, m, resumed)
					require.Equal(t, want[0][5:], ids)
				}
				if scheme != "native" {
					require.Contains(t, fmt.Sprint(plan.Notes), "stored as "+k.String())
				}
			})
		}
	}
	require.Greater(t, len(answers), 6, "the schemes compute different things")
}

// Stock operations compute over the same codes: their distributions are those of the kernels but for rounding.
func TestSchemesAgreeWithoutKernels(t *testing.T) {
	b := backend(t)
	for _, scheme := range []string{"affine:4g32", "affine:3g32@20", "turbo:k5v3", "bf16"} {
		var scores [2][]float32
		for i, kernels := range []string{"require", "off"} {
			c := kvComposition(t, scheme, 1, 16, 0)
			c.Kernels, c.Deterministic = ptr(kernels), ptr(false)
			m, _ := open(t, b, spec(t, tinyPaths["llama-untied-headdim"], c), nil)
			require.NoError(t, m.Score(context.Background(), &plugin.ScoreJob{
				Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS}, IDs: kvPrompt(3, 60),
			}, func(r *cladev1.ScoreResponse) error {
				if f := r.GetFrame(); f != nil {
					scores[i] = append(scores[i], f.Values...)
				}
				return nil
			}))
		}
		require.Len(t, scores[0], 59)
		require.InDeltaSlice(t, scores[0], scores[1], 0.05, scheme) // a rounding apart may be a code apart
	}
}

func TestASchemeThatAModelCannotHaveIsRefusedByName(t *testing.T) {
	b := backend(t)
	for _, tt := range []struct {
		scheme, model, why string
		kind               contract.Kind
	}{
		{"affine:4", "llama-f32", "layer 0: groups of 64 do not divide heads of 16", contract.UnsupportedOption},
		{"layers:1=4", "llama-f32", "layer 1: groups of 64", contract.UnsupportedOption},
		{"layers:99=4g32", "llama-untied-headdim", "names layer 99", contract.InvalidArgument},
		{"turbo", "minicpm3-a", "turbo:k8v3: layer 0: a latent row is keys and values at once, and cannot be stored as two codes", contract.UnsupportedOption},
		{"affine:8g128", "minicpm3-a", "layer 0: groups of 128 do not divide heads of 64", contract.UnsupportedOption},
	} {
		_, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths[tt.model], kvComposition(t, tt.scheme, 1, 8, 0))})
		require.ErrorContains(t, err, tt.why)
		require.Equal(t, tt.kind, contract.KindOf(err))
	}
	m, _ := open(t, b, spec(t, tinyPaths["llama-untied-headdim"], kvComposition(t, "affine:4g32@20", 1, 8, 0)), nil)
	job := kvJob(kvPrompt(1, 5))
	job.Start.KvConversionOffset = ptr(uint32(30))
	err := m.Generate(context.Background(), job, func(*cladev1.GenerateResponse) error { return nil })
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.ErrorContains(t, err, "converted its cache at token 30, this one does at 20")
}

// The kv line is what the scheme's buffers take.
func TestThePlansKVLineFollowsTheScheme(t *testing.T) {
	b := backend(t)
	line := func(scheme, model string) uint64 {
		plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths[model], kvComposition(t, scheme, 2, 8, 0))})
		require.NoError(t, err)
		for _, l := range plan.Lines {
			if l.Name == "kv" {
				return l.Bytes
			}
		}
		return 0
	}
	const model = "llama-untied-headdim"
	native := line("native", model)
	require.Equal(t, native/2, line("bf16", model))
	require.Equal(t, native*9/32, line("affine:8g32", model), "a byte and four for 32")
	require.Equal(t, native*5/32, line("affine:4g32", model))
	require.Equal(t, native/2*9/32+native/2*4/32, line("turbo:k8v3", model), "codes and a scale for 32")
	require.Greater(t, line("affine:4g32@100", model), line("affine:4g32", model), "rows before their start are native")
	require.Less(t, line("affine:4g32@100", model), native)
	pages := kvComposition(t, "turbo", 2, 8, 0)
	pages.Paging = ptr(true)
	plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths[model], pages)})
	require.NoError(t, err)
	require.Equal(t, line("turbo", model), plan.Lines[1].Bytes, "as many blocks as there are tokens")
	require.Contains(t, plan.Lines[1].Detail, "in 4 blocks of 256 tokens, of which rows with the same beginning share")
	require.Equal(t, line("native", "llama-sliding"), line("native", "llama-f32"), "a ring is no more than the context")
}
