package kv

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

const (
	wide  = 64 // columns of coded heads
	group = 2  // query heads of the one head of keys
	width = (group + 2) * wide
)

// formats are one of each kind that a layer may have.
var formats = []Format{
	{},
	{Keys: Code{Kind: Float, DType: mlx.BFloat16}, Values: Code{Kind: Float, DType: mlx.BFloat16}},
	{Keys: Code{Kind: Affine, Bits: 8, Group: 64}, Values: Code{Kind: Affine, Bits: 8, Group: 64}},
	{Keys: Code{Kind: Affine, Bits: 4, Group: 32}, Values: Code{Kind: Affine, Bits: 4, Group: 32}},
	{Keys: Code{Kind: Affine, Bits: 3, Group: 64}, Values: Code{Kind: Affine, Bits: 5, Group: 32}},
	{Keys: Code{Kind: Turbo, Bits: 8}, Values: Code{Kind: Turbo, Bits: 3}},
	{Keys: Code{Kind: Turbo, Bits: 4}, Values: Code{Kind: Turbo, Bits: 4}},
	{Keys: Code{Kind: Turbo, Bits: 2}, Values: Code{Kind: Turbo, Bits: 5}},
}

// inputs are n tokens' projections from a position on, which no other sequence has.
func inputs(sequence, first, n int) []float32 {
	for i := len(waves[sequence]); i < width*(first+n); i++ {
		x := float64(1000*sequence + i)
		waves[sequence] = append(waves[sequence], float32(math.Sin(x)+math.Sin(0.7*x*x)))
	}
	return waves[sequence][width*first : width*(first+n)]
}

var waves = map[int][]float32{}

// step attends over the next n tokens of each sequence, and returns what each gets.
func step(t testing.TB, s *mlx.Scope, dtype mlx.DType, sequences []int, caches []*Cache, n ...int) [][]float32 {
	t.Helper()
	var segments []Segment
	var qkv []float32
	for i, c := range caches {
		segments = append(segments, Segment{Cache: c, Tokens: n[i]})
		qkv = append(qkv, inputs(sequences[i], c.Offset(), n[i])...)
	}
	pass := Begin(segments...)
	x := s.AsType(mlx.FromSlice(s, qkv, 1, pass.Tokens(), width), dtype)
	got, err := mlx.ToSlice[float32](s, s.AsType(pass.Attend(s, 0, x, Attention{Heads: group, Scale: 0.125}), mlx.Float32))
	require.NoError(t, err)
	pass.End()
	out := make([][]float32, len(n))
	for i, m := range n {
		out[i], got = got[:m*group*wide], got[m*group*wide:]
	}
	return out
}

// feed runs total tokens of sequence 0 through a cache in cuts, no longer than it takes, and returns everything it answers.
func feed(t testing.TB, s *mlx.Scope, c *Cache, dtype mlx.DType, total int, cuts ...int) []float32 {
	t.Helper()
	var out []float32
	for i := 0; c.Offset() < total; i++ {
		n := Cut(c.specs, c.Offset(), min(cuts[i%len(cuts)], total-c.Offset()))
		out = append(out, step(t, s, dtype, []int{0}, []*Cache{c}, n)[0]...)
		s.Sweep()
	}
	return out
}

// near holds got to want: bit for bit with a delta of 0. (testify compares slices by reflection, which takes seconds for these.)
func near(t testing.TB, want, got []float32, delta float64, what string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want), fmt.Sprintf(what, args...))
	for i, w := range want {
		if w != got[i] && !(math.Abs(float64(w)-float64(got[i])) <= delta) {
			require.InDelta(t, w, got[i], delta, fmt.Sprintf(what, args...)+fmt.Sprintf(", token %d", i/(group*wide)))
		}
	}
}

// rounding is how far apart two ways may be: not at all by kernels, what SDPA's order of sums gives by stock operations.
func rounding(kernels bool) float64 {
	if kernels {
		return 0
	}
	return 2e-5
}

func one(f Format, window, keep int) []Spec {
	return []Spec{{Heads: 1, HeadDim: wide, Window: window, Keep: keep, Format: f}}
}

