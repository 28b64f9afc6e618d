package lookahead

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const stepTime = 10 * time.Millisecond

// machine is a clock of its own: what forwards cost is a function, and nothing waits.
type machine struct {
	plain  func(rows int) time.Duration
	check  func(rows, drafted int) time.Duration // beyond a plain step
	step   time.Duration                         // of the drafter
	lag    time.Duration                         // of a token that it takes in
	breaks time.Duration                         // that a plain step lasts longer behind drafts
	right  func(row, token int) bool             // whether the row's draft for its token is
	free   bool
	prior  float64 // what the drafter says of its step, in plain ones
	noise  float64
	none   func(row, token int) bool // whether nothing can be proposed
	rng    *rand.Rand
}

func ten(int) time.Duration { return stepTime }

func dear(base, token time.Duration) func(int, int) time.Duration {
	return func(_, drafted int) time.Duration { return base + time.Duration(drafted)*token }
}

// answer is one row's decoding.
type answer struct {
	Row
	tokens, lag int
	took, plain time.Duration // with drafts, and what its tokens take in plain steps
	drafted     int
	worst       time.Duration // lost in one round
}

// rate is how many times plain decoding's it was.
func (a *answer) rate() float64 { return float64(a.plain) / float64(a.took) }

// answers decodes rows together until each has its tokens, and the first of them as many.
func (m machine) answers(v *Value, rows, tokens int) []*answer {
	all := make([]*answer, rows)
	for i := range all {
		all[i] = &answer{}
		if i == 0 {
			v.Arrived()
		}
	}
	broke := false
	for all[0].tokens < tokens {
		broke = m.turn(v, all, broke)
	}
	return all
}

func (m machine) spread(d time.Duration) time.Duration {
	if m.noise == 0 {
		return d
	}
	return time.Duration(float64(d) * (1 + m.noise*(m.rng.Float64()-0.5)))
}

// turn is one forward of all rows; true where it drafted.
func (m machine) turn(v *Value, all []*answer, broke bool) bool {
	prospects, rows := make([]Prospect, len(all)), make([]*Row, len(all))
	for i, a := range all {
		rows[i], prospects[i] = &a.Row, Prospect{Row: &a.Row, Most: v.Depth, Lag: a.lag}
		if m.none != nil && m.none(i, a.tokens) {
			prospects[i].Most = 0
		}
	}
	round := Round{Rows: rows, Tokens: make([]int, len(all))}
	for i, n := range v.Depths(prospects, 0) {
		accepted := 0
		for accepted < n && m.right(i, all[i].tokens+accepted) {
			accepted++
		}
		if n > 0 {
			v.Accepted(rows[i], 0, n, accepted)
			round.Drafted, round.Depth, round.Lag = round.Drafted+n, max(round.Depth, n), max(round.Lag, all[i].lag)
			all[i].drafted, all[i].lag = all[i].drafted+n, -1
		}
		round.Tokens[i] = 1 + accepted
	}
	d := m.spread(m.plain(len(all)))
	plain := d
	switch {
	case round.Drafted > 0:
		round.Proposing = m.spread(time.Duration(round.Depth)*m.step + time.Duration(max(0, round.Lag-usualLag))*m.lag)
		round.Checking = d + m.spread(m.check(len(all), round.Drafted))
		d = round.Proposing + round.Checking
		v.Verified(round)
	case broke:
		d += m.breaks
		v.Restarted(rows, d)
	default:
		v.Plain(rows, d)
	}
	for i, a := range all {
		if v.Free && round.Drafted == 0 && prospects[i].Most > 0 {
			v.Seen(&a.Row, 0, m.right(i, a.tokens))
		}
		a.lag++
		a.tokens += round.Tokens[i]
		a.took += d
		gained := time.Duration(round.Tokens[i]) * plain
		a.plain += gained
		a.worst = max(a.worst, d-gained)
	}
	return round.Drafted > 0
}

func (m machine) value(tokens, depth int) *Value {
	return NewValue(Drafter{Tokens: tokens, Depth: depth, Step: m.prior, Free: m.free})
}

