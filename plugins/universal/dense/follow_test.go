package dense

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// watcher is a head as a plugin writes one: it keeps what the target's hidden states say comes next, and drafts one token of it and
// then what it likes. What it saw must be every token of the text, in order, as the target computed it.
type watcher struct {
	target engine.Model
	wrong  atomic.Int64 // hidden states that predict another token than the one that came
	right  atomic.Int64
	gaps   atomic.Int64
	fails  bool // in its own graph
}

type watched struct {
	next  []*mlx.Array // int32 [n] each: what the states of n tokens say comes behind each
	seen  int          // tokens
	begun int
}

func (w *watched) Close() {
	for _, a := range w.next {
		a.Close()
	}
}

func (*watcher) Kind() string                                            { return "test" }
func (*watcher) Close()                                                  {}
func (*watcher) Expects(_ *engine.Text, _, most int) (tokens, class int) { return most, 0 }

func (f *watcher) Follow(s *mlx.Scope, t *engine.Text, first int, hidden *mlx.Array) []*mlx.Array {
	w, ok := t.State.(*watched)
	if !ok {
		w = &watched{seen: first, begun: first}
		t.State = w
	}
	if first != w.seen {
		f.gaps.Add(1)
	}
	if f.fails {
		_ = s.Add(mlx.FromSlice(s, []float32{1, 2}, 2), mlx.FromSlice(s, []float32{1, 2, 3}, 3))
		return nil
	}
	n := hidden.Dim(1)
	w.seen = first + n
	next := s.Keep(s.AsType(s.Reshape(s.Argmax(f.target.Unembed(s, hidden), 2, false), n), mlx.Int32))
	w.next = append(w.next, next)
	return []*mlx.Array{next}
}

func (f *watcher) Propose(s *mlx.Scope, r *engine.Round) error {
	for _, a := range r.Asks {
		w, ids := a.State.(*watched), a.IDs()
		at := w.begun
		for _, next := range w.next {
			said, err := mlx.ToSlice[int32](s, next)
			if err != nil {
				return err
			}
			for _, id := range said {
				if at++; at >= len(ids)-1 || id == ids[at] {
					f.right.Add(1)
				} else if at > 60 { // of the answer, which is greedy
					f.wrong.Add(1)
				}
			}
		}
		if w.seen != len(ids)-1 {
			f.gaps.Add(1)
		}
		a.Drafts = []int32{ids[len(ids)-1], 5, ids[0], 7} // sometimes right
	}
	return nil
}

// A head sees the hidden states of exactly the tokens that stay, accepted drafts among them and rejected ones not.
func TestAFollowerSeesTheStatesOfEveryTokenThatStays(t *testing.T) {
	all := wishes(t, 12)
	f := &watcher{}
	for i := range all {
		all[i].start = &cladev1.GenerateStart{MaxTokens: ptr(uint32(60)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
		all[i].prompt = tiny.Prompt(60, 256)
		all[i].prompt[0] = int32(i)
	}
	plain := open(t, tinyPaths[testModel], mlx.Float32, 64)
	for i, w := range all {
		all[i].want = generate(t, plain, w.prompt, w.start).ids
	}
	e := openWith(t, engine.Speculation{Drafter: f, Depth: 4, Always: true}, func(m engine.Model) engine.Model { f.target = m; return m })
	ids, errs := askAll(e, all)
	for i, w := range all {
		require.NoError(t, errs[i])
		require.Equal(t, w.want, ids[i])
	}
	require.Positive(t, e.Stats().AcceptedTokens)
	require.Zero(t, f.gaps.Load())
	require.Zero(t, f.wrong.Load())
	require.Greater(t, f.right.Load(), int64(12*60))
}

// An error in a head's graph is the head's: the forward that it stood in is good, and no row is computed again.
func TestAFollowerThatFailsIsParkedAndNoForwardFails(t *testing.T) {
	all := wishes(t, 8)
	f := &watcher{fails: true}
	e := openWith(t, engine.Speculation{Drafter: f, Depth: 4, Always: true}, func(m engine.Model) engine.Model { f.target = m; return m })
	ids, errs := askAll(e, all)
	for i, w := range all {
		require.NoError(t, errs[i])
		require.Equal(t, w.want, ids[i])
	}
	require.Zero(t, e.Stats().FailedEvaluations)
	require.Zero(t, e.Stats().DraftedTokens)
	require.Empty(t, e.Stats().DraftKind)
}