// Every format gives the same bits however tokens are cut, on any number of threads, at every dispatch level, alone or with others;
// and its kernel agrees with the stock operations.
func TestAFormatDoesNotDependOnHowItIsComputed(t *testing.T) {
	for i, f := range formats {
		for _, window := range []int{0, 100} {
			for _, dtype := range []mlx.DType{mlx.Float32, mlx.BFloat16} {
				if window > 0 && dtype == mlx.BFloat16 {
					continue
				}
				t.Run(fmt.Sprintf("%d %+v window %d %v", i, f, window, dtype), func(t *testing.T) {
					everyWay(t, f, window, dtype)
				})
			}
		}
	}
}

func everyWay(t *testing.T, f Format, window int, dtype mlx.DType) {
	const total = 530
	specs := one(f, window, 0)
	require.NoError(t, specs[0].Check())
	onWorker(t, func(s *mlx.Scope) {
		k := kernelsOf(t)
		defer func() { require.NoError(t, k.SetLevel("")) }()
		run := func(kernels bool, cuts ...int) []float32 {
			c := New(specs, kernels)
			defer c.Close()
			return feed(t, s, c, dtype, total, cuts...)
		}
		want := run(true, total)
		stock := run(false, 97, 1, 200)
		delta := 2e-5
		if dtype == mlx.BFloat16 {
			delta = 0.03
		}
		near(t, stock, want, delta, "stock operations")
		for _, cuts := range [][]int{{33, 1, 2, 7, 8, 9, 31, 32}, {1, 255, 257}} {
			near(t, want, run(true, cuts...), 0, "cuts %v", cuts)
		}
		threads := k.Threads()
		for _, n := range []int{1, 3} {
			require.NoError(t, k.SetThreads(n))
			near(t, want, run(true, 300, 1), 0, "%d threads", n)
		}
		require.NoError(t, k.SetThreads(threads))
		for _, level := range k.Levels() {
			require.NoError(t, k.SetLevel(level))
			near(t, want, run(true, 129, 3), 0, "level %s", level)
		}
		require.NoError(t, k.SetLevel(""))

		a, b := New(specs, true), New(specs, true)
		defer a.Close()
		defer b.Close()
		together := step(t, s, dtype, []int{0, 7}, []*Cache{a, b}, 40, 3)
		near(t, want[:40*group*wide], together[0], 0, "beside another")
		together = step(t, s, dtype, []int{0, 7}, []*Cache{a, b}, 1, 9)
		near(t, want[40*group*wide:41*group*wide], together[0], 0, "beside another")
	})
}

// kernelsOf is the library that onWorker's runtime loaded.
func kernelsOf(t testing.TB) *mlx.Kernels {
	t.Helper()
	r, err := mlx.Open(runtimeDir())
	require.NoError(t, err)
	k, err := r.Kernels()
	require.NoError(t, err)
	return k
}

// A ring gives what a cache that forgets nothing gives, at every border of windows, tiles and rings, with first tokens kept too.
func TestARotatingCacheIsRightAtEveryBorder(t *testing.T) {
	for i, f := range []Format{formats[0], formats[3], formats[5]} {
		for j, c := range []struct{ window, keep int }{{1, 0}, {255, 0}, {256, 0}, {257, 0}, {512, 0}, {100, 4}, {255, 256}, {300, 1}} {
			if i > 0 && j%3 != i { // the ring is the same for all
				continue
			}
			bothWays(t, func(t *testing.T, kernels bool) {
				total := 1400
				if !kernels {
					total = 800
				}
				onWorker(t, func(s *mlx.Scope) {
					straight := New(one(f, c.window, c.keep), kernels)
					straight.layers[0].(*rows).slots = slots{}
					defer straight.Close()
					want := feed(t, s, straight, mlx.Float32, total, 64, 200, 1, 7)
					for name, cuts := range map[string][]int{"one by one": {1}, "chunks": {256, 255, 1, 257}, "beyond what is cut": {700, 3}} {
						if name == "one by one" && !kernels {
							continue
						}
						ring := New(one(f, c.window, c.keep), kernels)
						var got []float32
						for i := 0; ring.Offset() < total; i++ {
							n := min(cuts[i%len(cuts)], total-ring.Offset())
							got = append(got, step(t, s, mlx.Float32, []int{0}, []*Cache{ring}, n)[0]...)
							s.Sweep()
						}
						if name != "beyond what is cut" {
							require.LessOrEqual(t, ring.Arrays()[0].Dim(2), ring.specs[0].slots(), "its memory is bounded by the window")
						}
						ring.Close()
						near(t, want, got, rounding(kernels), "window %d, keep %d, %s", c.window, c.keep, name)
					}
				})
			})
		}
	}
}