// chance has drafts be right so often.
func chance(p float64) func(int, int) bool {
	rng := rand.New(rand.NewPCG(1, 2))
	return func(int, int) bool { return rng.Float64() < p }
}

// From the second answer of a process on, no answer is slower than 0.97 of plain decoding, however short, where drafts are worth nothing;
// where they pay they win, and chance takes no more of one answer than it may borrow.
func TestDraftingNeverLosesMuchAndWinsWhereItPays(t *testing.T) {
	cheap, heavy := dear(500*time.Microsecond, time.Millisecond), dear(500*time.Microsecond, 9*time.Millisecond)
	for name, tt := range map[string]struct {
		machine
		rows        int
		least, most float64
		wins        float64 // together, from 128 tokens on
	}{
		"never right, costs nothing to know":      {machine{check: cheap, right: chance(0), free: true}, 1, 0.99, 1, 0},
		"seldom right, costs nothing to know":     {machine{check: heavy, right: chance(0.2), free: true}, 1, 0.97, 1.01, 0},
		"never right, a cheap model":              {machine{check: cheap, step: time.Millisecond, lag: 300 * time.Microsecond, right: chance(0), prior: 0.1}, 1, 0.975, 1, 0},
		"never right, and checks are dear":        {machine{check: heavy, step: time.Millisecond, lag: 300 * time.Microsecond, right: chance(0), prior: 0.1}, 1, 0.975, 1, 0},
		"never right, nobody says what it costs":  {machine{check: cheap, step: 5 * time.Millisecond, lag: time.Millisecond, right: chance(0)}, 1, 0.975, 1, 0},
		"always right, as dear as the model":      {machine{check: cheap, step: stepTime, lag: 3 * time.Millisecond, right: chance(1), prior: 1}, 1, 1, 1, 0},
		"the same, and nobody says so":            {machine{check: cheap, step: stepTime, lag: 3 * time.Millisecond, right: chance(1)}, 1, 0.975, 1.01, 0},
		"never right, eight rows":                 {machine{check: cheap, step: time.Millisecond, lag: 100 * time.Microsecond, right: chance(0), prior: 0.1}, 8, 0.975, 1, 0},
		"right but dearer than they save":         {machine{check: dear(20*time.Millisecond, 11*time.Millisecond), right: chance(1)}, 1, 0.97, 1.01, 0},
		"right and cheap":                         {machine{check: cheap, step: time.Millisecond, right: chance(1), prior: 0.1}, 1, 0.97, 3.5, 1.8},
		"right, and nothing is known of its cost": {machine{check: cheap, step: time.Millisecond, right: chance(1)}, 1, 0.97, 3.5, 1.8},
		"right, and seen":                         {machine{check: cheap, right: chance(1), free: true}, 1, 0.97, 3.5, 1.8},
		"half right":                              {machine{check: cheap, right: chance(0.6)}, 1, 0.95, 2, 1.1},
		"mostly right, sixteen rows":              {machine{check: dear(500*time.Microsecond, 200*time.Microsecond), right: chance(0.8)}, 16, 0.92, 3, 1.1},
		"on a noisy machine":                      {machine{check: cheap, step: time.Millisecond, right: chance(0), noise: 0.5}, 1, 0.96, 1.03, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tt.plain, tt.breaks, tt.rng = ten, 200*time.Microsecond, rand.New(rand.NewPCG(1, 2))
			for _, tokens := range []int{32, 64, 128, 512} {
				v := tt.value(32, 4)
				tt.answers(v, tt.rows, tokens) // the one trial that nothing paid for
				var plain, took time.Duration
				for range 12 {
					for _, a := range tt.answers(v, tt.rows, tokens) {
						require.GreaterOrEqual(t, a.rate(), tt.least, "%d tokens", tokens)
						require.LessOrEqual(t, a.rate(), tt.most)
						plain, took = plain+a.plain, took+a.took
					}
				}
				if tokens >= 128 {
					require.GreaterOrEqual(t, float64(plain)/float64(took), tt.wins, "%d tokens", tokens)
				}
			}
		})
	}
}

