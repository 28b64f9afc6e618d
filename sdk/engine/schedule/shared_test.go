package schedule

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABlockThatSeveralRowsHoldIsCountedOnce(t *testing.T) {
	s := New(Config{Rows: 4, Queue: 4, Blocks: 10, BlockTokens: 4})
	a, b, c := row(11, 1), row(11, 1), row(11, 1)
	submit(t, s, a, b, c)
	s.Next(start, chunk(100))
	require.Equal(t, 1, s.FreeBlocks())
	s.Holds(a, []uint64{7, 8})
	require.Equal(t, 1, s.FreeBlocks())
	s.Holds(b, []uint64{7, 8})
	require.Equal(t, 3, s.FreeBlocks())
	s.Holds(c, []uint64{7, 9})
	require.Equal(t, 4, s.FreeBlocks())
	s.Holds(b, []uint64{7, 8})
	require.Equal(t, 4, s.FreeBlocks(), "it says so again")
	s.Leave(a) // what it held stays for the others
	require.Equal(t, 5, s.FreeBlocks())
	s.Leave(b)
	s.Leave(c)
	require.Equal(t, 10, s.FreeBlocks())
	s.Holds(c, []uint64{7})
	require.Equal(t, 10, s.FreeBlocks(), "it has no slot")
	require.Empty(t, s.held)
}

// sharing is a scheduler whose rows find the two blocks 7 and 8.
func sharing(blocks int, finds *bool) *Scheduler {
	var s *Scheduler
	found := []uint64{7, 8}
	s = New(Config{Rows: 4, Queue: 4, Blocks: blocks, BlockTokens: 4, Begins: func(*Row) []uint64 { return found }, Restore: func(r *Row) int {
		if !*finds {
			return 0
		}
		s.Holds(r, found)
		return 10
	}})
	return s
}

func TestARowIsAdmittedByTheBlocksThatItTakesBesideSharedOnes(t *testing.T) {
	finds := true
	s := sharing(5, &finds)
	a, b, c, d := row(11, 1), row(11, 1), row(11, 1), row(11, 1)
	submit(t, s, a, b, c, d)
	p := s.Next(start, chunk(100))
	require.Equal(t, []*Row{a, b, c}, p.Admitted, "three blocks, and one for each other")
	require.Zero(t, s.FreeBlocks())
	require.True(t, d.Waits())
	s.Leave(b)
	require.Equal(t, []*Row{d}, s.Next(start, chunk(100)).Admitted)
	require.Zero(t, s.FreeBlocks())
}

func TestARowThatDoesNotFindWhatItWasAdmittedForWaits(t *testing.T) {
	finds := true
	s := sharing(5, &finds)
	a, b := row(11, 1), row(11, 1)
	submit(t, s, a)
	s.Next(start, chunk(100))
	finds = false
	submit(t, s, b)
	p := s.Next(start, chunk(100))
	require.Empty(t, p.Admitted)
	require.Equal(t, []*Row{b}, p.PutBack)
	require.Equal(t, 2, s.FreeBlocks())
	require.Empty(t, s.Next(start, chunk(100)).Admitted, "it waits for room of its own")
	s.Leave(a)
	require.Equal(t, []*Row{b}, s.Next(start, chunk(100)).Admitted)
	require.Equal(t, 2, s.FreeBlocks())
}

// However rows come, share, grow and go: what is free is what is not held, and never less than nothing.
func TestFreeBlocksAreThoseThatNoRowHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	var s *Scheduler
	s = New(Config{
		Rows: 5, Queue: 100, Blocks: 12, BlockTokens: 4,
		Begins:  func(r *Row) []uint64 { return []uint64{1, 2, 3}[:r.Limit%4] },
		Restore: func(r *Row) int { s.Holds(r, []uint64{1, 2, 3}[:r.Limit%4]); return r.Limit % 4 * 4 },
	})
	var rows []*Row
	for i := range 2000 {
		if i%7 == 0 && len(s.queue) < 20 {
			limit := 20 + rng.IntN(12)
			r := &Row{Tokens: 14, Limit: limit}
			require.NoError(t, s.Submit(r, start))
			rows = append(rows, r)
		}
		s.Next(start, chunk(1+rng.IntN(20)))
		distinct, own := map[uint64]bool{}, 0
		for _, r := range s.slots {
			own += r.blocks - len(r.holds)
			for _, b := range r.holds {
				distinct[b] = true
			}
		}
		require.GreaterOrEqual(t, s.FreeBlocks(), 0)
		require.Equal(t, 12, s.FreeBlocks()+own+len(distinct))
		for _, r := range s.slots {
			if r.left() == 0 || rng.IntN(30) == 0 {
				s.Leave(r)
				break
			}
		}
	}
	for _, r := range rows {
		s.Leave(r)
	}
	require.Equal(t, 12, s.FreeBlocks())
}
