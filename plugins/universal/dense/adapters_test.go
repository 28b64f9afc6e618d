package dense

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/adapters"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// adapted opens a checkpoint with every tiny adapter under its name, or with those named.
func adapted(t *testing.T, name string, target weights.Target, config engine.Config, names ...string) *engine.Engine {
	t.Helper()
	paths, err := tiny.WriteAll(t.TempDir(), tiny.LlamaAdapters(names...))
	require.NoError(t, err)
	s := enginetest.Subject{Graph: Graph(), Manifest: "../plugin.yaml", Path: tinyPaths[name], Target: target, Config: config, AdapterBytes: 1 << 24}
	for _, a := range tiny.LlamaAdapters(names...) {
		s.Adapters = append(s.Adapters, adapters.Spec{ID: a.Name, Path: paths[a.Name], Scale: 1})
	}
	return s.Open(t)
}

func score(t *testing.T, e *engine.Engine, ids []int32, adapter string) [][]float32 {
	t.Helper()
	rows := make([][]float32, len(ids))
	job := &plugin.ScoreJob{Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS, Adapter: &adapter}, IDs: ids}
	require.NoError(t, e.Score(context.Background(), job, func(r *cladev1.ScoreResponse) error {
		if f := r.GetFrame(); f != nil {
			rows[f.Position] = append(rows[f.Position], f.Values...)
		}
		return nil
	}))
	return rows
}

func choosing(adapter string, n int) *cladev1.GenerateStart {
	return &cladev1.GenerateStart{MaxTokens: ptr(uint32(n)), Adapter: &adapter, Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
}

// Adapters of mlx-lm beside mlx-lm's own load_adapters, those of PEFT beside numpy.
func TestAdaptersEqualTheirOracles(t *testing.T) {
	data, err := os.ReadFile("../testdata/adapters.json")
	require.NoError(t, err)
	var file struct {
		Cases []struct {
			golden
			Adapter string
		}
	}
	require.NoError(t, json.Unmarshal(data, &file))
	require.Len(t, file.Cases, 7)
	for _, g := range file.Cases {
		t.Run(g.Name+" "+g.Adapter, func(t *testing.T) {
			bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
				e := adapted(t, g.Name, weights.Target{DType: mlx.Float32, Kernels: kernels}, engine.Config{PrefillChunk: 64}, g.Adapter)
				for length := range g.LastRows {
					n, err := strconv.Atoi(length)
					require.NoError(t, err)
					rows := score(t, e, tiny.Prompt(n, g.Vocab), g.Adapter)
					d := distance(g.lastRow(t, length), rows[n-1])
					t.Logf("prefill %3d: %.1e", n, d)
					require.LessOrEqual(t, d, oracleBound, "prefill of %d", n)
				}
				got := generate(t, e, tiny.Prompt(7, g.Vocab), choosing(g.Adapter, len(g.Greedy)))
				require.Equal(t, g.Greedy, got.ids)
				require.Equal(t, []string{g.Adapter + ":1"}, got.finish.Provenance.Adapters)
			})
		})
	}
}

// choices of adapters, from none to a stack.
var choices = []string{"none", "mlx-attention", "mlx-all", "peft-attention", "peft-all", "mlx-all+peft-all:0.5", "peft-all:0.5+mlx-all", "mlx-attention:-1"}