// The first answer of a process pays for one trial, and it is bounded.
func TestTheFirstAnswerLosesOneTrialAtMost(t *testing.T) {
	for name, m := range map[string]machine{
		"a cheap model":        {step: time.Millisecond, lag: 300 * time.Microsecond, prior: 0.1},
		"a model half as dear": {step: 5 * time.Millisecond, lag: time.Millisecond, prior: 0.5},
		"a head":               {step: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			m.plain, m.check, m.right, m.breaks = ten, dear(500*time.Microsecond, 2*time.Millisecond), chance(0), 200*time.Microsecond
			for _, tokens := range []int{32, 64, 128, 256} {
				a := m.answers(m.value(32, 4), 1, tokens)[0]
				lost := float64(a.took-a.plain) / float64(stepTime)
				t.Logf("%d tokens: %.3f of plain decoding, %.2f steps", tokens, a.rate(), lost)
				require.LessOrEqual(t, lost, grant+(ownShare+allShare)*float64(tokens))
			}
		})
	}
}

// Whatever forwards cost and whatever is right when, what a row loses is bounded by 2 % of its time, what it may borrow, and by how much
// one round cost more than could be known; and what all rows of a process lose together by 3 % and the grant.
func TestWhatDraftsLoseIsBounded(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		m := machine{
			plain: func(rows int) time.Duration { return stepTime + time.Duration(rows)*time.Millisecond },
			check: dear(time.Duration(rng.IntN(4000))*time.Microsecond, time.Duration(rng.IntN(12000))*time.Microsecond),
			step:  time.Duration(rng.IntN(12000)) * time.Microsecond, lag: time.Duration(rng.IntN(2000)) * time.Microsecond,
			free: rng.IntN(3) == 0, breaks: time.Duration(rng.IntN(300)) * time.Microsecond, rng: rng,
		}
		if rng.IntN(2) == 0 {
			m.prior = float64(m.step) / float64(stepTime)
		}
		m.right = hostile(rng)
		if rng.IntN(2) == 0 {
			m.none = func(row, token int) bool { return (row+token/16)%3 == 0 }
		}
		v := m.value(1+rng.IntN(32), 1+rng.IntN(8))
		var took, plain, worst time.Duration
		for range 12 {
			rows, tokens := 1+rng.IntN(9), 8+rng.IntN(300)
			for i, a := range m.answers(v, rows, tokens) {
				worst = max(worst, a.worst)
				took, plain = took+a.took, plain+a.plain
				debt := overdraft
				if rows > 1 {
					debt = trust
				}
				bound := ownShare*a.took.Seconds() + float64(debt)*m.plain(rows).Seconds() + a.worst.Seconds()
				require.LessOrEqual(t, (a.took - a.plain).Seconds(), bound, "seed %d, row %d of %d, %d tokens", seed, i, rows, tokens)
			}
		}
		most := (ownShare+allShare)*took.Seconds() + (grant*m.plain(9).Seconds()+worst.Seconds())*9
		require.LessOrEqual(t, (took - plain).Seconds(), most, "seed %d: all rows", seed)
	}
}

// hostile is a pattern of right and wrong drafts: always or never, by row, in runs, or such that trust is built and abused.
func hostile(rng *rand.Rand) func(row, token int) bool {
	period, turned := 1+rng.IntN(64), rng.IntN(2) == 0
	return []func(row, token int) bool{
		func(int, int) bool { return turned },
		func(row, _ int) bool { return (row%2 == 0) == turned },
		func(_, token int) bool { return (token/period%2 == 0) == turned },
		func(_, token int) bool { return token%(period+1) != 0 },
		func(_, token int) bool { return (token < period) == turned },
		func(int, int) bool { return rng.IntN(64) < period },
	}[rng.IntN(6)]
}

// A row whose text recurs is drafted for as far as rows beside it, which only wait for its drafts, lose nothing to speak of.
func TestARowThatWinsDoesNotSlowThoseBesideIt(t *testing.T) {
	m := machine{plain: ten, check: dear(500*time.Microsecond, time.Millisecond), free: true, rng: rand.New(rand.NewPCG(1, 1))}
	m.right = func(row, _ int) bool { return row == 0 }
	v := m.value(32, 4)
	for range 10 {
		all := m.answers(v, 4, 400)
		require.Greater(t, all[0].rate(), 1.05)
		for _, a := range all[1:] {
			require.GreaterOrEqual(t, a.rate(), 0.975)
			require.Zero(t, a.drafted)
		}
	}
}

