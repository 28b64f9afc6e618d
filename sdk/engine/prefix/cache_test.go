package prefix

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// text is a payload that remembers the tokens that it was made for.
type text struct {
	tokens []int32
	closed *int
	bad    *bool
}

func (t *text) Bytes() int64 { return int64(10 * len(t.tokens)) }

func (t *text) Close() {
	if t.tokens == nil {
		*t.bad = true
	}
	t.tokens = nil
	*t.closed++
}

// library makes payloads of a text and counts them.
type library struct {
	made, closed int
	bad          bool
}

func (l *library) of(tokens []int32) Maker[*text] {
	return func(from, to int) (Piece[*text], error) {
		l.made++
		made := &text{tokens: slices.Clone(tokens[from:to]), closed: &l.closed, bad: &l.bad}
		return Piece[*text]{Payload: made, Tokens: to - from}, nil
	}
}

// whole makes payloads that begin where a run may, as blocks do.
func (l *library) whole(tokens []int32) Maker[*text] {
	return func(from, to int) (Piece[*text], error) {
		first := from / Run * Run
		p, err := l.of(tokens)(first, to)
		return Piece[*text]{Payload: p.Payload, From: from - first, Tokens: to - from}, err
	}
}

// read joins the pieces' tokens.
func read(pieces []Piece[*text]) []int32 {
	var out []int32
	for _, p := range pieces {
		out = append(out, p.Payload.tokens[p.From:p.From+p.Tokens]...)
	}
	return out
}

