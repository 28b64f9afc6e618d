package qwen35

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// What the engine does with a recurrent state: it is batched, put back, cancelled, kept, restored, computed again and resumed, and the
// tokens are always those of the request alone.

const testModel = "qwen35-hf"

func onKernels(t *testing.T) weights.Target {
	return weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}
}

func open(t *testing.T, config engine.Config) *engine.Engine {
	return subject(testModel, onKernels(t), config).Open(t)
}

func greedy(n int) *cladev1.GenerateStart {
	return &cladev1.GenerateStart{MaxTokens: ptr(uint32(n)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
}

// On the kernels a row's bits do not depend on how the prompt is cut; stock operations keep to the oracle's bound.
func TestLogitsDoNotDependOnThePrefillChunk(t *testing.T) {
	ids := tiny.Prompt(70, 256)
	for _, name := range []string{"qwen35-hf", "qwen35-odd", "qwen35-affine4"} {
		t.Run(name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				whole := enginetest.Logits(t, subject(name, target, engine.Config{PrefillChunk: 512}).Open(t), ids)
				for _, chunk := range []int{1, 16, 69} {
					cut := enginetest.Logits(t, subject(name, target, engine.Config{PrefillChunk: chunk}).Open(t), ids)
					if target.Kernels != nil {
						require.Equal(t, whole, cut, "chunk %d", chunk)
						continue
					}
					for i := range ids {
						require.LessOrEqual(t, enginetest.Distance(whole[i], cut[i]), oracleBound, "position %d, chunk %d", i, chunk)
					}
				}
			})
		})
	}
}

func TestTokensDoNotDependOnOtherRequests(t *testing.T) {
	wishes := enginetest.Wishes(t, open(t, engine.Config{PrefillChunk: 512}), 16)
	// Nothing, everything, or a few runs of the answers before are kept; rows wait and are put back for want of room.
	for _, c := range []struct {
		rows, requests, kv, chunk int
		kept                      int64
	}{{1, 5, 512, 3, 0}, {7, 7, 2048, 40, 1 << 30}, {8, 24, 1024, 512, 1 << 20}, {8, 24, 512, 17, 1 << 30}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			for seed, paged := range []bool{false, true} {
				e := open(t, engine.Config{PrefillChunk: c.chunk, Rows: c.rows, KVTokens: c.kv, Queue: c.requests, PrefixBytes: c.kept, Paging: paged})
				enginetest.Schedule(t, e, wishes, c.requests, uint64(seed))
				require.Zero(t, e.Stats().FailedEvaluations)
				require.Zero(t, e.Stats().KvTokensUsed)
			}
		})
	}
}

// failing is a model whose forwards fail as told.
type failing struct {
	engine.Model
	fails func(pass *kv.Pass) bool
}

func (f failing) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	out := f.Model.Forward(s, ids, pass)
	if f.fails(pass) {
		_ = s.Fail(errors.New("this forward fails"))
	}
	return out
}

// A state cannot be cut, so rows whose forward failed compute theirs again from their ids.
func TestAfterAFailedForwardStatesAreComputedAgain(t *testing.T) {
	wishes := enginetest.Wishes(t, open(t, engine.Config{PrefillChunk: 512}), 16)
	const poison = 131 // tokens of its prompt: no other text becomes as long
	rng := rand.New(rand.NewPCG(3, 4))
	one := subject(testModel, onKernels(t), engine.Config{PrefillChunk: 512, Rows: 8, Queue: 32})
	one.Graph = Graph()
	read := one.Graph.Read
	one.Graph.Read = wrapped(read, func(m engine.Model) engine.Model {
		return failing{m, func(pass *kv.Pass) bool {
			return slices.ContainsFunc(pass.Segments(), func(g kv.Segment) bool { return g.Cache.Offset()+g.Tokens >= poison }) ||
				len(pass.Segments()) > 1 && rng.IntN(6) == 0
		}}
	})
	e := one.Open(t)
	wishes[5] = enginetest.Wish{Prompt: tiny.Prompt(poison, 256), Start: greedy(4)}
	ids, errs := enginetest.AskAll(e, wishes)
	for i, w := range wishes {
		if i == 5 {
			require.ErrorContains(t, errs[i], "this forward fails")
			require.Equal(t, contract.Internal, contract.KindOf(errs[i]))
			continue
		}
		require.NoError(t, errs[i])
		require.Equal(t, w.Want, ids[i], "request %d", i)
	}
	require.Positive(t, e.Stats().FailedEvaluations)
}