// Rows of one batch with different adapters, or none, decode together, and each has the tokens and log probabilities that it has alone; without
// an adapter, the very bits of an engine that knows of none.
func TestRowsOfABatchHaveTheirOwnAdapters(t *testing.T) {
	for _, name := range []string{"llama-f32", "llama-affine8"} {
		bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
			target := weights.Target{DType: mlx.Float32, Kernels: kernels}
			prompt := tiny.Prompt(40, 256)
			start := func(choice string, i int) *cladev1.GenerateStart {
				s := choosing(choice, 12+i%5)
				s.Logprobs = &cladev1.Logprobs{Top: 3}
				return s
			}
			plain := generate(t, openOn(t, tinyPaths[name], target, 64), prompt, &cladev1.GenerateStart{
				MaxTokens: ptr(uint32(12)), Logprobs: &cladev1.Logprobs{Top: 3}, Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)},
			})
			e := adapted(t, name, target, engine.Config{PrefillChunk: 16, Rows: 8, Queue: 64, PrefixBytes: 1 << 24})
			want := map[string]answer{}
			for i, choice := range choices {
				s := start(choice, i)
				s.PrefixCache = ptr(false)
				want[fmt.Sprint(choice, i)] = generate(t, e, prompt, s)
			}
			require.Equal(t, plain.ids, want["none0"].ids)
			equalProbabilities(t, plain.logprobs, want["none0"].logprobs)
			require.NotEqual(t, want["none0"].ids, want["mlx-all2"].ids)
			if kernels == nil {
				return // stock operations promise nothing of batches
			}
			rng := rand.New(rand.NewPCG(5, 6))
			for range 3 {
				var wg sync.WaitGroup
				got := make([]answer, 16)
				for n := range got {
					i := rng.IntN(len(choices))
					wg.Go(func() {
						got[n] = generate(t, e, prompt, start(choices[i], i))
						w := want[fmt.Sprint(choices[i], i)]
						if fmt.Sprint(w.ids) != fmt.Sprint(got[n].ids) {
							t.Errorf("%s in a batch: %v, alone %v", choices[i], got[n].ids, w.ids)
						}
						equalProbabilities(t, w.logprobs, got[n].logprobs)
					})
				}
				wg.Wait()
			}
			require.Positive(t, e.Stats().PrefixCachedTokens, "beginnings are shared by requests of the same adapters")
		})
	}
}

func equalProbabilities(t *testing.T, want, got []*cladev1.TokenLogprobs) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%d log probabilities, want %d", len(got), len(want))
		return
	}
	for i := range want {
		if want[i].Logprob != got[i].Logprob || want[i].Top[0].Logprob != got[i].Top[0].Logprob {
			t.Errorf("token %d: %v, want %v", i, got[i], want[i])
		}
	}
}

// What one adapter computed of a beginning is no other's, nor the plain model's, nor the same one's at another scale.
func TestKeptBeginningsAreOfTheirAdapters(t *testing.T) {
	e := adapted(t, "llama-f32", weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}, engine.Config{PrefillChunk: 64, PrefixBytes: 1 << 26})
	prompt := tiny.Prompt(100, 256)
	for _, choice := range choices {
		first := generate(t, e, prompt, choosing(choice, 4))
		require.Zero(t, first.finish.Usage.CachedTokens, choice)
		again := generate(t, e, prompt, choosing(choice, 4))
		require.EqualValues(t, 99, again.finish.Usage.CachedTokens, choice)
		require.Equal(t, first.ids, again.ids)
	}
	require.EqualValues(t, 99, generate(t, e, prompt, choosing("mlx-all:1", 4)).finish.Usage.CachedTokens, "its own scale, said or not")
	require.Zero(t, generate(t, e, prompt, choosing("mlx-all:1.5", 4)).finish.Usage.CachedTokens)
}

func act(e *engine.Engine, req *cladev1.AdaptersRequest) (*cladev1.AdaptersResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	return e.Adapters(ctx, req)
}

func loadRequest(id, path string) *cladev1.AdaptersRequest {
	return &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Load{Load: &cladev1.AdapterLoad{Id: id, Path: path}}}
}

func unloadRequest(id string) *cladev1.AdaptersRequest {
	return &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Unload{Unload: &cladev1.AdapterUnload{Id: id}}}
}

