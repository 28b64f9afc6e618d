package engine

import (
	"github.com/clademl/clade/sdk/engine/lookahead"
	"github.com/clademl/clade/sdk/mlx"
)

// ngram proposes what followed, earlier in the text itself, the longest end that stood there already.
type ngram struct{}

// Ngram makes the Drafter that needs no model.
func Ngram() Drafter { return ngram{} }

func (ngram) Kind() string { return ngramKind }

// Expects classes drafts by how long the recurring end is.
func (ngram) Expects(t *Text, ahead, most int) (tokens, class int) {
	following, length := lookahead.Lookup(t.IDs())
	return max(0, min(most, len(following)-ahead)), length
}

func (ngram) Propose(_ *mlx.Scope, r *Round) error {
	for _, a := range r.Asks {
		following, _ := lookahead.Lookup(a.IDs())
		a.Drafts = append(a.Drafts, following[:min(a.Most, len(following))]...)
	}
	return nil
}

func (ngram) Close() {}
