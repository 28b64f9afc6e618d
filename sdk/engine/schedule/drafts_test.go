package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// decoding is a scheduler with rows that have their prompts of 4 tokens behind them.
func decoding(t *testing.T, c Config, rows ...*Row) *Scheduler {
	t.Helper()
	s := New(c)
	for _, r := range rows {
		r.Tokens = 4
		require.NoError(t, s.Submit(r, time.Time{}))
	}
	s.Next(time.Time{}, func(int) int { return 1000 })
	require.ElementsMatch(t, rows, s.Decoding())
	return s
}

func one(int) int { return 1 }

func TestDraftsGoBehindTheLastToken(t *testing.T) {
	a, b := &Row{Limit: 100}, &Row{Limit: 100}
	s := decoding(t, Config{Rows: 2, Queue: 2, Blocks: 100, BlockTokens: 10}, a, b)
	a.Drafts = 3
	p := s.Next(time.Time{}, one)
	require.Len(t, p.Segments, 2)
	require.Equal(t, Segment{Row: a, First: 4, Tokens: 4, Samples: true, Drafts: 3, decodes: true}, p.Segments[0])
	require.Equal(t, Segment{Row: b, First: 4, Tokens: 1, Samples: true, decodes: true}, p.Segments[1])
	s.Settle(a, 6, 7) // one draft was accepted, and one token sampled
	require.ElementsMatch(t, []*Row{a, b}, s.Decoding())
	p = s.Next(time.Time{}, one)
	require.Equal(t, Segment{Row: a, First: 6, Tokens: 1, Samples: true, decodes: true}, p.Segments[0], "drafts are for one forward")
}

// A cache that could only go back to where the drafts began has the tokens computed again, at once and without drafts.
func TestTokensThatACacheLostAreComputedAgainInOneForward(t *testing.T) {
	a := &Row{Limit: 100}
	s := decoding(t, Config{Rows: 1, Queue: 2, Blocks: 100, BlockTokens: 10}, a)
	a.Drafts = 3
	s.Next(time.Time{}, one)
	s.Settle(a, 4, 7)
	require.Empty(t, s.Decoding())
	require.False(t, s.Decodes(time.Time{}))
	a.Drafts = 2
	p := s.Next(time.Time{}, one)
	require.Equal(t, []Segment{{Row: a, First: 4, Tokens: 3, Samples: true, decodes: true}}, p.Segments)
	require.Equal(t, []*Row{a}, s.Decoding())
}

func TestNobodyIsPutBackForADraft(t *testing.T) {
	a, b := &Row{Limit: 19}, &Row{Limit: 19}
	s := decoding(t, Config{Rows: 2, Queue: 2, Blocks: 2, BlockTokens: 10}, a, b)
	a.Drafts = 8
	p := s.Next(time.Time{}, one)
	require.Empty(t, p.PutBack)
	require.Zero(t, p.Segments[0].Drafts)
	a.Drafts = 4
	require.Equal(t, 4, s.Next(time.Time{}, one).Segments[0].Drafts, "they fit")
}

func TestDraftsEndAtTheLimit(t *testing.T) {
	a := &Row{Limit: 7}
	s := decoding(t, Config{Rows: 1, Queue: 2, Blocks: 100, BlockTokens: 10}, a)
	a.Drafts = 6
	require.Equal(t, 1, s.Next(time.Time{}, one).Segments[0].Drafts, "5 of 7 tokens are there: a draft, and the token behind it")
}