func TestMemoryReturnsAfterAHundredLoads(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
		e := adapted(t, "llama-f32", weights.Target{DType: mlx.Float32, Kernels: kernels}, engine.Config{PrefillChunk: 64}, "mlx-attention")
		path, err := tiny.LlamaAdapters("peft-all")[0].Write(t.TempDir())
		require.NoError(t, err)
		prompt := tiny.Prompt(20, 256)
		var base, handles int64
		var want []int32
		for i := range 100 {
			r, err := act(e, loadRequest("x", path))
			require.NoError(t, err)
			require.Equal(t, []string{"mlx-attention", "x"}, r.Loaded)
			require.NotEmpty(t, r.Adapters[1].Digest)
			if i%20 == 0 {
				got := generate(t, e, prompt, choosing("x", 6))
				if want == nil {
					want = got.ids
				}
				require.Equal(t, want, got.ids)
			}
			r, err = act(e, unloadRequest("x"))
			require.NoError(t, err)
			require.Equal(t, []string{"mlx-attention"}, r.Loaded)
			if active := int64(e.Stats().Memory.ActiveBytes); base == 0 {
				base, handles = active, mlx.LiveHandles()
			} else {
				require.LessOrEqual(t, active, base, "load %d", i)
				require.Equal(t, handles, mlx.LiveHandles())
			}
		}
	})
}

