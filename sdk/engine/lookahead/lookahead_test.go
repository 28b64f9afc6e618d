package lookahead

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALookupFindsTheLongestRecurringEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		ids    []int32
		want   []int32
		length int
	}{
		"nothing":                   {nil, nil, 0},
		"one token is no match":     {[]int32{5, 1, 2, 5}, nil, 0},
		"two are":                   {[]int32{4, 5, 1, 2, 4, 5}, []int32{1, 2, 4, 5}, 2},
		"the longest, not the last": {[]int32{3, 4, 5, 1, 9, 4, 5, 2, 3, 4, 5}, []int32{1, 9, 4, 5, 2, 3, 4, 5}, 3},
		"of equal ones the last":    {[]int32{4, 5, 1, 4, 5, 2, 4, 5}, []int32{2, 4, 5}, 2},
		"a run of one token":        {[]int32{7, 7, 7, 7}, []int32{7}, 3},
		"from the beginning":        {[]int32{4, 5, 4, 5}, []int32{4, 5}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, length := Lookup(tt.ids)
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.length, length)
		})
	}
}

// machine is a model of what forwards cost: a plain step 10 ms, a forward that checks drafts base more and each of them token.
type machine struct {
	base, token time.Duration
	chance      func(step int) float64 // that a draft is accepted
	noise       float64
}

const stepTime = 10 * time.Millisecond

// decode runs steps of rows rows and returns how many times plain decoding's rate it reached, and the share of forwards that
// drafted.
func (m machine) decode(v *Value, rows, steps int) (rate, share float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	odds := make([]Odds, rows)
	var took time.Duration
	tokens, drafting := 0, 0
	broke := false
	for step := range steps {
		prospects := make([]Prospect, rows)
		for i := range prospects {
			prospects[i] = Prospect{Most: 4, Odds: &odds[i]}
		}
		spread := func(d time.Duration) time.Duration {
			return time.Duration(float64(d) * (1 + m.noise*(rng.Float64()-0.5)))
		}
		drafted, gained := 0, rows
		for i, n := range v.Depths(prospects, 0) {
			if n == 0 {
				continue
			}
			accepted := 0
			for accepted < n && rng.Float64() < m.chance(step) {
				accepted++
			}
			v.Accepted(&odds[i], 0, n, accepted)
			drafted, gained = drafted+n, gained+accepted
		}
		tokens += gained
		d := spread(stepTime)
		switch {
		case drafted > 0:
			drafting++
			d = spread(stepTime + m.base + time.Duration(drafted)*m.token)
			v.Verified(rows, drafted, gained, d)
		case broke:
			d += m.base
			v.Restarted(rows, d)
		default:
			v.Plain(rows, d)
		}
		broke = drafted > 0
		took += d
	}
	return float64(tokens) / float64(rows) * float64(stepTime) / float64(took), float64(drafting) / float64(steps)
}

func always(p float64) func(int) float64 { return func(int) float64 { return p } }

// Whatever drafts are worth, decoding is never much slower than without, and faster where they pay.
func TestDraftingNeverLosesMuchAndWinsWhereItPays(t *testing.T) {
	for name, tt := range map[string]struct {
		machine
		rows, steps int
		least, most float64
	}{
		"hostile drafts":                   {machine{500 * time.Microsecond, time.Millisecond, always(0), 0.1}, 1, 400, 0.975, 1.01},
		"hostile drafts, a short answer":   {machine{500 * time.Microsecond, time.Millisecond, always(0), 0.1}, 1, 64, 0.97, 1.01},
		"hostile and dear":                 {machine{5 * time.Millisecond, 10 * time.Millisecond, always(0), 0.1}, 1, 400, 0.97, 1.01},
		"hostile, eight rows":              {machine{500 * time.Microsecond, time.Millisecond, always(0), 0.1}, 8, 400, 0.97, 1.01},
		"right but dearer than they save":  {machine{20 * time.Millisecond, 11 * time.Millisecond, always(1), 0.1}, 1, 400, 0.97, 1.01},
		"right and cheap":                  {machine{500 * time.Microsecond, time.Millisecond, always(1), 0.1}, 1, 400, 2.5, 3.5},
		"half right":                       {machine{500 * time.Microsecond, time.Millisecond, always(0.6), 0.1}, 1, 400, 1.2, 2},
		"half right, sixteen rows":         {machine{500 * time.Microsecond, 200 * time.Microsecond, always(0.6), 0.1}, 16, 400, 1.05, 2},
		"right, but a forward is computed": {machine{500 * time.Microsecond, 9 * time.Millisecond, always(0.9), 0.1}, 1, 400, 0.97, 1.05},
		"wrong at first":                   {machine{500 * time.Microsecond, time.Millisecond, func(step int) float64 { return min(1, float64(step/400)) }, 0.1}, 1, 1600, 1.4, 3.5},
		"right at first, then hostile":     {machine{500 * time.Microsecond, time.Millisecond, func(step int) float64 { return max(0, 1-float64(step/100)) }, 0.1}, 1, 400, 1.3, 3.5},
		"on a noisy machine":               {machine{500 * time.Microsecond, time.Millisecond, always(0), 1}, 1, 400, 0.95, 1.05},
	} {
		t.Run(name, func(t *testing.T) {
			rate, share := tt.decode(NewValue(32), tt.rows, tt.steps)
			t.Logf("%.3f of plain decoding, %.0f %% of forwards drafted", rate, 100*share)
			require.GreaterOrEqual(t, rate, tt.least)
			require.LessOrEqual(t, rate, tt.most)
		})
	}
}

func TestDepthGoesToTheRowsThatAcceptDrafts(t *testing.T) {
	v := NewValue(8)
	for range 2 * steady {
		v.Plain(2, stepTime)
	}
	good, bad := &Odds{}, &Odds{}
	for range 20 {
		v.Accepted(good, 0, 4, 4)
		v.Accepted(bad, 0, 4, 0)
	}
	depths := v.Depths([]Prospect{{Most: 4, Odds: bad}, {Most: 4, Odds: good}}, 0)
	require.Equal(t, 4, depths[1])
	require.Zero(t, depths[0])
	require.Equal(t, []int{0, 0}, v.Depths([]Prospect{{Odds: bad}, {Odds: good}}, 0), "nothing is proposed")
}

// What is not measured is not beaten: the first steps of a process are plain ones.
func TestNothingIsDraftedBeforePlainStepsAreMeasured(t *testing.T) {
	v := NewValue(8)
	for range steady {
		require.Equal(t, []int{0}, v.Depths([]Prospect{{Most: 4}}, 0))
		v.Plain(1, stepTime)
	}
	require.NotEqual(t, []int{0}, v.Depths([]Prospect{{Most: 4}}, 0))
	v.Arrived()
	require.Equal(t, []int{0}, v.Depths([]Prospect{{Most: 4}}, 0), "another row's steps may last longer")
}
