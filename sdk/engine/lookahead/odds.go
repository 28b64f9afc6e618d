package lookahead

// How soon counts forget: a row's text changes its manner within a page, all rows together more slowly.
const (
	quick = 1.0 / 16
	slow  = 1.0 / 64
)

// How many drafts a first guess counts as: what is thought of a drafter that is not known, and what is known of all rows for one.
const (
	guessWeight = 1
	knownWeight = 3
)

// odds count how often drafts were accepted where the ones before them were, by class.
type odds map[int]*tally

// tally is an average that begins as a guess.
type tally struct{ chance, weight float64 }

// count takes one round's drafts: the accepted ones, and the first that was not. guess is what the
// class begins with, weight what that counts.
func (o odds) count(class, drafted, accepted int, guess, weight, forgets float64) {
	t := o[class]
	if t == nil {
		t = &tally{guess, weight}
		o[class] = t
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
