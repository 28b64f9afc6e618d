package lookahead

import (
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// margin is what drafting must promise over plain steps: estimates are noisy.
	margin = 1.05
	// trialDepth is how many tokens a trial drafts at most, where no more rows decode.
	trialDepth = 3
	// earlyTrial is how many plain steps come before the first trial that rows pay for, firstTrial and lastTrial bound those between
	// trials; they double from one that lost to the next.
	earlyTrial, firstTrial, lastTrial = 16, 64, 8192
	// firstProbation and lastProbation bound the prompts between those that a drafter which lost follows all the same.
	firstProbation, lastProbation = 8, 512
	// steady is how many plain steps must have been measured before anything is compared to them, and again after stale rounds.
	steady, stale = 4, 128
	// The chance of a draft of which nothing is known: of one that costs something, which somebody chose for the model; of one that
	// costs nothing, which is seen before it is used.
	unknown, unseen = 0.7, 0.2
	// hiccup is how many times what was expected a measured forward counts for at most: the machine did something else.
	hiccup = 2
)

// Drafter is what is known of one before it drafts.
type Drafter struct {
	// Tokens is how many it drafts in one forward at most, for all rows, Depth for one.
	Tokens, Depth int
	// Step is what a token that it drafts takes, in plain steps of the model; 0: next to nothing, or nobody knows.
	Step float64
	// Free: what it would propose costs nothing to know, so that Seen tells of drafts that were not made.
	Free bool
}

// Prospect is a row that decodes and could be drafted for.
type Prospect struct {
	Row *Row
	// Most is how many tokens would be proposed for it.
	Most int
	// Class is how sure the drafter is of them, as far as it knows: acceptance is counted for each apart.
	Class int
	// Lag is how many tokens the drafter takes in before it proposes.
	Lag int
}

// Value is what is known of drafting on one engine. It is for one goroutine.
type Value struct {
	Drafter
	plain plainTimes
	costs costs
	odds  odds
	fund  fund

	tried   bool // the round that was planned last is a trial
	waited  int  // plain steps since the last trial
	between int  // plain steps before the next trial
	rounds  int  // of drafting since plain steps were measured

	prompts   int // that nothing followed since it stopped being worth it
	probation int // how many until one is
}

// NewValue makes a Value of a drafter.
func NewValue(d Drafter) *Value {
	return &Value{Drafter: d, plain: plainTimes{}, costs: newCosts(d.Step), odds: odds{}, between: earlyTrial, probation: firstProbation}
}

func (v *Value) guess() float64 {
	if v.Free {
		return unseen
	}
	return unknown
}

// chance of a draft of a class: in the row's text where that is known, else in all.
func (v *Value) chance(p Prospect) float64 {
	if t := p.Row.odds[p.Class]; t != nil {
		return t.chance
	}
	return v.overall(p.Class)
}

func (v *Value) overall(class int) float64 {
	if t := v.odds[class]; t != nil {
		return t.chance
	}
	return v.guess()
}

// Hopeless reports whether drafting for so many rows could not win even if every draft were right, as far as its cost is known.
func (v *Value) Hopeless(rows int) bool {
	return v.alike(rows, func(int) float64 { return 1 }, v.costs.surely) < margin
}

// Promising reports whether a row alone is likely to gain, by what is known of all rows.
func (v *Value) Promising() bool {
	return v.Free || v.alike(1, v.overall, v.costs.round) >= margin
}

// Parked is why nothing is drafted for a row alone, but for trials; empty while that promises something.
func (v *Value) Parked() string {
	switch {
	case v.Hopeless(1):
		return fmt.Sprintf("a token drafted and checked takes %.2f of the model's own step: it would lose if it were always right", v.costs.surely(1, shape{drafted: 1, depth: 1})-1)
	case !v.Promising():
		return fmt.Sprintf("%.0f %% of drafts were right, too few for what they take", 100*v.overall(0))
	}
	return ""
}

// alike is the best rate of rows that are drafted for alike, in plain decoding's.
func (v *Value) alike(rows int, chance func(class int) float64, cost func(rows int, r shape) float64) float64 {
	top, gain, next := 0.0, 0.0, 1.0
	for n := 1; n <= v.Depth; n++ {
		next *= chance(0)
		drafted := min(n*rows, v.Tokens)
		gain += next * float64(drafted-(n-1)*rows) / float64(rows)
		top = max(top, (1+gain)/cost(rows, shape{drafted: drafted, depth: n}))
		if drafted < n*rows {
			break
		}
	}
	return top
}