// A window of first tokens kept is what the definition says: a query sees the first Keep and the last Window.
func TestKeptTokensAreSeenBesideTheWindow(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		onWorker(t, func(s *mlx.Scope) {
			const window, keep, total = 20, 3, 900
			c := New([]Spec{{Heads: 1, HeadDim: dim, Window: window, Keep: keep}}, kernels)
			defer c.Close()
			for position := 0; position < total; {
				n := min([]int{1, 9, 256}[position%3], total-position)
				for _, got := range attend(t, s, c, n) {
					sum, seen := 0.0, 0
					for p := range position + 1 {
						if p < keep || p > position-window {
							sum, seen = sum+float64(p), seen+1
						}
					}
					require.InDelta(t, sum/float64(seen), got, 1e-3, "position %d", position)
					position++
				}
			}
		})
	})
}

// Before its start a format is native; from it on the cache is what it were had it been coded from the first token.
func TestACacheGoesOverToItsCodesAtExactlyItsStart(t *testing.T) {
	const total = 560
	for i, f := range []Format{formats[3], formats[5], formats[1]} {
		for _, start := range []int{1, 257, 500} {
			if i > 0 && start != 257 {
				continue
			}
			for _, window := range []int{0, 60} {
				bothWays(t, func(t *testing.T, kernels bool) {
					onWorker(t, func(s *mlx.Scope) {
						all := func(f Format, cuts ...int) []float32 {
							c := New(one(f, window, 0), kernels)
							defer c.Close()
							return feed(t, s, c, mlx.Float32, total, cuts...)
						}
						native, coded := all(Format{}, total), all(f, total)
						require.False(t, slices.Equal(native, coded))
						f := f
						f.Start = start
						want := append(append([]float32{}, native[:start*group*wide]...), coded[start*group*wide:]...)
						for _, cuts := range [][]int{{total}, {100, 1, 7}} {
							got := all(f, cuts...)
							near(t, want, got, rounding(kernels), "start %d, cuts %v", start, cuts)
						}
					})
				})
			}
		}
	}
}

func TestAForwardAcrossTheStartIsRefused(t *testing.T) {
	f := formats[3]
	f.Start = 10
	for _, kernels := range []bool{true, false} {
		err := onWorkerEnds(t, func(s *mlx.Scope) {
			c := New(one(f, 0, 0), kernels)
			defer c.Close()
			c.Begin(11).Attend(s, 0, mlx.FromSlice(s, inputs(0, 0, 11), 1, 11, width), Attention{Heads: group, Scale: 1})
		})
		require.ErrorContains(t, err, "goes over to its codes at 10")
	}
	require.Equal(t, 10, Cut(one(f, 0, 0), 0, 11))
	require.Equal(t, 1, Cut(one(f, 0, 0), 9, 11))
	require.Equal(t, 11, Cut(one(f, 0, 0), 10, 11))
}

// One sequence may be native still while another is coded: they share a forward.
func TestSequencesBeforeAndBehindTheStartShareAForward(t *testing.T) {
	onWorker(t, func(s *mlx.Scope) {
		f := formats[3]
		f.Start = 40
		var caches, alone [2]*Cache
		for i := range caches {
			caches[i], alone[i] = New(one(f, 0, 0), true), New(one(f, 0, 0), true)
			defer caches[i].Close()
			defer alone[i].Close()
		}
		for _, n := range [][]int{{40, 20}, {9, 3}, {1, 1}, {3, 16}, {1, 1}} {
			got := step(t, s, mlx.Float32, []int{0, 7}, caches[:], n...)
			for i := range alone {
				require.Equal(t, step(t, s, mlx.Float32, []int{7 * i}, alone[i:i+1], n[i])[0], got[i])
			}
		}
	})
}

// A cache of any format that is filled from runs, read back from bytes, goes on as the one that they were copied of.
func TestAFilledCacheOfAnyFormatGoesOn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, f := range []Format{formats[0], formats[1], formats[4], formats[5]} {
		for _, window := range []int{0, 90, 300} {
			for _, start := range []int{0, 450} {
				if f.Native() && start > 0 {
					continue
				}
				for _, kernels := range []bool{true, false} {
					f.Start = start
					held, upTo := 300+r.IntN(500), r.IntN(200)
					what := fmt.Sprintf("%+v, window %d, held %d, cut by %d, kernels %v", f, window, held, upTo, kernels)
					onWorker(t, func(s *mlx.Scope) { goesOn(t, s, one(f, window, 0), kernels, held, upTo, what) })
				}
			}
		}
	}
}

