package schedule

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Unix(1000, 0)

func chunk(n int) func(int) int { return func(int) int { return n } }

func row(prompt, generate int) *Row { return &Row{Tokens: prompt, Limit: prompt + generate} }

func submit(t *testing.T, s *Scheduler, rows ...*Row) {
	t.Helper()
	for i, r := range rows {
		require.NoError(t, s.Submit(r, start.Add(time.Duration(i)*time.Millisecond)))
	}
}

// segments writes a plan as row:tokens, with * where a token is sampled.
func segments(p Plan, rows ...*Row) []string {
	var out []string
	for _, g := range p.Segments {
		mark := ""
		if g.Samples {
			mark = "*"
		}
		out = append(out, fmt.Sprintf("%d:%d%s", slices.Index(rows, g.Row), g.Tokens, mark))
	}
	return out
}

func TestARunningRowWaitsOneChunkAtMost(t *testing.T) {
	s := New(Config{Rows: 4, Queue: 4, Blocks: 100, BlockTokens: 256})
	a, b := row(3, 100), row(1000, 10)
	submit(t, s, a)
	require.Equal(t, []string{"0:3*"}, segments(s.Next(start, chunk(64)), a, b))
	submit(t, s, b)
	for done := 0; done < 1000; done += 64 {
		require.False(t, s.Decodes(start))
		want := []string{"0:1*", "1:64"}
		if done+64 >= 1000 {
			want[1] = fmt.Sprintf("1:%d*", 1000-done)
		}
		require.Equal(t, want, segments(s.Next(start, chunk(64)), a, b))
	}
	require.True(t, s.Decodes(start))
	require.Equal(t, []string{"0:1*", "1:1*"}, segments(s.Next(start, chunk(64)), a, b))
}

func TestAShortPromptPassesALongOneWhichStillMoves(t *testing.T) {
	s := New(Config{Rows: 3, Queue: 4, Blocks: 100, BlockTokens: 256})
	long, short := row(10_000, 1), row(100, 1)
	submit(t, s, long, short)
	var first []int
	for range 8 {
		p := s.Next(start, chunk(32))
		require.Len(t, p.Segments, 1+min(1, len(p.Segments)-1))
		first = append(first, slices.Index([]*Row{long, short}, p.Segments[0].Row))
	}
	require.Equal(t, []int{1, 1, 1, 0, 1, 0, 0, 0}, first, "every fourth chunk is the oldest row's; with the rest of the fifth for it")
}

func TestPrioritiesOrderTheQueueAndNobodyWaitsForEver(t *testing.T) {
	s := New(Config{Rows: 1, Queue: 10, Blocks: 100, BlockTokens: 256})
	running, usual, urgent, idle := row(1, 1), row(1, 1), row(1, 1), row(1, 1)
	urgent.Priority, idle.Priority = -1, 5
	submit(t, s, running)
	s.Next(start, chunk(8))
	submit(t, s, usual, idle, urgent)
	order := func(now time.Time) (out []int) {
		for range 3 {
			s.Leave(s.slots[0])
			out = append(out, slices.Index([]*Row{usual, idle, urgent}, s.Next(now, chunk(8)).Admitted[0]))
		}
		return out
	}
	require.Equal(t, []int{2, 0, 1}, order(start))

	s.Leave(s.slots[0])
	submit(t, s, running)
	s.Next(start, chunk(8))
	require.NoError(t, s.Submit(idle, start))
	late := start.Add(7 * Aging)
	require.NoError(t, s.Submit(usual, late))
	require.NoError(t, s.Submit(urgent, late))
	require.Equal(t, []int{1, 2, 0}, order(late), "it waited seven times Aging")
}

func TestAFullQueueIsBusy(t *testing.T) {
	s := New(Config{Rows: 1, Queue: 2, Blocks: 10, BlockTokens: 256})
	submit(t, s, row(1, 1))
	s.Next(start, chunk(8))
	submit(t, s, row(1, 1), row(1, 1))
	require.ErrorIs(t, s.Submit(row(1, 1), start), ErrBusy)
	require.ErrorIs(t, s.Submit(row(2561, 1), start), ErrTooLong)
}