// Follows reports whether a drafter that takes prompts in should take in that of a row that begins: while drafting promises something,
// and else at intervals that double.
func (v *Value) Follows() bool {
	switch {
	case v.Hopeless(1):
		return false
	case v.Promising(), len(v.odds) == 0:
		return true
	}
	if v.prompts++; v.prompts < v.probation {
		return false
	}
	v.prompts, v.probation = 0, min(2*v.probation, lastProbation)
	return true
}

// Depths says how many tokens to draft for each of the rows that decode together, all zero where plain steps are better.
// ahead is how many tokens each row is ahead of what the prospects were made from: they must be guessed right too.
func (v *Value) Depths(rows []Prospect, ahead int) []int {
	out := make([]int, len(rows))
	v.tried = false
	proposed := slices.ContainsFunc(rows, func(p Prospect) bool { return p.Most > 0 })
	if !proposed || !v.plain.known(len(rows)) || v.rounds >= stale || v.Hopeless(len(rows)) {
		return out
	}
	if v.best(rows, ahead, out) < margin {
		clear(out)
		v.trial(rows, ahead, out)
	}
	return out
}

// best fills depths with those that give the most tokens a second, of those that every row can afford, and returns how many times
// plain steps' rate that is.
func (v *Value) best(rows []Prospect, ahead int, depths []int) float64 {
	b, top := float64(len(rows)), 1.0
	for _, order := range []order{likeliest, even} {
		v.spread(rows, ahead, order, func(p planned) bool {
			took := v.costs.round(len(rows), p.shape)
			if rate := (b + p.gain) / b / took; rate > top && v.affords(rows, took, p.limit(took)) {
				top = rate
				copy(depths, p.depths)
			}
			return p.drafted < v.Tokens
		})
		if top >= margin || len(rows) == 1 {
			break
		}
	}
	return top
}

// trial fills depths with a round that every row's purse pays even if no draft is right, once in a while. Of drafts that are seen anyway
// nothing but the cost can be learned: they must promise something.
func (v *Value) trial(rows []Prospect, ahead int, depths []int) {
	limit := nothing
	switch {
	case len(v.odds) == 0 && !v.Free: // the one trial that is granted
		limit = func(int) float64 { return overdraft }
	case v.waited < v.between:
		return
	}
	v.spread(rows, ahead, likeliest, func(p planned) bool {
		if b := float64(len(rows)); v.Free && (b+p.gain)/b < margin*v.costs.surely(len(rows), p.shape) {
			return p.drafted < v.Tokens
		}
		if !v.affords(rows, v.costs.round(len(rows), p.shape), limit) {
			return false
		}
		v.tried = true
		copy(depths, p.depths)
		return p.drafted < max(trialDepth, len(rows)) && p.drafted < v.Tokens
	})
}

// affords reports whether every row may lose what a round of took plain steps takes where no draft is right.
func (v *Value) affords(rows []Prospect, took float64, limit func(int) float64) bool {
	step := v.plain.of(len(rows))
	return v.fund.affords(rows, (took-1)*step, step, limit)
}

// planned is a round that could be.
type planned struct {
	shape
	depths []int
	gain   float64   // drafts that should be accepted
	gains  []float64 // those of each row
}

// limit is how many steps deep in debt a row may be for a round that takes so many.
func (p planned) limit(took float64) func(row int) float64 {
	return func(row int) float64 {
		if len(p.gains) > 1 && p.gains[row] >= took-1 {
			return trust
		}
		return overdraft
	}
}

func nothing(int) float64 { return 0 }

// order is which of two rows gets the next draft, by how many they have and how likely that one is accepted.
type order func(depth, otherDepth int, chance, otherChance float64) bool

// likeliest gains most; even lets every row have its part.
func likeliest(_, _ int, chance, other float64) bool { return chance > other }

func even(depth, other int, chance, otherChance float64) bool {
	return depth < other || depth == other && chance > otherChance
}

