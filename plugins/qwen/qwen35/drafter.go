package qwen35

import (
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// waitingTokens is how many hidden states of single steps wait until they run through the head together, where no draft is asked for
// before: a head costs a layer's products for one token, and little more for these.
const waitingTokens = 16

// drafter drafts with a head. Entry t of a text's cache is of the hidden state of token t and of token t+1: prompts run through beside
// the model, and what was accepted with the model's own states, in the place of those that the head made up.
type drafter struct {
	kind    string
	head    *MTP
	caches  []kv.Spec
	kernels bool // its attention is the kernel's
}

// followed is what is kept of a text.
type followed struct {
	cache *kv.Cache
	first int // the text's token that is the cache's first
	fed   int // entries that stay: what is behind them was made up
	next  int // the token whose hidden state is expected
	// waiting are hidden states [1, n, H] that lack the token behind them, or company.
	waiting []*mlx.Array
}

func (w *followed) Close() {
	w.cache.Close()
	for _, a := range w.waiting {
		a.Close()
	}
}

func (d *drafter) Kind() string { return d.kind }

func (d *drafter) Close() { d.head.Close() }

// Expects as many as are wanted, of a text that was followed up to its last token but one.
func (d *drafter) Expects(t *engine.Text, ahead, most int) (tokens, class int) {
	if w, ok := t.State.(*followed); !ok || w.next < len(t.IDs())-1+ahead {
		return 0, 0
	}
	return most, 0
}

// Follow keeps the states, and runs them through the head where a chunk of them has come.
func (d *drafter) Follow(s *mlx.Scope, t *engine.Text, first int, hidden *mlx.Array) []*mlx.Array {
	w, ok := t.State.(*followed)
	n := hidden.Dim(1)
	if ok && w.next < first { // not what the engine does: what is in between cannot be made up
		w.Close()
		ok = false
	}
	if !ok {
		w = &followed{cache: kv.New(d.caches, d.kernels), first: first, next: first}
		t.State = w
	}
	known := w.next - first // a recurrent cache went back: these were seen
	if known >= n {
		return nil
	}
	fresh := s.Keep(s.Contiguous(s.SliceAxis(hidden, 1, known, n), false))
	w.waiting, w.next = append(w.waiting, fresh), first+n
	// The last state stays, as its result is what a draft begins with.
	feed := min(len(t.IDs())-1, w.next-1) - (w.first + w.fed)
	if feed < waitingTokens {
		return []*mlx.Array{fresh}
	}
	pass := d.resume(w).Begin(feed)
	ids, states := w.take(s, t.IDs(), feed)
	d.head.Forward(s, mlx.FromSlice(s, ids, 1, feed), states, pass)
	pass.End()
	return append(w.cache.Arrays(), w.waiting...)
}

// resume is a text's cache without what was made up.
func (d *drafter) resume(w *followed) *kv.Cache {
	w.cache.Rewind(w.fed)
	return w.cache
}

// take is the n next entries: the tokens and the states [1, n, H] before them.
func (w *followed) take(s *mlx.Scope, text []int32, n int) (ids []int32, states *mlx.Array) {
	at := w.first + w.fed + 1
	states = s.Concat(1, w.waiting...)
	for _, a := range w.waiting {
		a.Close()
	}
	w.waiting = nil
	if total := states.Dim(1); s.Err() == nil && n < total {
		w.waiting = []*mlx.Array{s.Keep(s.Contiguous(s.SliceAxis(states, 1, n, total), false))}
		states = s.SliceAxis(states, 1, 0, n)
	}
	w.fed += n
	return text[at : at+n], states
}

// Propose draws the token behind each text from the head's state of its last but one, and the next ones from states of the head's own.
func (d *drafter) Propose(s *mlx.Scope, r *engine.Round) error {
	var asks []*engine.Ask
	for _, a := range r.Asks {
		if w, ok := a.State.(*followed); ok && w.next == len(a.IDs())-1 && len(w.waiting) > 0 {
			asks = append(asks, a)
		}
	}
	if len(asks) == 0 {
		return nil
	}
	hidden := d.begin(s, asks)
	for depth := 1; ; depth++ {
		tokens := r.Pick(s, s.Reshape(d.head.Unembed(s, hidden), len(asks), d.head.config.VocabSize), asks)
		on, places := deeper(asks, depth)
		if len(on) == 0 {
			return r.Picked(s)
		}
		if len(on) < len(asks) {
			at := mlx.FromSlice(s, places)
			tokens, hidden = s.Take(tokens, at, 0), s.Take(hidden, at, 1)
		}
		asks = on
		segments := make([]kv.Segment, len(asks))
		for i, a := range asks {
			segments[i] = kv.Segment{Cache: a.State.(*followed).cache, Tokens: 1}
		}
		pass := kv.Begin(segments...)
		hidden = d.head.Forward(s, s.Reshape(tokens, 1, len(asks)), hidden, pass)
		pass.End()
	}
}

// deeper are the asks that want more than depth tokens, and their places.
func deeper(asks []*engine.Ask, depth int) (on []*engine.Ask, places []int32) {
	for i, a := range asks {
		if a.Most > depth {
			on, places = append(on, a), append(places, int32(i))
		}
	}
	return on, places
}

// begin runs what waits through the head and returns the states behind the texts, [1, asks, H].
func (d *drafter) begin(s *mlx.Scope, asks []*engine.Ask) *mlx.Array {
	segments := make([]kv.Segment, len(asks))
	parts := make([]*mlx.Array, len(asks))
	var ids, last []int32
	for i, a := range asks {
		w := a.State.(*followed)
		segments[i] = kv.Segment{Cache: d.resume(w), Tokens: len(a.IDs()) - 1 - (w.first + w.fed)}
		fresh, states := w.take(s, a.IDs(), segments[i].Tokens)
		ids, parts[i] = append(ids, fresh...), states
		last = append(last, int32(len(ids)-1))
	}
	pass := kv.Begin(segments...)
	hidden := d.head.Forward(s, mlx.FromSlice(s, ids, 1, len(ids)), s.Concat(1, parts...), pass)
	pass.End()
	if len(last) < len(ids) {
		hidden = s.Take(hidden, mlx.FromSlice(s, last), 1)
	}
	return hidden
}