func TestDepthGoesToTheRowsThatAcceptDrafts(t *testing.T) {
	v := NewValue(Drafter{Tokens: 8, Depth: 4})
	good, bad := &Row{}, &Row{}
	for range 64 {
		v.Plain([]*Row{good, bad}, stepTime)
	}
	for range 20 {
		v.Accepted(good, 0, 4, 4)
		v.Accepted(bad, 0, 4, 0)
	}
	depths := v.Depths([]Prospect{{Most: 4, Row: bad}, {Most: 4, Row: good}}, 0)
	require.Equal(t, 4, depths[1])
	require.Zero(t, depths[0])
	require.Equal(t, []int{0, 0}, v.Depths([]Prospect{{Row: bad}, {Row: good}}, 0), "nothing is proposed")
}

// What is not measured is not beaten: the first steps of a process are plain ones.
func TestNothingIsDraftedBeforePlainStepsAreMeasured(t *testing.T) {
	v, r := NewValue(Drafter{Tokens: 8, Depth: 4}), &Row{}
	for range steady {
		require.Equal(t, []int{0}, v.Depths([]Prospect{{Most: 4, Row: r}}, 0))
		v.Plain([]*Row{r}, stepTime)
	}
	require.NotEqual(t, []int{0}, v.Depths([]Prospect{{Most: 4, Row: r}}, 0))
	v.Arrived()
	require.Equal(t, []int{0}, v.Depths([]Prospect{{Most: 4, Row: r}}, 0), "another row's steps may last longer")
}

// A drafter that cannot win even if it is always right is never asked, and takes no prompt in.
func TestADraftAsDearAsTheModelIsNeverAsked(t *testing.T) {
	for step, hopeless := range map[float64]bool{0.05: false, 0.3: false, 0.9: true, 1: true, 3: true} {
		v, r := NewValue(Drafter{Tokens: 32, Depth: 4, Step: step}), &Row{}
		require.Equal(t, hopeless, v.Hopeless(1), "%v", step)
		require.Equal(t, !hopeless, v.Follows(), "%v", step)
		for range 3 * lastTrial {
			v.Plain([]*Row{r}, stepTime)
			if hopeless {
				require.Equal(t, []int{0}, v.Depths([]Prospect{{Most: 4, Row: r}}, 0))
			}
		}
	}
}

// Once drafts lost, prompts are taken in at intervals that double, and again at all once they win.
func TestAParkedDrafterIsTriedAtIntervalsThatDouble(t *testing.T) {
	m := machine{plain: ten, check: dear(500*time.Microsecond, 2*time.Millisecond), step: time.Millisecond, prior: 0.1, right: chance(0)}
	v := m.value(32, 4)
	m.answers(v, 1, 100)
	require.False(t, v.Promising())
	var at []int
	for i := range 200 {
		if v.Follows() {
			at = append(at, i)
		}
	}
	require.Equal(t, []int{7, 23, 55, 119}, at)
	var trials []int
	r := &Row{}
	for token := range 5000 {
		v.Plain([]*Row{r}, stepTime)
		if depths := v.Depths([]Prospect{{Most: 4, Row: r}}, 0); depths[0] > 0 {
			trials = append(trials, token)
			v.Accepted(r, 0, depths[0], 0)
			v.Verified(Round{Rows: []*Row{r}, Tokens: []int{1}, Drafted: depths[0], Depth: depths[0], Proposing: time.Millisecond, Checking: 15 * time.Millisecond})
		}
	}
	require.NotEmpty(t, trials)
	for i := 2; i < len(trials); i++ {
		require.GreaterOrEqual(t, trials[i]-trials[i-1], 2*(trials[i-1]-trials[i-2])-2, fmt.Sprint(trials))
	}
}
