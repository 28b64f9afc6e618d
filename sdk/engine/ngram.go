package engine

import (
	"github.com/clademl/clade/sdk/engine/lookahead"
	"github.com/clademl/clade/sdk/mlx"
)

// ngram proposes what followed, earlier in the text itself, the longest end that stood there already.
type ngram struct{}

// Ngram makes the Drafter that needs no model.
func Ngram() Drafter { return ngram{} }

// found is what was looked up behind so many tokens of a text.
type found struct {
	tokens    int
	following []int32
	length    int
}

func (*found) Close() {}

// lookup looks a text's end up once for each of its lengths.
func lookup(t *Text) *found {
	f, ok := t.State.(*found)
	if !ok {
		f = &found{tokens: -1}
		t.State = f
	}
	if ids := t.IDs(); f.tokens != len(ids) {
		f.tokens = len(ids)
		f.following, f.length = lookahead.Lookup(ids)
	}
	return f
}

func (ngram) Kind() string { return ngramKind }

// Expects classes drafts by how long the recurring end is.
func (ngram) Expects(t *Text, ahead, most int) (tokens, class int) {
	f := lookup(t)
	return max(0, min(most, len(f.following)-ahead)), f.length
}

func (ngram) Guess(t *Text) (id int32, class int, ok bool) {
	if f := lookup(t); len(f.following) > 0 {
		return f.following[0], f.length, true
	}
	return 0, 0, false
}

func (ngram) Propose(_ *mlx.Scope, r *Round) error {
	for _, a := range r.Asks {
		f := lookup(a.Text)
		a.Drafts = append(a.Drafts, f.following[:min(a.Most, len(f.following))]...)
	}
	return nil
}

func (ngram) Close() {}