func TestALeftRowFreesItsSlotAtOnce(t *testing.T) {
	s := New(Config{Rows: 1, Queue: 2, Blocks: 2, BlockTokens: 256})
	a, b := row(300, 10), row(300, 10)
	submit(t, s, a, b)
	s.Next(start, chunk(100))
	require.Zero(t, s.FreeBlocks())
	s.Leave(a)
	p := s.Next(start, chunk(100))
	require.Equal(t, []*Row{b}, p.Admitted)
	s.Leave(b)
	require.Equal(t, 2, s.FreeBlocks())
	require.True(t, s.Idle())
}

func TestWhenBlocksRunOutTheLastAdmittedIsPutBack(t *testing.T) {
	s := New(Config{Rows: 3, Queue: 3, Blocks: 4, BlockTokens: 4})
	a, b, c := row(4, 12), row(4, 8), row(4, 8)
	submit(t, s, a, b, c)
	require.Equal(t, []string{"0:4*", "1:4*", "2:4*"}, segments(s.Next(start, chunk(100)), a, b, c))
	p := s.Next(start, chunk(100))
	require.Equal(t, []string{"0:1*", "1:1*"}, segments(p, a, b, c), "a takes the free block, b that of c")
	require.Equal(t, []*Row{c}, p.PutBack)
	require.True(t, c.Waits())
	require.Equal(t, 5, c.Tokens, "the token it had is not lost")
	require.True(t, s.Decodes(start), "c's five tokens do not fit beside the others")
}

func TestARowOnTrialRunsAloneAndOnlyItIsCondemned(t *testing.T) {
	s := New(Config{Rows: 3, Queue: 3, Blocks: 100, BlockTokens: 256})
	a, b, c := row(5, 50), row(6, 50), row(7, 50)
	all := []*Row{a, b, c}
	submit(t, s, all...)
	s.Next(start, chunk(100))
	for i, r := range all {
		r.Tokens = 5 + i
	}
	require.Empty(t, s.Failed(all))
	p := s.Next(start, chunk(3))
	require.Equal(t, []string{"0:3"}, segments(p, all...))
	s.Computed(p.Segments)
	p = s.Next(start, chunk(3))
	require.Equal(t, []string{"0:2*"}, segments(p, all...))
	s.Computed(p.Segments)
	require.Equal(t, []string{"1:6*"}, segments(s.Next(start, chunk(100)), all...))
	b.Tokens = 6
	require.Equal(t, []*Row{b}, s.Failed([]*Row{b}))
	s.Leave(b)
	p = s.Next(start, chunk(100))
	require.Equal(t, []string{"2:7*"}, segments(p, all...))
	s.Computed(p.Segments)
	require.Equal(t, []string{"0:1*", "2:1*"}, segments(s.Next(start, chunk(100)), all...))
}

func TestRowsThatOnlyFailTogetherEndUpAlone(t *testing.T) {
	s := New(Config{Rows: 2, Queue: 2, Blocks: 100, BlockTokens: 256})
	a, b := row(5, 50), row(5, 50)
	submit(t, s, a, b)
	tokens := 0
	for range 40 {
		p := s.Next(start, chunk(100))
		if len(p.Segments) > 1 {
			a.Tokens, b.Tokens = a.Tokens-1, b.Tokens-1
			require.Empty(t, s.Failed([]*Row{a, b}))
			continue
		}
		s.Computed(p.Segments)
		tokens++
	}
	require.Equal(t, 38, tokens)
	require.InDelta(t, a.Tokens, b.Tokens, 1, "they take turns")
}

func TestARowThatRunsAloneSharesTheDevice(t *testing.T) {
	s := New(Config{Rows: 2, Queue: 2, Blocks: 100, BlockTokens: 256})
	score, chat := row(1000, 1), row(1, 100)
	score.Alone, score.Most = true, 10
	submit(t, s, score, chat)
	for range 10 {
		require.Equal(t, []string{"0:10"}, segments(s.Next(start, chunk(100)), score, chat))
		require.Equal(t, []string{"1:1*"}, segments(s.Next(start, chunk(100)), score, chat))
	}
}