func goesOn(t *testing.T, s *mlx.Scope, specs []Spec, kernels bool, held, upTo int, what string) {
	const more = 90
	first, second, straight := New(specs, kernels), New(specs, kernels), New(specs, kernels)
	for _, c := range []*Cache{first, second, straight} {
		defer c.Close()
	}
	feed(t, s, first, mlx.Float32, held, 77)
	pieces, left := []Piece(nil), held-upTo
	for from := 0; left > 0; from += Step {
		r, err := first.Copy(s, from, min(from+Step, held))
		require.NoError(t, err)
		defer r.Close()
		data, err := r.Encode(s)
		require.NoError(t, err)
		again, err := second.DecodeRun(s, mlx.Float32, data)
		require.NoError(t, err, what)
		defer again.Close()
		require.Equal(t, r.Bytes(), again.Bytes())
		for n := range min(len(data), 300) {
			_, err := second.DecodeRun(s, mlx.Float32, data[:n])
			require.Error(t, err)
		}
		n := min(Step, held-from, left)
		pieces, left = append(pieces, Piece{Run: again, Tokens: n}), left-n
	}
	pieces, n := second.Usable(pieces)
	start, window := specs[0].Format.Start, specs[0].Window
	switch {
	case start > 0 && held >= start && held-upTo < start:
		require.Zero(t, n, "%s: what is coded is no beginning of what is not", what)
	case window == 0 || held <= specs[0].slots():
		require.Equal(t, held-upTo, n, what)
	case upTo <= specs[0].slots()-Step-window:
		require.Equal(t, held-upTo, n, "%s: the ring has some more than the window", what)
	}
	if n > 0 {
		joined, err := second.Join(s, pieces)
		require.NoError(t, err)
		defer joined.Close()
		as, m := second.Usable([]Piece{{Run: joined, Tokens: n}})
		require.Equal(t, n, m, "%s, as one run", what)
		require.NoError(t, second.Fill(s, as), "%s, as one run", what)
		third := New(specs, kernels)
		defer third.Close()
		require.NoError(t, third.Fill(s, pieces), what)
		near(t, feed(t, s, third, mlx.Float32, n+9, 9), feed(t, s, second, mlx.Float32, n+9, 9), 0, "%s, as one run", what)
		second.Close()
	}
	require.NoError(t, second.Fill(s, pieces), what)
	require.Equal(t, n, second.Offset())
	want := feed(t, s, straight, mlx.Float32, n+more, 200)[n*group*wide:]
	got := feed(t, s, second, mlx.Float32, n+more, 50)
	near(t, want, got, rounding(kernels), "%s", what)
}

func TestBytesAreWhatABufferTakes(t *testing.T) {
	onWorker(t, func(s *mlx.Scope) {
		for _, f := range formats {
			for _, window := range []int{0, 100} {
				for _, dtype := range []mlx.DType{mlx.Float32, mlx.BFloat16} {
					specs := one(f, window, 0)
					c := New(specs, true)
					feed(t, s, c, dtype, 1025, 256)
					bytes := 0
					for _, a := range c.Arrays() {
						bytes += a.NBytes()
					}
					require.EqualValues(t, Bytes(specs, dtype, 1280, 1, 1280), bytes, "%+v, window %d, %v", f, window, dtype)
					c.Close()
				}
			}
		}
	})
	late := Format{Keys: formats[3].Keys, Values: formats[3].Values, Start: 300}
	specs := one(late, 0, 0)
	coded, native := specs[0].BytesPerToken(mlx.Float32), one(Format{}, 0, 0)[0].BytesPerToken(mlx.Float32)
	require.Equal(t, 2*512*native+(4096-2*512)*coded, Bytes(specs, mlx.Float32, 4096, 2, 2048), "two rows may be just before their start")
	require.Equal(t, 512*coded, Converting(specs, mlx.Float32, 2048))
	require.Zero(t, Converting(specs, mlx.Float32, 256))
}
