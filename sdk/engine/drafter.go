package engine

import (
	"math"

	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// Drafter proposes tokens behind rows' texts, which the model then checks in one forward: those that it would have picked itself
// are taken. So a Drafter decides how fast tokens come and never which. Its methods run in the engine's loop, those with a scope on
// the worker's thread. An error parks it for good and costs no row anything.
type Drafter interface {
	// Kind is spelled as the contract's Draft has it.
	Kind() string
	// Expects says, computing nothing on the device, how many tokens, most at most, it would propose behind t once t has ahead more
	// tokens, which are on their way, and how sure it is of them: acceptance is counted for each class apart.
	Expects(t *Text, ahead, most int) (tokens, class int)
	// Propose drafts behind the texts of a round.
	Propose(s *mlx.Scope, r *Round) error
	// Close frees what it holds. Every text's State is closed before.
	Close()
}

// Follower is a Drafter that reads what the target computes: heads that continue its hidden states, networks that attend to its
// caches.
type Follower interface {
	Drafter
	// Follow is given the hidden states [1, n, hidden], as the target's Forward returns them, of the text's tokens at positions first
	// to first+n-1, in every forward that computes tokens which stay: prompts in chunks, single steps, and of drafts those that were
	// accepted. Their ids are in t.IDs but for the last one, which may be unread yet. Positions follow one another, but a text whose
	// State is nil may begin anywhere (what came before was taken from the prefix cache, or its caches were lost), and positions may come
	// again that were seen (a recurrent cache goes back and computes them once more). What Follow returns is evaluated with
	// the forward; arrays that outlive it are kept by the State.
	Follow(s *mlx.Scope, t *Text, first int, hidden *mlx.Array) []*mlx.Array
}

// Free is a Drafter whose proposals cost nothing to know, so that they are seen to be right or wrong before any is checked.
type Free interface {
	Drafter
	// Guess is the first token that it would propose behind t, and its class; false for none.
	Guess(t *Text) (id int32, class int, ok bool)
}

// Behind is a Drafter that takes a text in before it proposes, which costs it something.
type Behind interface {
	Drafter
	// Behind is how many of the text's tokens it has not taken in.
	Behind(t *Text) int
}

// State is what a Drafter keeps of one text. Close runs on the worker's thread, when the row ends or its caches are lost.
type State interface{ Close() }

// Text is a row as a Drafter sees it.
type Text struct {
	// State is the Drafter's own; nil until it sets one.
	State State

	row *row
}

// IDs are the tokens of prompt and answer that are known. They are only read, and change between calls by growing.
func (t *Text) IDs() []int32 { return t.row.ids }

// Cache is the target's, for networks that attend to it: when drafts are proposed it holds every token but the last. They add
// nothing to it.
func (t *Text) Cache() *kv.Cache { return t.row.cache }

// Ask is a text that drafts are wanted for.
type Ask struct {
	*Text
	// Most is how many at most.
	Most int
	// Drafts is what is proposed; more than Most are cut, ids outside the vocabulary end them.
	Drafts []int32

	class int
	draw  draw // as the row's next token is drawn, without mask and log probabilities
}

// Round is the texts of one forward that drafts are wanted for.
type Round struct {
	Asks []*Ask

	engine *Engine
	picked []picked
}

// picked are tokens that are not read yet.
type picked struct {
	asks   []*Ask
	tokens *mlx.Array
}

// Pick draws for each of asks the token behind its text and what was picked in this round before, from logits [len(asks), n]: with
// the row's settings, at the place where the target will draw, with the same noise. Where two models agree on the probabilities,
// they agree on the token. It returns the ids, int32 [len(asks)], unread.
func (r *Round) Pick(s *mlx.Scope, logits *mlx.Array, asks []*Ask) *mlx.Array {
	logits = r.engine.fitVocab(s, logits)
	draws := make([]*draw, len(asks))
	for i, a := range asks {
		draws[i] = &a.draw
	}
	tokens := r.engine.sample(s, s.AsType(logits, mlx.Float32), draws).tokens
	r.picked = append(r.picked, picked{asks, tokens})
	penalized := false
	for _, a := range asks {
		penalized = penalized || a.draw.gen.sampling.looksBack()
	}
	if penalized {
		_ = r.read(s)
		return tokens
	}
	for _, a := range asks { // only the number of tokens matters
		a.draw.history = append(a.draw.history, 0)
	}
	return tokens
}

// Picked makes drafts of what was picked.
func (r *Round) Picked(s *mlx.Scope) error { return r.read(s) }

func (r *Round) read(s *mlx.Scope) error {
	for _, p := range r.picked {
		ids, err := mlx.ToSlice[int32](s, p.tokens)
		if err != nil {
			return err
		}
		for i, a := range p.asks {
			a.Drafts = append(a.Drafts, ids[i])
			a.draw.history = append(a.draw.history[:len(a.IDs())+len(a.Drafts)-1], ids[i])
		}
	}
	r.picked = nil
	return nil
}

// fitVocab gives logits [n, any] the target's width: what a wider network has beyond never comes, nor does what a narrower one lacks.
func (e *Engine) fitVocab(s *mlx.Scope, logits *mlx.Array) *mlx.Array {
	switch width := logits.Dim(1); {
	case s.Err() != nil || width == e.layout.Vocab:
		return logits
	case width > e.layout.Vocab:
		return s.SliceAxis(logits, 1, 0, e.layout.Vocab)
	default:
		lacking := s.Full([]int{logits.Dim(0), e.layout.Vocab - width}, s.Scalar(math.Inf(-1), mlx.Float32), mlx.Float32)
		return s.Concat(1, s.AsType(logits, mlx.Float32), lacking)
	}
}
