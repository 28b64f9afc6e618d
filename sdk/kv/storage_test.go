package kv

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// last keeps nothing but the number of tokens, as a recurrent state keeps one array whatever their number.
type last struct{ state *mlx.Array }

func (l *last) arrays() []*mlx.Array {
	if l.state == nil {
		return nil
	}
	return []*mlx.Array{l.state}
}

func (l *last) step(s *mlx.Scope, n int) {
	l.close()
	l.state = s.Keep(mlx.FromSlice(s, []float32{float32(n)}, 1))
}

func (l *last) take(s *mlx.Scope, _, to, offset int) (part, error) {
	if to != offset {
		return part{}, nil
	}
	return takeAll(s, l.state)
}

func (l *last) shapes(form uint8, _ int, dtype mlx.DType) ([]shape, bool) {
	return []shape{{dtype, []int{1}}}, form == 0
}

func (l *last) usable(sections []section, n int) int {
	end, best := 0, 0
	for _, c := range sections {
		end += c.tokens
		if end <= n && len(c.arrays) > 0 && c.from+c.tokens == c.of {
			best = end
		}
	}
	return best
}

func (l *last) fill(s *mlx.Scope, sections []section, n int) {
	end := 0
	for _, c := range sections {
		if end += c.tokens; end == n {
			p, err := takeAll(s, c.arrays...)
			if err != nil {
				_ = s.Fail(err)
				return
			}
			l.state = p.arrays[0]
		}
	}
}

func (l *last) join(s *mlx.Scope, sections []section) (part, error) { return lastPart(s, sections) }

func (l *last) close() {
	l.state.Close()
	l.state = nil
}

func TestLayersOfOneCacheMayKeepTheirPastDifferently(t *testing.T) {
	onWorker(t, func(s *mlx.Scope) {
		mixed := func() *Cache {
			c := New([]Spec{{Heads: 1, HeadDim: dim}, {}}, true)
			c.layers[1] = &last{}
			return c
		}
		forward := func(c *Cache, n int) []float32 {
			pass := c.Begin(n)
			out := pass.Attend(s, 0, mlx.FromSlice(s, projections(0, c.Offset(), n), 1, n, 3*dim), Attention{Heads: 1, Scale: 1})
			c.layers[1].(*last).step(s, c.Offset()+n)
			pass.End()
			got, err := mlx.ToSlice[float32](s, out)
			require.NoError(t, err)
			return got
		}
		c, again := mixed(), mixed()
		defer c.Close()
		defer again.Close()
		var pieces []Piece
		for from := 0; from < 700; from += 100 { // a state is kept where a run was copied as it ended, every 300 tokens
			forward(c, 100)
			if from%300 == 200 {
				r, err := c.Copy(s, from-200, from+100)
				require.NoError(t, err)
				defer r.Close()
				pieces = append(pieces, Piece{Run: r, Tokens: 300})
			}
		}
		short, n := again.Usable([]Piece{pieces[0], {Run: pieces[1].Run, Tokens: 299}})
		require.Equal(t, 300, n, "the second run is cut before its state")
		require.Len(t, short, 1)
		require.ErrorContains(t, again.Fill(s, []Piece{{Run: pieces[0].Run, Tokens: 10}}), "0 are usable")

		joined, err := again.Join(s, []Piece{{Run: pieces[0].Run, From: 200, Tokens: 100}, pieces[1]})
		require.NoError(t, err)
		defer joined.Close()
		_, n = again.Usable([]Piece{{Run: pieces[0].Run, Tokens: 200}, {Run: joined, Tokens: 400}})
		require.Equal(t, 600, n, "the state of the last one is the joined one's")
		cut, err := again.Join(s, []Piece{pieces[0], {Run: pieces[1].Run, Tokens: 100}})
		require.NoError(t, err)
		defer cut.Close()
		_, n = again.Usable([]Piece{{Run: cut, Tokens: 400}})
		require.Zero(t, n, "there is none where the last one was cut")

		require.NoError(t, again.Fill(s, pieces))
		require.Equal(t, 600, again.Offset())
		state, err := mlx.ToSlice[float32](s, again.layers[1].arrays()[0])
		require.NoError(t, err)
		require.Equal(t, []float32{600}, state)
		want := mixed()
		defer want.Close()
		forward(want, 600)
		require.Equal(t, forward(want, 50), forward(again, 50))
	})
}

func TestAttendingOverALayerWithoutKeysIsAnError(t *testing.T) {
	err := onWorkerEnds(t, func(s *mlx.Scope) {
		c := New([]Spec{{Heads: 1, HeadDim: dim}}, true)
		c.layers[0] = &last{}
		c.Begin(1).Attend(s, 0, mlx.FromSlice(s, projections(0, 0, 1), 1, 1, 3*dim), Attention{Heads: 1, Scale: 1})
	})
	require.ErrorContains(t, err, "layer 0 keeps no keys")
}
