package dense

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

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

func openFailing(t *testing.T, fails func(pass *kv.Pass) bool) *engine.Engine {
	t.Helper()
	k, err := openRuntime(t).Kernels()
	require.NoError(t, err)
	return openWrapped(t, tinyPaths[testModel], weights.Target{DType: mlx.Float32, Kernels: k}, engine.Config{PrefillChunk: 512, Rows: 8, Queue: 32},
		func(m engine.Model) engine.Model { return failing{m, fails} })
}

// ask runs requests at once and returns their ids and errors.
func askAll(e *engine.Engine, all []wish) (ids [][]int32, errs []error) {
	var wg sync.WaitGroup
	ids, errs = make([][]int32, len(all)), make([]error, len(all))
	for i, w := range all {
		wg.Go(func() {
			errs[i] = e.Generate(context.Background(), &plugin.GenerateJob{Start: w.start, IDs: w.prompt}, func(r *cladev1.GenerateResponse) error {
				ids[i] = append(ids[i], r.GetStep().GetIds()...)
				return nil
			})
		})
	}
	wg.Wait()
	return ids, errs
}

func TestARequestThatAlwaysFailsFailsAlone(t *testing.T) {
	const poison = 131 // tokens of its prompt: no other text becomes as long
	e := openFailing(t, func(pass *kv.Pass) bool {
		return slices.ContainsFunc(pass.Segments(), func(g kv.Segment) bool { return g.Cache.Offset()+g.Tokens >= poison })
	})
	all := wishes(t, 16)
	all[5] = wish{prompt: tiny.Prompt(poison, 256), start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(4))}}
	ids, errs := askAll(e, all)
	for i, w := range all {
		if i == 5 {
			require.ErrorContains(t, errs[i], "this forward fails")
			require.Equal(t, contract.Internal, contract.KindOf(errs[i]))
			continue
		}
		require.NoError(t, errs[i])
		require.Equal(t, w.want, ids[i], "request %d", i)
	}
	require.Positive(t, e.Stats().FailedEvaluations)
	require.Zero(t, e.Stats().KvTokensUsed)
}

func TestForwardsThatFailNowAndThenChangeNoToken(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	e := openFailing(t, func(pass *kv.Pass) bool { return len(pass.Segments()) > 1 && rng.IntN(6) == 0 })
	all := wishes(t, 24)
	ids, errs := askAll(e, all)
	for i, w := range all {
		require.NoError(t, errs[i])
		require.Equal(t, w.want, ids[i], "request %d", i)
	}
	require.Greater(t, e.Stats().FailedEvaluations, uint64(2))
}

// Tokens come as often as their probabilities say: chi-square over ids that are expected at least five times, the others together.
func TestSampledTokensHaveTheirProbabilities(t *testing.T) {
	const draws, temperature = 4000, 1.3
	e := openConfig(t, tinyPaths[testModel], engine.Config{PrefillChunk: 64, Rows: 32, Queue: draws})
	prompt := tiny.Prompt(11, 256)
	row := logits(t, e, prompt)[len(prompt)-1]
	scaled := make([]float64, len(row))
	for i, v := range row {
		scaled[i] = float64(v) / temperature
	}
	probs := probabilities(scaled)
	all := make([]wish, draws)
	for i := range all {
		all[i] = wish{prompt: prompt, start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(1)), Choice: ptr(uint32(i % 4)), Sampling: &cladev1.Sampling{
			Temperature: ptr(temperature), Seed: ptr(uint64(i / 4)), IgnoreEos: ptr(true),
		}}}
	}
	ids, errs := askAll(e, all)
	seen := make([]float64, len(probs))
	for i := range ids {
		require.NoError(t, errs[i])
		seen[ids[i][0]]++
	}
	requireAsLikely(t, seen, probs, draws)
}

// requireAsLikely is the chi-square test of counts.
func requireAsLikely(t *testing.T, seen, probs []float64, draws int) {
	t.Helper()
	sum, bins, restSeen, restWanted := 0.0, 0, 0.0, 0.0
	for id, p := range probs {
		if want := p * float64(draws); want >= 5 {
			sum += (seen[id] - want) * (seen[id] - want) / want
			bins++
		} else {
			restSeen, restWanted = restSeen+seen[id], restWanted+want
		}
	}
	if restWanted > 0 {
		sum += (restSeen - restWanted) * (restSeen - restWanted) / restWanted
		bins++
	}
	free := float64(bins - 1)
	t.Logf("chi-square %.1f with %d degrees of freedom", sum, bins-1)
	require.Less(t, math.Abs(sum-free), 4*math.Sqrt(2*free), fmt.Sprintf("%d bins", bins))
}

// evens is a constraint that lets even ids through, ten of them.
type evens struct {
	vocab, left int
	committed   []int32
}

func (c *evens) Mask(dst []uint32) error {
	for id := 0; id < c.vocab; id += 2 {
		dst[id/32] |= 1 << (id % 32)
	}
	return nil
}

func (c *evens) Commit(id int32) error {
	c.committed, c.left = append(c.committed, id), c.left-1
	return nil
}
func (c *evens) Done() bool { return c.left == 0 }
func (c *evens) Close()     {}

func TestAConstraintNarrowsItsOwnRequestAlone(t *testing.T) {
	e := openConfig(t, tinyPaths[testModel], engine.Config{PrefillChunk: 64, Rows: 8, Queue: 32, Constraints: func(*cladev1.Constraint) (engine.Constraint, error) {
		return &evens{vocab: 256, left: 10}, nil
	}})
	all := wishes(t, 8)
	all[3] = wish{prompt: tiny.Prompt(9, 256), start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(40)), Constraint: &cladev1.Constraint{}, Sampling: &cladev1.Sampling{
		Temperature: ptr(2.0), Seed: ptr(uint64(1)), IgnoreEos: ptr(true),
	}}}
	ids, errs := askAll(e, all)
	for i, w := range all {
		require.NoError(t, errs[i])
		if i != 3 {
			require.Equal(t, w.want, ids[i])
			continue
		}
		require.Len(t, ids[i], 10, "it is done then")
		for _, id := range ids[i] {
			require.Zero(t, id%2)
		}
	}
}
