package lookahead

import (
	"math"
	"time"
)

const (
	// earned is the share of plain decoding's time that trials of drafts may cost.
	earned = 0.015
	// purse is how many plain steps' time may lie there at most, unspent.
	purse = 2
	// overdraft is how many plain steps' time drafts that paid until now may lose before they are parked.
	overdraft = 2
	// margin is what drafting must promise over plain steps: estimates are noisy.
	margin = 1.05
	// trialDepth is how many tokens a trial drafts, unless more rows than that decode.
	trialDepth = 3
	// firstTrial and lastTrial bound the plain steps between trials; they double from one that lost to the next.
	firstTrial, lastTrial = 16, 1024
	// steady is how many plain steps must have been measured before anything is compared to them, and again after stale rounds.
	steady, stale = 4, 64
)

// Prospect is a row that could be drafted for.
type Prospect struct {
	// Most is how many tokens would be proposed for it.
	Most int
	// Class is how sure the drafter is of them, as far as it knows: acceptance is counted for each apart.
	Class int
	// Odds are the row's own; nil until it has been drafted for.
	Odds *Odds
}

// Value is what is known of drafting on one engine. It is for one goroutine.
type Value struct {
	tokens int // drafted in one forward at most
	plain  plainTimes
	costs  costs
	odds   Odds

	credit  float64 // seconds that trials may lose; negative: what drafting lost
	waited  int     // plain steps since the last trial
	between int     // plain steps before the next trial
	tried   bool    // the round that was planned last is a trial
	rounds  int     // of drafting since plain steps were measured
}

// NewValue makes a Value that plans at most tokens drafted tokens a forward.
func NewValue(tokens int) *Value {
	return &Value{tokens: tokens, plain: plainTimes{}, costs: costs{}, between: firstTrial}
}

// Odds of a class: those of the row where it has some.
func (v *Value) chance(p Prospect) float64 {
	if p.Odds != nil {
		if c, ok := p.Odds.chance(p.Class); ok {
			return c
		}
	}
	if c, ok := v.odds.chance(p.Class); ok {
		return c
	}
	return unknown
}

// Depths says how many tokens to draft for each of the rows that decode together, all zero where plain steps are better.
// ahead is how many tokens each row is ahead of what the prospects were made from: they must be guessed right too.
func (v *Value) Depths(rows []Prospect, ahead int) []int {
	out := make([]int, len(rows))
	v.tried = false
	b := len(rows)
	if b == 0 || !v.plain.known(b) || v.rounds >= stale {
		return out
	}
	if rate := v.best(rows, ahead, out); rate >= margin {
		if v.credit > -overdraft*v.plain.of(b) {
			return out
		}
	}
	clear(out)
	n := min(max(trialDepth, b), v.tokens)
	if v.waited < v.between || v.credit < (v.costs.ratio(b, n)-1)*v.plain.of(b) {
		return out
	}
	v.spread(rows, ahead, out, func(x int, _ float64) bool { v.tried = true; return x < n })
	return out
}

// spread gives out drafts one by one, each to the row whose next one is likeliest to be accepted, until more says that x are
// enough, of which gain should be accepted.
func (v *Value) spread(rows []Prospect, ahead int, depths []int, more func(x int, gain float64) bool) {
	next := make([]float64, len(rows)) // the chance that the row's next draft is accepted
	for i, p := range rows {
		next[i] = math.Pow(v.chance(p), float64(ahead+1))
	}
	gain := 0.0
	for x := 1; ; x++ {
		at := -1
		for i, p := range rows {
			if depths[i] < p.Most && (at < 0 || next[i] > next[at]) {
				at = i
			}
		}
		if at < 0 {
			return
		}
		gain += next[at]
		depths[at]++
		next[at] *= v.chance(rows[at])
		if !more(x, gain) {
			return
		}
	}
}

// best fills depths with those that give the most tokens a second and returns how many times plain steps' rate that is.
func (v *Value) best(rows []Prospect, ahead int, depths []int) float64 {
	b, top := float64(len(rows)), 1.0
	at := make([]int, len(rows))
	v.spread(rows, ahead, at, func(x int, gain float64) bool {
		if rate := (b + gain) / b / v.costs.ratio(len(rows), x); rate > top {
			top = rate
			copy(depths, at)
		}
		return x < v.tokens
	})
	return top
}

// Plain tells how long a step of rows decoding rows took, from the tokens before to its own.
func (v *Value) Plain(rows int, d time.Duration) {
	if v.rounds >= stale {
		v.rounds = 0
		v.plain.forget(rows)
	}
	v.plain.took(rows, d.Seconds())
	v.waited++
	v.earn(rows, earned*d.Seconds())
}

// Restarted tells how long a plain step took that nothing was queued ahead of, because drafts were expected and none came.
func (v *Value) Restarted(rows int, d time.Duration) {
	if v.plain.known(rows) {
		v.earn(rows, v.plain.of(rows)-d.Seconds())
	}
	v.waited++
}

// Verified tells how long a forward took that checked drafted tokens for rows, from its proposals to its tokens, and how many
// tokens it gave.
func (v *Value) Verified(rows, drafted, tokens int, d time.Duration) {
	if !v.plain.known(rows) {
		return
	}
	v.rounds++
	plain := v.plain.of(rows)
	gained := plain*float64(tokens)/float64(rows) - d.Seconds()
	v.earn(rows, gained)
	v.costs.took(rows, drafted, d.Seconds()/plain)
	if v.tried {
		v.tried, v.waited = false, 0
		if gained > 0 {
			v.between = 0
		} else {
			v.between = min(max(firstTrial, 2*v.between), lastTrial)
		}
	}
}

// Accepted tells how a row's drafts of a class did.
func (v *Value) Accepted(row *Odds, class, drafted, accepted int) {
	v.odds.count(class, drafted, accepted, slow)
	row.count(class, drafted, accepted, quick)
}

// Arrived tells that a row begins to decode: what a step of one row takes depends on how long its text is.
func (v *Value) Arrived() { v.plain.forget(1) }

// Credit is what trials may cost, in seconds.
func (v *Value) Credit() float64 { return v.credit }

func (v *Value) earn(rows int, seconds float64) {
	v.credit = min(v.credit+seconds, purse*v.plain.of(rows))
}
