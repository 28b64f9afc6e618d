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

// forget has steps of so many rows be measured again.
func (p plainTimes) forget(rows int) { delete(p, rows) }

// Guesses, in plain steps of one row, for what has not been measured: every forward that checks drafts waits for its proposals, and
// each token adds to it, as each row of a plain step does; a token that the drafter only takes in costs it part of one that it drafts.
const (
	guessedBase  = 0.05
	guessedToken = 0.1
	guessedLag   = 0.2
)

// usualLag is how many tokens a drafter takes in before it proposes where all of its last drafts were right: what that costs is part
// of its step.
const usualLag = 2

// sure is how often a cost must have been measured to rule drafting out.
const sure = 2

// costs are what drafting takes, in plain steps of as many rows.
type costs struct {
	prior float64          // of a drafter's step, before one was measured
	check map[int][]check  // forwards, by how many rows decode in powers of two
	step  map[int]*average // a drafter's step, likewise
	lag   average          // a token taken in
}

// check is what a forward with so many drafted tokens takes.
type check struct {
	drafted int
	took    *average
}

func newCosts(prior float64) costs {
	return costs{prior: prior, check: map[int][]check{}, step: map[int]*average{}}
}

func group(rows int) int { return bits.Len(uint(rows)) }

// of is what was measured of forwards with so many drafted tokens; nil: nothing.
func (c *costs) of(rows, drafted int) *average {
	for _, one := range c.check[group(rows)] {
		if one.drafted == drafted {
			return one.took
		}
	}
	return nil
}

// checked learns from a forward with drafted tokens.
func (c *costs) checked(rows, drafted int, steps float64) {
	a := c.of(rows, drafted)
	if a == nil {
		a = &average{}
		c.check[group(rows)] = append(c.check[group(rows)], check{drafted, a})
	}
	a.took(steps)
}

// proposed learns from a proposal, depth drafter's steps deep.
func (c *costs) proposed(rows, depth, lag int, steps float64) {
	a := c.step[group(rows)]
	if lag = max(0, lag-usualLag); lag > 0 && a != nil {
		c.lag.took(max(0, steps-a.value*float64(depth)) / float64(lag))
		return
	}
	if a == nil { // with a lag it is too much, until one without is measured
		a = &average{}
		c.step[group(rows)] = a
	}
	a.took(steps / float64(depth))
}

// drafter is what a proposal takes.
func (c *costs) drafter(rows, depth, lag, least int) float64 {
	step := c.prior
	if a := c.step[group(rows)]; a != nil && a.count >= least {
		step = a.value
	}
	token := step * guessedLag
	if c.lag.count >= least && c.lag.count > 0 {
		token = c.lag.value
	}
	return step*float64(depth) + token*float64(max(0, lag-usualLag))
}

// forward is what a forward with so many drafted tokens takes: as measured least times or more, else in proportion to the nearest
// that was.
func (c *costs) forward(rows, drafted, least int) float64 {
	guess := func(x int) float64 {
		return guessedBase + guessedToken*float64(x)/(1+guessedToken*float64(rows-1))
	}
	nearest := check{}
	for _, one := range c.check[group(rows)] {
		away, best := abs(one.drafted-drafted), abs(nearest.drafted-drafted)
		if one.took.count >= least && (nearest.took == nil || away < best || away == best && one.drafted < nearest.drafted) {
			nearest = one
		}
	}
	if nearest.took == nil {
		return 1 + guess(drafted)
	}
	return max(1+(nearest.took.value-1)*guess(drafted)/guess(nearest.drafted), 0.5)
}

func abs(n int) int { return max(n, -n) }

// round is what proposing and checking take together.
func (c *costs) round(rows int, r shape) float64 {
	return c.forward(rows, r.drafted, 1) + c.drafter(rows, r.depth, r.lag, 1)
}

// surely is what they take at least, as far as that was measured more than once.
func (c *costs) surely(rows int, r shape) float64 {
	return c.forward(rows, r.drafted, sure) + c.drafter(rows, r.depth, r.lag, sure)
}

// measured reports whether a forward with so many drafts is known well enough to tell a surprise.
func (c *costs) measured(rows, drafted int) bool {
	a := c.of(rows, drafted)
	return a != nil && a.count >= steady
}

// shape is how much is drafted in one forward.
type shape struct {
	drafted int // tokens
	depth   int // of the row with most
	lag     int // tokens that the drafter takes in first
}