func count(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

func TestWhatIsHeldIsFoundUpToTheFirstOtherToken(t *testing.T) {
	var l library
	c := New[*text](1 << 30)
	long := count(700)
	require.NoError(t, c.Insert("", long, l.of(long)))
	require.Equal(t, 3, l.made, "cut at 256 and 512")

	other := slices.Clone(long)
	other[300] = -1
	pieces, n, release := c.Lookup("", other)
	require.Equal(t, 300, n)
	require.Equal(t, long[:300], read(pieces))
	release()
	require.NoError(t, c.Insert("", other, l.of(other)))
	require.Equal(t, 5, l.made, "the shared beginning is not made again")
	for _, want := range [][]int32{long, other} {
		pieces, n, release = c.Lookup("", want)
		require.Equal(t, 700, n)
		require.Equal(t, want, read(pieces))
		release()
	}
	_, n, release = c.Lookup("adapter", long)
	require.Zero(t, n, "namespaces share nothing")
	release()
	c.Clear()
	require.Equal(t, l.made, l.closed)
	require.Zero(t, c.Stats().Bytes)
}

// A payload may hold tokens before the piece that is taken of it, and fewer behind.
func TestAPieceOfAPayloadIsKept(t *testing.T) {
	var l library
	c := New[*text](1 << 30)
	long, parted := count(512), append(count(300), 1000)
	require.NoError(t, c.Insert("", parted, l.of(parted)))
	var asked [][2]int
	require.NoError(t, c.Insert("", long, func(from, to int) (Piece[*text], error) {
		asked = append(asked, [2]int{from, to})
		first, last := from/100*100, min(to, (from/100+1)*100)
		whole, err := l.of(long)(first, last)
		return Piece[*text]{Payload: whole.Payload, From: from - first, Tokens: last - from}, err
	}))
	require.Equal(t, [][2]int{{300, 512}, {400, 512}, {500, 512}}, asked)
	pieces, n, release := c.Lookup("", long)
	require.Equal(t, 512, n)
	require.Equal(t, long, read(pieces))
	release()
	c.Clear()
	require.Equal(t, l.made, l.closed)
}

// A conversation whose turns end within a block keeps that block once, not one for each turn.
func TestAPayloadWithTheTokensBeforeTakesTheirRunsOver(t *testing.T) {
	var l library
	c := New[*text](1 << 30)
	c.Merges = true
	long := count(640)
	for _, n := range []int{20, 90, 300, 310, 500, 640} {
		require.NoError(t, c.Insert("", long[:n], l.whole(long[:n])))
		require.LessOrEqual(t, c.Stats().Bytes, int64(10*n))
	}
	require.Equal(t, int64(6400), c.Stats().Bytes)
	for _, n := range []int{5, 20, 50, 305, 640} {
		pieces, held, release := c.Lookup("", long[:n])
		require.Equal(t, n, held)
		require.Equal(t, long[:n], read(pieces))
		release()
	}
	_, _, release := c.Lookup("", long) // who reads one keeps it
	longer := count(641)
	require.NoError(t, c.Insert("", longer, l.whole(longer)))
	require.Equal(t, int64(6400+1290), c.Stats().Bytes)
	release()
	c.Clear()
	require.Equal(t, l.made, l.closed)
	require.False(t, l.bad)
}

// A text that ends within a run, or whose runs lack what is wanted of them, gets payloads of its own from its end on.
func TestRunsAreRenewedFromTheEndOfATextOn(t *testing.T) {
	var l library
	c := New[*text](1 << 30)
	long := count(700)
	require.NoError(t, c.Insert("", long, l.of(long)))
	var asked [][2]int
	renew := func(tokens []int32, enough int) {
		asked = nil
		require.NoError(t, c.Renew("", tokens, func(from, to int) (Piece[*text], error) {
			asked = append(asked, [2]int{from, to})
			return l.of(tokens)(from, to)
		}, func(pieces []Piece[*text]) bool { return len(asked) >= enough }))
	}
	renew(long[:300], 1)
	require.Equal(t, [][2]int{{256, 300}}, asked, "the run is divided there")
	renew(long[:512], 9)
	require.Equal(t, [][2]int{{300, 512}, {256, 300}, {0, 256}}, asked)
	renew(long, 0)
	require.Empty(t, asked)
	renew(append(count(650), 1), 9)
	require.Empty(t, asked, "not all of it is held")
	pieces, n, release := c.Lookup("", long)
	require.Equal(t, 700, n)
	require.Equal(t, long, read(pieces))
	release()
	c.Clear()
	require.Equal(t, l.made, l.closed)
	require.Zero(t, c.Stats().Bytes)
	require.False(t, l.bad)
}

func TestTheRunUsedLongestAgoGoesFirst(t *testing.T) {
	var l library
	c := New[*text](10 * 2 * Run)
	texts := [][]int32{append([]int32{1000}, count(Run-1)...), append([]int32{2000}, count(Run-1)...), append([]int32{3000}, count(Run-1)...)}
	require.NoError(t, c.Insert("", texts[0], l.of(texts[0])))
	require.NoError(t, c.Insert("", texts[1], l.of(texts[1])))
	_, _, release := c.Lookup("", texts[0])
	release()
	require.NoError(t, c.Insert("", texts[2], l.of(texts[2])))
	require.Equal(t, []int{Run, 0, Run}, []int{c.Held("", texts[0]), c.Held("", texts[1]), c.Held("", texts[2])})
	require.EqualValues(t, 1, c.Stats().Evicted)
}

func TestTheBudgetHoldsWhilePiecesAreRead(t *testing.T) {
	var l library
	c := New[*text](10 * Run)
	a, b := append([]int32{1000}, count(Run-1)...), append([]int32{2000}, count(Run-1)...)
	require.NoError(t, c.Insert("", a, l.of(a)))
	pieces, _, release := c.Lookup("", a)
	require.NoError(t, c.Insert("", b, l.of(b)))
	require.Zero(t, c.Held("", b), "there was no room beside what is being read")
	require.Equal(t, a, read(pieces))
	require.LessOrEqual(t, c.Stats().Bytes, c.Stats().Budget)
	release()
	require.NoError(t, c.Insert("", b, l.of(b)))
	require.Equal(t, Run, c.Held("", b))
	require.Zero(t, c.Held("", a))
}

func TestATextLargerThanTheBudgetKeepsItsBeginning(t *testing.T) {
	var l library
	c := New[*text](10 * 3 * Run)
	long := count(10 * Run)
	require.NoError(t, c.Insert("", long, l.of(long)))
	require.Equal(t, 3*Run, c.Held("", long))
	require.NoError(t, c.Insert("", long, l.of(long)))
	require.Equal(t, 3*Run, c.Held("", long))
}

func TestAFailedSnapshotKeepsWhatCameBefore(t *testing.T) {
	var l library
	c := New[*text](1 << 30)
	long := count(3 * Run)
	err := c.Insert("", long, func(from, to int) (Piece[*text], error) {
		if from == Run {
			return Piece[*text]{}, errors.New("out of memory")
		}
		return l.of(long)(from, to)
	})
	require.ErrorContains(t, err, "keep tokens 256 to 512: out of memory")
	require.Equal(t, Run, c.Held("", long))
}

func TestTheTrieAgreesWithAListOfTexts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var l library
		budget := int64(rapid.IntRange(0, 60).Draw(rt, "budget")) * 10 * 40
		c := New[*text](budget)
		of := l.of
		if c.Merges = rapid.Bool().Draw(rt, "merges"); c.Merges {
			of = l.whole
		}
		var inserted [][]int32
		var releases []func()
		token := rapid.Int32Range(0, 2)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			tokens := rapid.SliceOfN(token, 0, 40).Draw(rt, "tokens")
			if rapid.Bool().Draw(rt, "long") { // beyond one run
				tokens = append(make([]int32, 250), tokens...)
			}
			if rapid.Bool().Draw(rt, "insert") {
				require.NoError(rt, c.Insert("", tokens, of(tokens)))
				inserted = append(inserted, tokens)
			} else {
				pieces, n, release := c.Lookup("", tokens)
				require.Equal(rt, tokens[:n], append([]int32{}, read(pieces)...))
				longest := 0
				for _, other := range inserted {
					longest = max(longest, common(other, tokens))
				}
				require.LessOrEqual(rt, n, longest)
				releases = append(releases, release)
				if rapid.Bool().Draw(rt, "release") {
					for _, r := range releases {
						r()
					}
					releases = nil
				}
			}
			require.LessOrEqual(rt, c.Stats().Bytes, budget)
			require.False(rt, l.bad, "a payload was closed twice")
		}
		for _, r := range releases {
			r()
		}
		c.Clear()
		require.Zero(rt, c.Stats().Bytes)
		require.Equal(rt, l.made, l.closed)
	})
}
