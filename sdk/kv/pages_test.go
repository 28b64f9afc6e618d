package kv

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// late is a format that begins later.
func late(f Format, start int) Format {
	f.Start = start
	return f
}

// pagedFormats are those that a paged layer is held to.
var pagedFormats = []Format{formats[0], formats[1], formats[3], formats[4], formats[5], late(formats[3], 300), late(formats[5], 513), late(formats[1], 40)}

// mixed is a layer that attends to all positions beside one with a window and one that keeps more.
func mixed(f Format) []Spec {
	return []Spec{{Heads: 1, HeadDim: wide, Format: f}, {Heads: 1, HeadDim: wide, Window: 100, Format: f}, {Heads: 1, HeadDim: wide, Format: f}}
}

// stepAll is step through every layer, each of which sees the same tokens.
func stepAll(t testing.TB, s *mlx.Scope, sequences []int, caches []*Cache, n ...int) []float32 {
	t.Helper()
	var segments []Segment
	var qkv []float32
	for i, c := range caches {
		segments = append(segments, Segment{Cache: c, Tokens: n[i]})
		qkv = append(qkv, inputs(sequences[i], c.Offset(), n[i])...)
	}
	pass := Begin(segments...)
	x := mlx.FromSlice(s, qkv, 1, pass.Tokens(), width)
	var outs []*mlx.Array
	for i := range caches[0].specs {
		outs = append(outs, pass.Attend(s, i, x, Attention{Heads: group, Scale: 0.125}))
	}
	got, err := mlx.ToSlice[float32](s, s.Concat(0, outs...))
	require.NoError(t, err)
	pass.End()
	s.Sweep()
	return got
}

// twins runs the same through caches of a pool and through plain ones, which must answer bit for bit alike.
type twins struct {
	t            *testing.T
	s            *mlx.Scope
	specs        []Spec
	kernels      bool
	pool         *Pool
	paged, plain []*Cache
	sequences    []int
	what         string
}

func newTwins(t *testing.T, s *mlx.Scope, specs []Spec, kernels bool, sequences ...int) *twins {
	w := &twins{t: t, s: s, specs: specs, kernels: kernels, pool: NewPool(1000), sequences: sequences, what: fmt.Sprintf("%+v, kernels %v", specs[0].Format, kernels)}
	for range sequences {
		w.paged, w.plain = append(w.paged, w.pool.Cache(specs, kernels)), append(w.plain, New(specs, kernels))
	}
	return w
}

func (w *twins) close() {
	for i := range w.paged {
		w.paged[i].Close()
		w.plain[i].Close()
	}
	require.Zero(w.t, w.pool.Used(), "every block was given back")
}

// step takes as many tokens of each sequence as none of them is cut at; 0 leaves one out.
func (w *twins) step(n ...int) {
	w.t.Helper()
	for left := true; left; {
		left = false
		var now, sequences []int
		var paged, plain []*Cache
		for i, m := range n {
			if m == 0 {
				continue
			}
			take := Cut(w.specs, w.paged[i].Offset(), m)
			n[i], left = m-take, left || take < m
			now, sequences, paged, plain = append(now, take), append(sequences, w.sequences[i]), append(paged, w.paged[i]), append(plain, w.plain[i])
		}
		near(w.t, stepAll(w.t, w.s, sequences, plain, now...), stepAll(w.t, w.s, sequences, paged, now...), 0, "%s", w.what)
	}
}

func pagedEveryWay(t *testing.T, fn func(t *testing.T, s *mlx.Scope, specs []Spec, kernels bool)) {
	for i, f := range pagedFormats {
		t.Run(fmt.Sprintf("%d %+v", i, f), func(t *testing.T) {
			onWorker(t, func(s *mlx.Scope) { fn(t, s, mixed(f), true) })
			if i%2 == 0 || f.Start == 300 { // stock operations take longer: one of each kind
				onWorker(t, func(s *mlx.Scope) { fn(t, s, mixed(f), false) })
			}
		})
	}
}

func TestAPagedCacheIsThePlainOneBitForBit(t *testing.T) {
	pagedEveryWay(t, func(t *testing.T, s *mlx.Scope, specs []Spec, kernels bool) {
		w := newTwins(t, s, specs, kernels, 0, 7)
		defer w.close()
		w.step(250, 3)
		w.step(1, 0)
		w.step(20, 1)
		w.step(1, 252)
		w.step(260, 1)
		w.step(1, 1)
		for i := range w.paged { // a draft across a border, of which nothing or a part is taken
			for _, c := range []*Cache{w.paged[i], w.plain[i]} {
				c.Mark()
			}
		}
		w.step(9, 30)
		for i, n := range []int{w.plain[0].Offset() - 9, w.plain[1].Offset() - 3} {
			require.Equal(t, w.plain[i].Rewind(n), w.paged[i].Rewind(n))
		}
		w.step(3, 1)
		w.step(1, 4)
	})
}

// pieces copies the first n tokens in runs that end where an engine's do.
func pieces(t *testing.T, s *mlx.Scope, c *Cache, borders ...int) (out []Piece) {
	t.Helper()
	from := 0
	for _, to := range borders {
		for from < to {
			next := min(to, (from/Step+1)*Step)
			r, err := c.Copy(s, from, next)
			require.NoError(t, err)
			out, from = append(out, Piece{Run: r, Tokens: next - from}), next
		}
	}
	return out
}

func release(all []Piece) {
	for _, p := range all {
		p.Run.Close()
	}
}

func totalOf(pieces []Piece) (n int) {
	for _, p := range pieces {
		n += p.Tokens
	}
	return n
}