// An adapter that is unloaded is found by no new request at once; those that have it go on with it, and the call returns when the last has
// ended. Its name is free meanwhile.
func TestUnloadWaitsForRequestsInFlight(t *testing.T) {
	e := adapted(t, "llama-f32", weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}, engine.Config{PrefillChunk: 64, Rows: 2}, "mlx-all")
	prompt := tiny.Prompt(20, 256)
	want := generate(t, e, prompt, choosing("mlx-all", 200))
	begun, done := make(chan struct{}), make(chan []int32)
	hold := make(chan struct{})
	go func() {
		var ids []int32
		first := true
		err := e.Generate(context.Background(), &plugin.GenerateJob{Start: choosing("mlx-all", 200), IDs: prompt}, func(r *cladev1.GenerateResponse) error {
			if ids = append(ids, r.GetStep().GetIds()...); len(ids) > 0 && first {
				first = false
				close(begun)
				<-hold
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		done <- ids
	}()
	<-begun
	unloaded := make(chan error, 1)
	go func() { _, err := act(e, unloadRequest("mlx-all")); unloaded <- err }()
	require.Eventually(t, func() bool {
		r, err := act(e, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_List{List: &cladev1.AdapterList{}}})
		return err == nil && len(r.Loaded) == 0
	}, waitLimit, waitStep)
	err := e.Generate(context.Background(), &plugin.GenerateJob{Start: choosing("mlx-all", 4), IDs: prompt}, func(*cladev1.GenerateResponse) error { return nil })
	require.Equal(t, contract.NotFound, contract.KindOf(err), "no new request finds it")
	select {
	case err := <-unloaded:
		require.Fail(t, "it returned before its request had ended", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(hold)
	require.Equal(t, want.ids, <-done, "the request went on with it")
	require.NoError(t, <-unloaded)
}

// Nothing of an adapter that is refused stays, and the refusal names what stands in its way.
func TestAdaptersThatDoNotFitAreRefusedWhole(t *testing.T) {
	e := adapted(t, "llama-f32", weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}, engine.Config{PrefillChunk: 64}, "mlx-all")
	bend := func(change func(*tiny.Checkpoint)) string {
		c := tiny.LlamaAdapters("peft-attention")[0]
		change(&c)
		path, err := c.Write(t.TempDir())
		require.NoError(t, err)
		return path
	}
	const q0 = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
	rename := func(to string) func(*tiny.Checkpoint) {
		return func(c *tiny.Checkpoint) {
			c.Config["target_modules"] = nil
			c.Tensors[0].Name, c.Tensors[1].Name = "base_model.model."+to+".lora_A.weight", "base_model.model."+to+".lora_B.weight"
		}
	}
	before, handles := e.Stats().Memory.ActiveBytes, mlx.LiveHandles()
	for name, c := range map[string]struct {
		id, path string
		kind     contract.Kind
		says     string
	}{
		"no folder":        {"x", "/nowhere", contract.NotFound, "adapter_config.json"},
		"a taken name":     {"mlx-all", bend(func(*tiny.Checkpoint) {}), contract.InvalidArgument, "loaded already"},
		"no name":          {"", bend(func(*tiny.Checkpoint) {}), contract.InvalidArgument, "no id"},
		"the name of none": {"none", bend(func(*tiny.Checkpoint) {}), contract.InvalidArgument, "no id"},
		"a layer too many": {"x", bend(rename("model.layers.9.self_attn.q_proj")), contract.ArtifactCorrupt, "model.layers.9.self_attn.q_proj"},
		"the embedding":    {"x", bend(rename("model.embed_tokens")), contract.ArtifactCorrupt, "model.embed_tokens"},
		"the head":         {"x", bend(rename("lm_head")), contract.ArtifactCorrupt, "lm_head"},
		"a norm":           {"x", bend(rename("model.layers.0.input_layernorm")), contract.ArtifactCorrupt, "input_layernorm"},
		"another model's in": {"x", bend(func(c *tiny.Checkpoint) {
			c.Tensors[0].Shape, c.Tensors[0].Values = []int{5, 32}, c.Tensors[0].Values[:160]
		}), contract.ArtifactCorrupt, "64 by 32"},
		"a leftover": {"x", bend(func(c *tiny.Checkpoint) {
			c.Tensors = append(c.Tensors, tiny.Tensor{Name: q0 + "magnitude_vector", Shape: []int{64}, Values: make([]float32, 64)})
		}), contract.ArtifactCorrupt, "magnitude_vector"},
		"DoRA":     {"x", bend(func(c *tiny.Checkpoint) { c.Config["use_dora"] = true }), contract.UnsupportedOption, "use_dora"},
		"not real": {"x", bend(func(c *tiny.Checkpoint) { c.Tensors[7].Values[3] = float32(nan()) }), contract.ArtifactCorrupt, "not finite"},
	} {
		_, err := act(e, loadRequest(c.id, c.path))
		require.Error(t, err, name)
		require.Equal(t, c.kind, contract.KindOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.says, name)
		r, err := act(e, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_List{List: &cladev1.AdapterList{}}})
		require.NoError(t, err)
		require.Equal(t, []string{"mlx-all"}, r.Loaded, name)
		require.Equal(t, before, e.Stats().Memory.ActiveBytes, name)
		require.Equal(t, handles, mlx.LiveHandles(), name)
	}
}

func nan() float64 { var zero float64; return zero / zero }

func TestAdaptersStayWithinTheirRoom(t *testing.T) {
	s := enginetest.Subject{
		Graph: Graph(), Manifest: "../plugin.yaml", Path: tinyPaths["llama-f32"], AdapterBytes: 100_000,
		Target: weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}, Config: engine.Config{PrefillChunk: 64},
	}
	e := s.Open(t)
	paths, err := tiny.WriteAll(t.TempDir(), tiny.LlamaAdapters())
	require.NoError(t, err)
	_, err = act(e, loadRequest("a", paths["peft-attention"]))
	require.NoError(t, err)
	_, err = act(e, loadRequest("b", paths["mlx-all"]))
	require.Equal(t, contract.MemoryAdmission, contract.KindOf(err), "%v", err)
	_, err = act(e, unloadRequest("a"))
	require.NoError(t, err)
	_, err = act(e, unloadRequest("a"))
	require.Equal(t, contract.NotFound, contract.KindOf(err))
}

func TestUnknownAdaptersAndStacksAreRefused(t *testing.T) {
	e := adapted(t, "llama-f32", weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}, engine.Config{PrefillChunk: 64}, "mlx-all")
	plain := openOn(t, tinyPaths["llama-f32"], weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}, 64)
	for _, c := range []struct {
		e      *engine.Engine
		choice string
		kind   contract.Kind
	}{
		{e, "other", contract.NotFound},
		{e, "mlx-all+other", contract.NotFound},
		{e, "mlx-all+mlx-all", contract.InvalidArgument},
		{e, "mlx-all:x", contract.InvalidArgument},
		{plain, "mlx-all", contract.UnsupportedOption},
	} {
		err := c.e.Generate(context.Background(), &plugin.GenerateJob{Start: choosing(c.choice, 4), IDs: []int32{1, 2}}, func(*cladev1.GenerateResponse) error { return nil })
		require.Equal(t, c.kind, contract.KindOf(err), "%s: %v", c.choice, err)
	}
	_, err := act(plain, loadRequest("x", "/nowhere"))
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
	generate(t, plain, []int32{1, 2}, choosing("none", 2))
}
