package engine

import (
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// twoModel drafts with a model of its own over the same tokens. It keeps a cache for each text, which follows the text by itself:
// whatever became of its drafts, the cache goes back to where it agrees with the text.
type twoModel struct {
	model   Model
	layout  Layout
	kernels bool // its attention is the kernel's
	chunk   int  // most tokens of one forward
}

// NewTwoModel makes a Drafter of a model of that layout, which it takes over. Prompts run through it chunk tokens at a time.
func NewTwoModel(model Model, layout Layout, kernels bool, chunk int) Drafter {
	return &twoModel{model: model, layout: layout, kernels: kernels, chunk: max(chunk, 1)}
}

// fed is what of a text is in the draft's cache.
type fed struct {
	cache *kv.Cache
	ids   []int32
	deaf  bool // the text holds tokens that the draft has not
}

func (f *fed) Close() { f.cache.Close() }

func (d *twoModel) Kind() string { return twoModelKind }

func (d *twoModel) Close() { d.model.Close() }

// Expects as many as are wanted: how likely they are right shows in how often they were.
func (d *twoModel) Expects(t *Text, _, most int) (tokens, class int) {
	if f, ok := t.State.(*fed); ok && f.deaf {
		return 0, 0
	}
	return most, 0
}

// agrees is how many of a text's tokens are in the cache, the last one aside: that is computed for what follows it.
func (f *fed) agrees(ids []int32) int {
	same := 0
	for same < len(f.ids) && same < len(ids)-1 && f.ids[same] == ids[same] {
		same++
	}
	return same
}

// Behind counts the tokens that a proposal would take in first.
func (d *twoModel) Behind(t *Text) int {
	ids := t.IDs()
	if f, ok := t.State.(*fed); ok {
		return len(ids) - f.agrees(ids)
	}
	return len(ids)
}

// of is what is kept of a text, its cache taken back to where it agrees with it.
func (d *twoModel) of(t *Text) *fed {
	f, ok := t.State.(*fed)
	if !ok {
		f = &fed{cache: kv.New(d.layout.Caches, d.kernels)}
		t.State = f
	}
	if same := f.agrees(t.IDs()); same < len(f.ids) {
		f.ids = f.ids[:f.cache.Rewind(same)]
	}
	return f
}

// next is at most chunk of the text's tokens that are not in the cache.
func (d *twoModel) next(t *Text, f *fed) []int32 {
	rest := t.IDs()[len(f.ids):]
	rest = rest[:min(len(rest), d.chunk)]
	for _, id := range rest {
		if int(id) >= d.layout.Vocab { // MLX does not check indices
			f.deaf = true
			return nil
		}
	}
	return rest
}

// Follow runs a prompt through the draft beside the target, so that drafting begins with the answer: what the target's own cache had
// already, too, so that decoding never waits for it. The answer's tokens wait for Propose.
func (d *twoModel) Follow(s *mlx.Scope, t *Text, first int, hidden *mlx.Array) []*mlx.Array {
	if first >= t.row.prompt {
		return nil
	}
	f, end := d.of(t), first+hidden.Dim(1) // no further than the target
	for len(f.ids) < end {
		rest := d.next(t, f)
		rest = rest[:min(len(rest), end-len(f.ids))]
		if len(rest) == 0 {
			return nil
		}
		d.take(s, f, rest)
		if len(f.ids) < end {
			s.Sweep() // a chunk's activations are freed as it is computed: the plan has room for one
			if s.Eval(f.cache.Arrays()...) != nil {
				return nil
			}
		}
	}
	return f.cache.Arrays()
}

// take computes tokens that no draft follows yet.
func (d *twoModel) take(s *mlx.Scope, f *fed, ids []int32) {
	pass := f.cache.Begin(len(ids))
	d.model.Forward(s, mlx.FromSlice(s, ids, 1, len(ids)), pass)
	pass.End()
	f.ids = append(f.ids, ids...)
}

// Propose draws token after token, as the target would with the draft's logits. A text that is more than a chunk ahead of the cache
// gets no drafts until it has caught up.
func (d *twoModel) Propose(s *mlx.Scope, r *Round) error {
	var asks []*Ask
	var fresh [][]int32
	var behind []*mlx.Array
	for _, a := range r.Asks {
		f := d.of(a.Text)
		rest := d.next(a.Text, f)
		switch {
		case f.deaf:
		case len(f.ids)+len(rest) < len(a.IDs()):
			d.take(s, f, rest)
			behind = append(behind, f.cache.Arrays()...)
		default:
			asks, fresh = append(asks, a), append(fresh, rest)
		}
	}
	if err := s.Eval(behind...); err != nil || len(asks) == 0 {
		return err
	}
	first := asks
	logits := d.begin(s, asks, fresh)
	for depth := 1; ; depth++ {
		tokens := r.Pick(s, logits, asks)
		var on []*Ask
		var places []int32
		for i, a := range asks {
			if a.Most > depth {
				on, places = append(on, a), append(places, int32(i))
			}
		}
		if len(on) == 0 {
			break
		}
		if len(on) < len(asks) {
			tokens = s.Take(tokens, mlx.FromSlice(s, places), 0)
		}
		asks = on
		logits = d.step(s, asks, tokens)
	}
	if err := r.Picked(s); err != nil {
		return err
	}
	for _, a := range first {
		f := a.State.(*fed)
		f.ids = append(f.ids, a.Drafts[:len(a.Drafts)-1]...) // the last one went nowhere
	}
	return nil
}

// begin feeds what is new of each text and returns the logits behind the texts, [asks, vocab]. Where a cache can go back to is
// behind the text.
func (d *twoModel) begin(s *mlx.Scope, asks []*Ask, fresh [][]int32) *mlx.Array {
	segments := make([]kv.Segment, len(asks))
	var ids, last []int32
	for i, a := range asks {
		f := a.State.(*fed)
		segments[i] = kv.Segment{Cache: f.cache, Tokens: len(fresh[i])}
		f.ids = append(f.ids, fresh[i]...)
		ids = append(ids, fresh[i]...)
		last = append(last, int32(len(ids)-1))
	}
	pass := kv.Begin(segments...)
	hidden := d.model.Forward(s, mlx.FromSlice(s, ids, 1, len(ids)), pass)
	pass.End()
	for _, a := range asks {
		a.State.(*fed).cache.Mark()
	}
	if len(last) < len(ids) {
		hidden = s.Take(hidden, mlx.FromSlice(s, last), 1)
	}
	return s.Reshape(d.model.Unembed(s, hidden), len(asks), d.layout.Vocab)
}

// step feeds one picked token of each text, int32 [asks], which need not be read.
func (d *twoModel) step(s *mlx.Scope, asks []*Ask, tokens *mlx.Array) *mlx.Array {
	segments := make([]kv.Segment, len(asks))
	for i, a := range asks {
		segments[i] = kv.Segment{Cache: a.State.(*fed).cache, Tokens: 1}
	}
	pass := kv.Begin(segments...)
	hidden := d.model.Forward(s, s.Reshape(tokens, 1, len(asks)), pass)
	pass.End()
	return s.Reshape(d.model.Unembed(s, hidden), len(asks), d.layout.Vocab)
}