// A cache goes on from what another one, of either layout, holds, while that one goes on too: who writes in a shared block writes in a
// copy.
func TestSharedBlocksAreCopiedBeforeTheyAreWritten(t *testing.T) {
	pagedEveryWay(t, func(t *testing.T, s *mlx.Scope, specs []Spec, kernels bool) {
		w := newTwins(t, s, specs, kernels, 0, 0, 0)
		defer w.close()
		w.step(590, 0, 0)
		paged, plain := pieces(t, s, w.paged[0], 100, 590), pieces(t, s, w.plain[0], 100, 590)
		defer release(paged)
		defer release(plain)
		some, n := w.paged[1].Usable(paged)
		same, m := w.plain[1].Usable(plain)
		require.Equal(t, m, n, "what can be gone on with is the same")
		require.NoError(t, w.paged[1].Fill(s, some), w.what)
		require.NoError(t, w.plain[1].Fill(s, same), w.what)
		if n == 590 {
			l := w.paged[1].layers[0].(*pages)
			require.Equal(t, w.paged[0].layers[0].(*pages).table, l.table, "nothing was copied")
			require.Equal(t, 3, w.pool.Used())
			require.Equal(t, w.paged[1].Whole(), w.paged[0].Whole())
			require.Equal(t, w.paged[1].Whole(), w.paged[2].Begins(some))
		}
		w.step(1, 5, 0)
		w.step(30, 1, 0)
		if n == 590 {
			require.Equal(t, 4, w.pool.Used(), "each has its own last block")
		}
		// A third one from the same, cut in the middle of a block.
		some, same = w.cut(paged, plain, 300)
		require.NoError(t, w.paged[2].Fill(s, some))
		require.NoError(t, w.plain[2].Fill(s, same))
		w.step(1, 1, 40)
	})
}

// cut is what is usable of the first n tokens, in both.
func (w *twins) cut(paged, plain []Piece, n int) (a, b []Piece) {
	first := func(all []Piece) (out []Piece) {
		left := n
		for _, p := range all {
			if p.Tokens = min(p.Tokens, left); p.Tokens > 0 {
				out, left = append(out, p), left-p.Tokens
			}
		}
		return out
	}
	a, _ = w.paged[2].Usable(first(paged))
	b, _ = w.plain[2].Usable(first(plain))
	require.Equal(w.t, totalOf(b), totalOf(a))
	return a, b
}

// Runs are written to a store as the plain cache writes them, and read by either.
func TestBothLayoutsWriteTheSameRuns(t *testing.T) {
	pagedEveryWay(t, func(t *testing.T, s *mlx.Scope, specs []Spec, kernels bool) {
		w := newTwins(t, s, specs, kernels, 0, 0, 0)
		defer w.close()
		w.step(530, 0, 0)
		paged, plain := pieces(t, s, w.paged[0], 90, 530), pieces(t, s, w.plain[0], 90, 530)
		defer release(paged)
		defer release(plain)
		var read [2][]Piece
		for i := range paged {
			a, err := paged[i].Run.Encode(s)
			require.NoError(t, err)
			b, err := plain[i].Run.Encode(s)
			require.NoError(t, err)
			require.True(t, string(a) == string(b), "run %d: %s", i, w.what)
			for j, c := range []*Cache{w.paged[1], w.plain[1]} {
				r, err := c.DecodeRun(s, mlx.Float32, a)
				require.NoError(t, err)
				defer r.Close()
				read[j] = append(read[j], Piece{Run: r, Tokens: r.Tokens()})
			}
		}
		whole := [2][]Piece{joined(t, s, w.paged[1], paged), joined(t, s, w.plain[1], plain)}
		defer release(whole[0])
		defer release(whole[1])
		for i, all := range []struct{ paged, plain []Piece }{{read[0], read[1]}, {whole[0], whole[1]}} {
			some, n := w.paged[i+1].Usable(all.paged)
			same, m := w.plain[i+1].Usable(all.plain)
			require.Equal(t, m, n)
			require.NoError(t, w.paged[i+1].Fill(s, some))
			require.NoError(t, w.plain[i+1].Fill(s, same))
		}
		w.step(1, 7, 9)
		w.step(0, 1, 1)
	})
}

// joined is one run of the pieces.
func joined(t *testing.T, s *mlx.Scope, c *Cache, pieces []Piece) []Piece {
	t.Helper()
	r, err := c.Join(s, pieces)
	require.NoError(t, err)
	return []Piece{{Run: r, Tokens: r.Tokens()}}
}

func TestAPoolIsNeverBeyondItsBlocks(t *testing.T) {
	for _, kernels := range []bool{true, false} {
		err := onWorkerEnds(t, func(s *mlx.Scope) {
			pool := NewPool(3)
			a, b := pool.Cache(one(Format{}, 0, 0), kernels), pool.Cache(one(Format{}, 0, 0), kernels)
			defer a.Close()
			defer b.Close()
			feed(t, s, a, mlx.Float32, 400, 100)
			feed(t, s, b, mlx.Float32, 256, 256)
			require.Equal(t, 3, pool.Used())
			require.NoError(t, s.Err())
			require.Equal(t, 200, a.Rewind(200))
			require.Equal(t, 2, pool.Used(), "what is not used any more is given back")
			feed(t, s, b, mlx.Float32, 300, 300)
			require.NoError(t, s.Err())
			a.Begin(100).Attend(s, 0, mlx.FromSlice(s, inputs(0, 200, 100), 1, 100, width), Attention{Heads: group, Scale: 1})
		})
		require.ErrorContains(t, err, "all 3 are in use")
	}
}
