package echo

import (
	"math"
	"slices"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// readConstraint takes the texts of a choice; its tokens are their bytes.
func (m *model) readConstraint(r *request, c *cladev1.Constraint) error {
	if c == nil {
		return nil
	}
	options := c.GetChoice().GetOptions()
	switch {
	case c.GetChoice() == nil || c.CompactWhitespace != nil:
		return contract.Errorf(contract.UnsupportedOption, "constraint", "an echo is held to a choice alone")
	case m.vocab != bytesVocab:
		return contract.Errorf(contract.UnsupportedOption, "constraint", "the model has no texts")
	case len(options) == 0 || slices.Contains(options, ""):
		return invalid("constraint.choice", "want texts, none empty")
	}
	if m.faults.has(IgnoredConstraint) {
		return nil
	}
	for _, o := range options {
		ids := make([]int32, 0, len(o))
		for _, b := range []byte(o) {
			ids = append(ids, int32(b))
		}
		r.choices = append(r.choices, ids)
	}
	if m.faults.has(ForgetfulConstraint) {
		r.heldFrom = len(r.ids)
	} else {
		r.heldFrom = r.prompt
	}
	return nil
}

// forbid rules out, in a row of logits, what none of the texts goes on with.
func (r *request) forbid(row []float64) {
	if r.choices == nil {
		return
	}
	said := r.ids[r.heldFrom:]
	allowed := map[int]bool{}
	for _, c := range r.choices {
		switch {
		case slices.Equal(c, said):
			for _, id := range r.stops {
				allowed[int(id)] = true
			}
		case len(c) > len(said) && slices.Equal(c[:len(said)], said):
			allowed[int(c[len(said)])] = true
		}
	}
	for id := range row {
		if !allowed[id] {
			row[id] = math.Inf(-1)
		}
	}
}