// spread gives out drafts one by one until more has had enough.
func (v *Value) spread(rows []Prospect, ahead int, before order, more func(planned) bool) {
	next := make([]float64, len(rows)) // the chance that the row's next draft is accepted
	for i, p := range rows {
		next[i] = math.Pow(v.chance(p), float64(ahead+1))
	}
	plan := planned{depths: make([]int, len(rows)), gains: make([]float64, len(rows))}
	for {
		at := -1
		for i, p := range rows {
			if plan.depths[i] < p.Most && (at < 0 || before(plan.depths[i], plan.depths[at], next[i], next[at])) {
				at = i
			}
		}
		if at < 0 {
			return
		}
		if plan.depths[at] == 0 {
			plan.lag = max(plan.lag, rows[at].Lag)
		}
		plan.drafted++
		plan.depths[at]++
		plan.depth = max(plan.depth, plan.depths[at])
		plan.gain += next[at]
		plan.gains[at] += next[at]
		next[at] *= v.chance(rows[at])
		if !more(plan) {
			return
		}
	}
}

// Plain tells how long a step of rows took, from the tokens before to its own.
func (v *Value) Plain(rows []*Row, d time.Duration) {
	if v.rounds >= stale {
		v.rounds = 0
		v.plain.forget(len(rows))
	}
	v.plain.took(len(rows), d.Seconds())
	v.waited++
	step := v.plain.of(len(rows))
	if step == 0 {
		step = d.Seconds()
	}
	v.fund.earn(rows, step, d.Seconds())
}

// Restarted tells how long a plain step took that nothing was queued ahead of, because drafts were expected and none came, with what
// looking for them took.
func (v *Value) Restarted(rows []*Row, d time.Duration) {
	v.waited++
	if step := v.plain.of(len(rows)); step > 0 {
		lost := min(d.Seconds(), hiccup*step) - step
		for _, r := range rows {
			v.fund.settle(r, step, -lost)
		}
	}
}

// Round is a forward that checked drafts, as it came out.
type Round struct {
	Rows                []*Row // all that decoded in it
	Tokens              []int  // that each of them got
	Drafted, Depth, Lag int    // tokens drafted in all, for the row with most, and taken in by the drafter before
	// Proposing lasted until the drafts were there, Checking from then on. Checking is 0 where something else was computed beside.
	Proposing, Checking time.Duration
}

// Verified learns from a round.
func (v *Value) Verified(r Round) {
	step := v.plain.of(len(r.Rows))
	if step == 0 || len(r.Rows) == 0 || r.Drafted == 0 {
		return
	}
	v.rounds++
	proposing, checking := r.Proposing.Seconds(), r.Checking.Seconds()
	expected := step * v.costs.forward(len(r.Rows), r.Drafted, 1)
	if r.Checking > 0 {
		if v.costs.measured(len(r.Rows), r.Drafted) {
			checking = min(checking, hiccup*expected)
		}
		v.costs.checked(len(r.Rows), r.Drafted, r.Checking.Seconds()/step)
	} else {
		checking = expected
	}
	v.costs.proposed(len(r.Rows), r.Depth, r.Lag, proposing/step)
	won := 0.0
	for i, row := range r.Rows {
		gained := step*float64(r.Tokens[i]) - proposing - checking
		v.fund.settle(row, step, gained)
		won += gained
	}
	v.ended(won > 0)
}

// Wasted tells what a proposal took that came to nothing.
func (v *Value) Wasted(rows []*Row, d time.Duration) {
	step := v.plain.of(len(rows))
	for _, r := range rows {
		v.fund.settle(r, step, -d.Seconds())
	}
	v.ended(false)
}

// ended ends a trial.
func (v *Value) ended(won bool) {
	if won {
		v.probation = firstProbation
	}
	if !v.tried {
		return
	}
	v.tried, v.waited = false, 0
	if won {
		v.between = 0
	} else {
		v.between = min(max(firstTrial, 2*v.between), lastTrial)
	}
}

// Accepted tells how a row's drafts of a class did.
func (v *Value) Accepted(row *Row, class, drafted, accepted int) {
	before := v.overall(class)
	v.odds.count(class, drafted, accepted, v.guess(), guessWeight, slow)
	if row.odds == nil {
		row.odds = odds{}
	}
	row.odds.count(class, drafted, accepted, before, knownWeight, quick)
}

// Seen tells whether a draft of a class that was not made would have been accepted.
func (v *Value) Seen(row *Row, class int, right bool) {
	accepted := 0
	if right {
		accepted = 1
	}
	v.Accepted(row, class, 1, accepted)
}

// Arrived tells that a row begins to decode: what a step of one row takes depends on how long its text is.
func (v *Value) Arrived() { v.plain.forget(1) }