// A conversation's next turn computes only what is new, or goes on from the last capture before it, and gives what it gives cold.
func TestTheNextTurnComputesOnlyNewTokensAndAGap(t *testing.T) {
	cold := open(t, engine.Config{PrefillChunk: 512})
	for _, chunk := range []int{64, 512} {
		warm := open(t, engine.Config{PrefillChunk: chunk, PrefixBytes: 1 << 30, Paging: chunk == 64})
		turn := tiny.Prompt(300, 256)
		ask := func(ids []int32, borders ...uint32) ([]int32, int) {
			start := greedy(20)
			start.RestorePoints = borders
			got, finish := enginetest.Generate(t, warm, ids, start)
			want, _ := enginetest.Generate(t, cold, ids, greedy(20))
			require.Equal(t, want, got)
			return got, int(finish.Usage.CachedTokens)
		}
		first, cached := ask(turn, 40, 250)
		require.Zero(t, cached)
		turn = slices.Concat(turn, first, tiny.Prompt(30, 256))
		_, cached = ask(turn)
		require.GreaterOrEqual(t, cached, 319, "how the answer ended is kept")
		_, cached = ask(turn)
		require.Equal(t, len(turn)-4, cached, "the same again goes on from near its end")
		changed := slices.Clone(turn)
		changed[290]++
		_, cached = ask(changed)
		require.Equal(t, 250, cached, "a text that parts from it goes on from the border before")
	}
}

// A forward passes a place where the state is kept: the prompt is computed in one, and the next turn goes on from there.
func TestAStateIsKeptOnTheWayThroughAForward(t *testing.T) {
	cold, e := open(t, engine.Config{PrefillChunk: 512}), open(t, engine.Config{PrefillChunk: 512, PrefixBytes: 1 << 30})
	prompt := tiny.Prompt(300, 256)
	enginetest.Generate(t, e, prompt, greedy(1))
	forwards, _ := e.Progress()
	require.EqualValues(t, 1, forwards)
	changed := slices.Concat(prompt[:297], []int32{1, 2, 3, 4})
	want, _ := enginetest.Generate(t, cold, changed, greedy(8))
	got, finish := enginetest.Generate(t, e, changed, greedy(8))
	require.Equal(t, want, got)
	require.EqualValues(t, 296, finish.Usage.CachedTokens)
}

// The token that stopped an answer begins the next turn: its state is kept too.
func TestTheTokenThatStoppedIsKept(t *testing.T) {
	prompt := tiny.Prompt(20, 256)
	free, _ := enginetest.Generate(t, open(t, engine.Config{PrefillChunk: 512}), prompt, greedy(12))
	e := open(t, engine.Config{PrefillChunk: 512, PrefixBytes: 1 << 30})
	start := greedy(12)
	start.StopTokenIds = []int32{free[5]}
	stopped, _ := enginetest.Generate(t, e, prompt, start)
	require.Less(t, len(stopped), 6)
	next := slices.Concat(prompt, free[:len(stopped)+1], []int32{7, 8, 9})
	_, finish := enginetest.Generate(t, e, next, greedy(2))
	require.GreaterOrEqual(t, int(finish.Usage.CachedTokens), len(prompt)+len(stopped))
}

func TestACancelledRequestLeavesTheNextOneClean(t *testing.T) {
	prompt := tiny.Prompt(60, 256)
	want, _ := enginetest.Generate(t, open(t, engine.Config{PrefillChunk: 512}), prompt, greedy(8))
	e := open(t, engine.Config{PrefillChunk: 8, PrefixBytes: 1 << 30})
	for _, during := range []string{"prefill", "decode"} {
		ctx, cancel := context.WithCancel(context.Background())
		err := e.Generate(ctx, &plugin.GenerateJob{Start: greedy(400), IDs: prompt}, func(r *cladev1.GenerateResponse) error {
			if during == "prefill" && r.GetPrefill().GetDone() > 8 || during == "decode" && r.GetStep() != nil {
				cancel()
			}
			return nil
		})
		cancel()
		require.Equal(t, contract.Cancelled, contract.KindOf(err), "%s: %v", during, err)
		got, _ := enginetest.Generate(t, e, prompt, greedy(8))
		require.Equal(t, want, got, during)
	}
}

// A process that died had states that nobody has any more: the new one makes them of prompt and answer so far.
func TestAStreamResumesWithTheSameTokens(t *testing.T) {
	start := greedy(40)
	start.Sampling.Temperature, start.Sampling.Seed = ptr(1.5), ptr(uint64(99))
	prompt := tiny.Prompt(20, 256)
	whole, _ := enginetest.Generate(t, open(t, engine.Config{PrefillChunk: 64}), prompt, start)
	start.GeneratedPrefix = ptr(uint32(len(prompt)))
	for _, cut := range []int{1, 13, 39} {
		rest, finish := enginetest.Generate(t, open(t, engine.Config{PrefillChunk: 7}), slices.Concat(prompt, whole[:cut]), start)
		require.Equal(t, whole[cut:], rest, "after %d tokens", cut)
		require.True(t, finish.Provenance.Resumed)
	}
}

// States are large: the budget of what is kept holds all the same, and everything is freed with the engine.
func TestTheBudgetOfKeptStatesHolds(t *testing.T) {
	const budget = 400_000
	e := open(t, engine.Config{PrefillChunk: 64, PrefixBytes: budget})
	enginetest.Generate(t, e, []int32{1, 2, 3}, greedy(4))
	base := e.Stats().Memory.ActiveBytes
	for i := range int32(12) {
		prompt := tiny.Prompt(200, 256)
		prompt[0] = i
		enginetest.Generate(t, e, prompt, greedy(4))
		require.LessOrEqual(t, e.Stats().Memory.ActiveBytes, base+budget)
	}
}