func TestAPausedRowKeepsItsSlotAndNothingElse(t *testing.T) {
	s := New(Config{Rows: 2, Queue: 2, Blocks: 100, BlockTokens: 256})
	a, b := row(1, 100), row(1, 100)
	submit(t, s, a, b)
	s.Next(start, chunk(10))
	s.Pause(a, true)
	require.Equal(t, []string{"1:1*"}, segments(s.Next(start, chunk(10)), a, b))
	s.Pause(a, false)
	require.Equal(t, []string{"0:1*", "1:1*"}, segments(s.Next(start, chunk(10)), a, b))
}

// Whatever arrives, fails, pauses and leaves: room is never overdrawn, and every row ends.
func TestRandomSchedulesEnd(t *testing.T) {
	count := 300
	if v := os.Getenv("CLADE_SCHEDULES"); v != "" {
		count, _ = strconv.Atoi(v)
	}
	for seed := range count {
		simulate(t, uint64(seed))
	}
}

func simulate(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	config := Config{Rows: 1 + rng.IntN(8), Queue: 100, Blocks: 8 + rng.IntN(20), BlockTokens: 16}
	s, now := New(config), start
	var live []*Row
	arriving := 1 + rng.IntN(30)
	for step := 0; arriving > 0 || len(live) > 0; step++ {
		require.Less(t, step, 40_000, "seed %d: nothing moves: %d rows", seed, len(live))
		now = now.Add(time.Duration(rng.IntN(50)) * time.Millisecond)
		if arriving > 0 && rng.IntN(3) == 0 {
			r := row(1+rng.IntN(100), 1+rng.IntN(20))
			r.Priority, r.Alone = int32(rng.IntN(5)-2), rng.IntN(10) == 0
			require.NoError(t, s.Submit(r, now))
			live, arriving = append(live, r), arriving-1
		}
		if len(live) > 0 && rng.IntN(40) == 0 {
			s.Leave(live[rng.IntN(len(live))])
		}
		for _, r := range live {
			s.Pause(r, rng.IntN(20) == 0)
		}
		decodes := s.Decodes(now)
		p := s.Next(now, chunk(1+rng.IntN(40)))
		check(t, seed, s, p, decodes)
		if rng.IntN(25) == 0 {
			fail(s, p)
		} else {
			s.Computed(p.Segments)
		}
		live = slices.DeleteFunc(live, func(r *Row) bool {
			if r.state != gone && r.Tokens >= r.Limit {
				s.Leave(r)
			}
			return r.state == gone
		})
	}
	require.True(t, s.Idle())
	require.Equal(t, config.Blocks, s.FreeBlocks(), "seed %d", seed)
}

func fail(s *Scheduler, p Plan) {
	var rows []*Row
	for _, g := range p.Segments {
		if g.Samples {
			g.Row.Tokens--
		}
		rows = append(rows, g.Row)
	}
	for _, r := range s.Failed(rows) {
		s.Leave(r)
	}
}

func check(t *testing.T, seed uint64, s *Scheduler, p Plan, decodes bool) {
	t.Helper()
	held, alone := 0, false
	for _, r := range s.slots {
		held += r.blocks
		require.GreaterOrEqual(t, r.blocks*s.config.BlockTokens, r.cached, "seed %d", seed)
	}
	require.LessOrEqual(t, len(s.slots), s.config.Rows, "seed %d", seed)
	require.Equal(t, s.config.Blocks, held+s.free, "seed %d", seed)
	require.GreaterOrEqual(t, s.free, 0, "seed %d", seed)
	seen := map[*Row]bool{}
	for _, g := range p.Segments {
		require.False(t, seen[g.Row], "seed %d: twice in one forward", seed)
		require.Equal(t, running, g.Row.state, "seed %d", seed)
		seen[g.Row], alone = true, alone || g.Row.Alone || g.Row.trial
		require.Positive(t, g.Tokens)
		if decodes {
			require.Equal(t, 1, g.Tokens, "seed %d", seed)
		}
	}
	require.False(t, alone && len(p.Segments) > 1, "seed %d: a row that runs alone has company", seed)
}
