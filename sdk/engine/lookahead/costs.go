package lookahead

import "math/bits"

// smooth is how much of a new measurement an average takes, surprise how far one may be from it and still count in full: a machine
// that does something else for a moment says nothing.
const (
	smooth   = 0.2
	surprise = 0.25
)

// average follows measurements.
type average struct {
	value float64
	count int
}

func (a *average) took(v float64) {
	a.count++
	if a.count <= steady { // the first ones say where it begins: the least of them is the least disturbed
		if a.count == 1 || v < a.value {
			a.value = v
		}
		return
	}
	v = min(max(v, a.value*(1-surprise)), a.value*(1+surprise))
	a.value += smooth * (v - a.value)
}

// plainTimes are the seconds of plain steps, by how many rows decode.
type plainTimes map[int]*average

func (p plainTimes) took(rows int, seconds float64) {
	if p[rows] == nil {
		p[rows] = &average{}
	}
	p[rows].took(seconds)
}

// known reports whether steps of so many rows, or of about as many, have been measured.
func (p plainTimes) known(rows int) bool {
	_, ok := p.nearest(rows)
	return ok
}

// of is how long a step of so many rows takes; 0 when nothing like it has been measured.
func (p plainTimes) of(rows int) float64 {
	at, ok := p.nearest(rows)
	if !ok {
		return 0
	}
	return p[at].value
}

// nearest is the measured number of rows that is nearest to rows, a quarter away at most.
func (p plainTimes) nearest(rows int) (int, bool) {
	for away := 0; away <= rows/4; away++ {
		for _, at := range []int{rows - away, rows + away} {
			if a := p[at]; a != nil && a.count >= steady {
				return at, true
			}
		}
	}
	return 0, false
}

// forget has steps of so many rows be measured again; what is known of them stays the first guess.
func (p plainTimes) forget(rows int) { delete(p, rows) }

// costs are how many plain steps' time a verifying forward takes, by how many rows decode, in powers of two, and drafted tokens.
type costs map[[2]int]*average

// Guesses for what has not been measured: every forward that checks drafts waits for its proposals, and each token adds to it.
const (
	guessedBase  = 0.05
	guessedToken = 0.1
)

func (c costs) took(rows, drafted int, ratio float64) {
	k := [2]int{bits.Len(uint(rows)), drafted}
	if c[k] == nil {
		c[k] = &average{}
	}
	c[k].took(ratio)
}

// ratio is what a forward with so many drafted tokens takes: as measured, else in proportion to the nearest that was.
func (c costs) ratio(rows, drafted int) float64 {
	guess := func(x int) float64 { return guessedBase + guessedToken*float64(x) }
	group := bits.Len(uint(rows))
	for away := range 64 {
		for _, x := range []int{drafted - away, drafted + away} {
			if a := c[[2]int{group, x}]; a != nil && x > 0 {
				return max(1+(a.value-1)*guess(drafted)/guess(x), 0.5)
			}
		}
	}
	return 1 + guess(drafted)
}
