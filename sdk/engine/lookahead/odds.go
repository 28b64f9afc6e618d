package lookahead

// unknown is the chance of a draft of which nothing is known.
const unknown = 0.5

// How soon counts forget: a row's text changes its manner within a page, all rows together more slowly.
const (
	quick = 1.0 / 16
	slow  = 1.0 / 64
)

// Odds counts how often drafts were accepted where the ones before them were, by class. The zero value knows nothing.
type Odds struct {
	classes map[int]*tally
}

// tally is an average that begins as one over two guesses, one right and one wrong.
type tally struct{ chance, weight float64 }

func (o *Odds) chance(class int) (float64, bool) {
	if t := o.classes[class]; t != nil {
		return t.chance, true
	}
	return 0, false
}

// count takes one round's drafts: the accepted ones, and the first that was not.
func (o *Odds) count(class, drafted, accepted int, forgets float64) {
	t := o.classes[class]
	if t == nil {
		if o.classes == nil {
			o.classes = map[int]*tally{}
		}
		t = &tally{unknown, 2}
		o.classes[class] = t
	}
	for i := range min(drafted, accepted+1) {
		right := 0.0
		if i < accepted {
			right = 1
		}
		t.weight++
		t.chance += (right - t.chance) * max(forgets, 1/t.weight)
	}
}
