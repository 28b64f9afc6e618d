package engine

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/prefix"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
)

// listener is the encoder-decoder of testdata/source.py: layers that attend to the text and to a source of bytes.
type listener struct {
	caches  []kv.Spec // of each layer those of the text, then of the source
	arrays  []*mlx.Array
	encoded *atomic.Int64
	fails   func(media []plugin.Media) error
	embed, table, head,
	qkv, out, query, keys, values, cross []*mlx.Array
}

const (
	listenHidden, listenHeads, listenVocab, listenLayers = 32, 2, 64, 2
	listenLongest                                        = 64
)

func newListener(s *mlx.Scope) *listener {
	m := &listener{encoded: &atomic.Int64{}}
	wave := func(seed float64, rows int, scale float64) *mlx.Array {
		out := make([]float32, rows*listenHidden)
		for i := range out {
			out[i] = float32(math.Sin(seed + float64(i)*0.7 + float64(i%13)*1.9))
		}
		a := s.MulScalar(mlx.FromSlice(s, out, rows, listenHidden), scale)
		_ = s.Eval(a)
		m.arrays = append(m.arrays, s.Keep(a))
		return a
	}
	m.embed, m.table, m.head = []*mlx.Array{wave(1, listenVocab, 1)}, []*mlx.Array{wave(2, 256, 1)}, []*mlx.Array{wave(3, listenVocab, 1)}
	for i := range listenLayers {
		at := float64(i)
		m.qkv, m.out = append(m.qkv, wave(10+at, 3*listenHidden, 0.3)), append(m.out, wave(20+at, listenHidden, 0.2))
		m.query, m.cross = append(m.query, wave(30+at, listenHidden, 0.3)), append(m.cross, wave(60+at, listenHidden, 0.2))
		m.keys, m.values = append(m.keys, wave(40+at, listenHidden, 0.3)), append(m.values, wave(50+at, listenHidden, 0.3))
		width := listenHidden / listenHeads
		m.caches = append(m.caches, kv.Spec{Heads: listenHeads, HeadDim: width}, kv.Spec{Heads: listenHeads, HeadDim: width, Source: listenLongest})
	}
	return m
}

func (m *listener) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	x := s.Take(m.embed[0], ids, 0)
	through := func(x, w *mlx.Array) *mlx.Array { return s.Matmul(x, s.Transpose(w)) }
	for i := range listenLayers {
		o := pass.Attend(s, 2*i, through(x, m.qkv[i]), kv.Attention{Heads: listenHeads, Scale: 0.25})
		x = s.Add(x, through(o, m.out[i]))
		o = pass.AttendSource(s, 2*i+1, through(x, m.query[i]), listenHeads, 0.25)
		x = s.Add(x, through(o, m.cross[i]))
	}
	return x
}

func (m *listener) Unembed(s *mlx.Scope, hidden *mlx.Array) *mlx.Array {
	return s.Matmul(hidden, s.Transpose(m.head[0]))
}

// Encode looks the bytes up.
func (m *listener) Encode(s *mlx.Scope, media []plugin.Media) (*kv.Source, error) {
	m.encoded.Add(1)
	if m.fails != nil {
		if err := m.fails(media); err != nil {
			return nil, err
		}
	}
	ids := make([]int32, len(media[0].Data))
	for i, b := range media[0].Data {
		ids[i] = int32(b)
	}
	y := s.Take(m.table[0], mlx.FromSlice(s, ids), 0)
	var states []kv.SourceStates
	for i := range listenLayers {
		heads := func(w *mlx.Array) *mlx.Array {
			return s.Transpose(s.Reshape(s.Matmul(y, s.Transpose(w)), 1, len(ids), listenHeads, -1), 0, 2, 1, 3)
		}
		states = append(states, kv.SourceStates{Keys: heads(m.keys[i]), Values: heads(m.values[i])})
	}
	return kv.NewSource(s, m.caches, states...)
}

func (m *listener) Close() {
	for _, a := range m.arrays {
		a.Close()
	}
}

// heard is a golden: a prompt behind a source.
type heard struct {
	Source, Prompt, Greedy []int32
	Last                   string
}

func (h heard) media() []plugin.Media {
	data := make([]byte, len(h.Source))
	for i, v := range h.Source {
		data[i] = byte(v)
	}
	return []plugin.Media{{Type: "audio/f32le-16k", Data: data}}
}

func (h heard) job() *plugin.GenerateJob {
	return &plugin.GenerateJob{IDs: h.Prompt, Media: h.media(), Start: &cladev1.GenerateStart{
		MaxTokens: new(uint32(len(h.Greedy))), Sampling: &cladev1.Sampling{IgnoreEos: new(true)},
	}}
}

func readHeard(t *testing.T) []heard {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "source.json"))
	require.NoError(t, err)
	var out []heard
	require.NoError(t, json.Unmarshal(data, &out))
	require.Len(t, out, 9)
	return out
}

// listen opens an engine over the model, which leaves nothing behind.
func listen(t *testing.T, config Config, change func(*listener)) (*Engine, *listener) {
	t.Helper()
	r, k := testRuntime(t)
	before := mlx.LiveHandles()
	w, err := r.NewWorker(mlx.CPU)
	require.NoError(t, err)
	var m *listener
	require.NoError(t, w.Do(context.Background(), func(s *mlx.Scope) error { m = newListener(s); return s.Err() }))
	if change != nil {
		change(m)
	}
	config.Context, config.Queue, config.Provenance, config.Kernels, config.Sampler, config.MaxThreads = 512, 64, &cladev1.Provenance{}, k, k, 2
	config.PrefillChunk, config.DType, config.Layout = max(config.PrefillChunk, 1), mlx.Float32, Layout{Vocab: listenVocab, Caches: m.caches}
	e := New(r, w, m, config)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.Equal(t, before, mlx.LiveHandles(), "every source is freed")
	})
	return e, m
}

func hear(e *Engine, job *plugin.GenerateJob) (ids []int32, usage *cladev1.Usage, err error) {
	err = e.Generate(context.Background(), job, func(r *cladev1.GenerateResponse) error {
		ids = append(ids, r.GetStep().GetIds()...)
		if f := r.GetFinish(); f != nil {
			usage = f.Usage
		}
		return nil
	})
	return ids, usage, err
}

// Logits are those of a numpy model, in ragged passes of rows whose sources have other lengths, and however prompts are cut: of them bit
// for bit.
func TestAttentionToASourceIsThatOfTheReference(t *testing.T) {
	all := readHeard(t)
	for _, kernels := range []bool{true, false} {
		onWorker(t, func(s *mlx.Scope, _ *mlx.Kernels) error {
			m := newListener(s)
			defer m.Close()
			var whole [][]float32
			for _, step := range []int{300, 7} {
				caches := make([]*kv.Cache, len(all))
				for i, h := range all {
					source, err := m.Encode(s, h.media())
					require.NoError(t, err)
					caches[i] = kv.New(m.caches, kernels)
					caches[i].Attach(source)
				}
				last := make([][]float32, len(all))
				for done := false; !done; {
					done = true
					var segments []kv.Segment
					var ids, of []int32
					for i, h := range all {
						at := caches[i].Offset()
						if n := min(step, len(h.Prompt)-at); n > 0 {
							segments, ids, of = append(segments, kv.Segment{Cache: caches[i], Tokens: n}), append(ids, h.Prompt[at:at+n]...), append(of, int32(i))
							done = false
						}
					}
					if done {
						break
					}
					pass := kv.Begin(segments...)
					logits, err := mlx.ToSlice[float32](s, m.Unembed(s, m.Forward(s, mlx.FromSlice(s, ids, 1, len(ids)), pass)))
					require.NoError(t, err)
					pass.End()
					s.Sweep()
					end := 0
					for j, g := range segments {
						end += g.Tokens
						last[of[j]] = slices.Clone(logits[(end-1)*listenVocab : end*listenVocab])
					}
				}
				for i, h := range all {
					raw, err := base64.StdEncoding.DecodeString(h.Last)
					require.NoError(t, err)
					top, diff := 0.0, 0.0
					for j, v := range last[i] {
						want := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:])))
						top, diff = max(top, math.Abs(want)), max(diff, math.Abs(want-float64(v)))
					}
					require.LessOrEqual(t, diff, 1e-5*top, "a source of %d, a prompt of %d", len(h.Source), len(h.Prompt))
					caches[i].Close()
				}
				if whole == nil {
					whole = last
				} else if kernels {
					require.Equal(t, whole, last, "cuts")
				}
			}
			return s.Err()
		})
	}
}

// Rows of unequal sources run together, are cancelled, put back and kept, and each has the reference's tokens. Rows of one source share
// its states; what is kept of one source's text is never another's.
func TestRowsAttendToTheirOwnSources(t *testing.T) {
	all := readHeard(t)
	for _, c := range []Config{
		{Rows: 1, PrefillChunk: 64},
		{Rows: 9, PrefillChunk: 7, PrefixBytes: 1 << 30},
		{Rows: 9, PrefillChunk: 50, KVTokens: 1024, PrefixBytes: 1 << 30, Paging: true}, // rows are put back
	} {
		t.Run(fmt.Sprintf("%d rows, paging %v", c.Rows, c.Paging), func(t *testing.T) {
			e, m := listen(t, c, nil)
			rng := rand.New(rand.NewPCG(1, uint64(c.Rows)))
			for range 3 {
				var wg sync.WaitGroup
				for range 18 {
					h, cancelAt := all[rng.IntN(len(all))], -1
					if rng.IntN(4) == 0 {
						cancelAt = rng.IntN(6)
					}
					wg.Go(func() {
						ctx, cancel := context.WithCancel(context.Background())
						defer cancel()
						var got []int32
						events := 0
						err := e.Generate(ctx, h.job(), func(r *cladev1.GenerateResponse) error {
							if events++; events == cancelAt {
								cancel()
							}
							got = append(got, r.GetStep().GetIds()...)
							return nil
						})
						if contract.KindOf(err) == contract.Cancelled {
							if len(got) > len(h.Greedy) || !slices.Equal(got, h.Greedy[:len(got)]) {
								t.Errorf("%v is no beginning of %v", got, h.Greedy)
							}
						} else if err != nil || !slices.Equal(got, h.Greedy) {
							t.Errorf("source %d prompt %d: got %v, want %v: %v", len(h.Source), len(h.Prompt), got, h.Greedy, err)
						}
					})
				}
				wg.Wait()
			}
			require.Zero(t, e.Stats().FailedEvaluations)
			require.Zero(t, e.Stats().KvTokensUsed)
			require.Positive(t, m.encoded.Load())
			if c.PrefixBytes > 0 {
				require.Positive(t, e.Stats().PrefixCachedTokens)
			}
		})
	}
}

// A request that goes on after a restart has its source computed again, and the tokens that it would have had.
func TestARowGoesOnWithItsSource(t *testing.T) {
	for _, h := range readHeard(t) {
		e, _ := listen(t, Config{Rows: 2, PrefillChunk: 40, PrefixBytes: 1 << 30}, nil)
		job := h.job()
		job.Start.GeneratedPrefix = new(uint32(len(h.Prompt)))
		job.IDs = append(slices.Clone(h.Prompt), h.Greedy[:5]...)
		ids, _, err := hear(e, job)
		require.NoError(t, err)
		require.Equal(t, h.Greedy[5:], ids)
	}
}

// What is kept of a text behind one source is found behind that source alone, in memory and on disk; and the same source is computed
// once for rows that are there together.
func TestKeptBeginningsAreOfOneSource(t *testing.T) {
	all := readHeard(t)
	long := func(at int) heard { return all[3*at+2] } // the same prompt behind another source
	dir := filepath.Join(t.TempDir(), "prefix")
	config := func() Config {
		files, err := prefix.OpenDisk(dir, 1<<30)
		require.NoError(t, err)
		return Config{Rows: 4, PrefillChunk: 64, PrefixBytes: 1 << 30, Disk: &Disk{Disk: files, Label: "listener", Identity: func(context.Context) (prefix.Identity, error) {
			return prefix.Identity{"listener"}, nil
		}}}
	}
	t.Run("first", func(t *testing.T) {
		e, _ := listen(t, config(), nil)
		for i := range 2 {
			h := long(i)
			ids, usage, err := hear(e, h.job())
			require.NoError(t, err)
			require.Equal(t, h.Greedy, ids)
			require.Zero(t, usage.CachedTokens, "another source's text is not this one's")
			ids, usage, err = hear(e, h.job())
			require.NoError(t, err)
			require.Equal(t, h.Greedy, ids)
			require.EqualValues(t, len(h.Prompt)-1, usage.CachedTokens)
		}
	})
	t.Run("after a restart", func(t *testing.T) {
		e, m := listen(t, config(), nil)
		for i, cached := range []int{256, 256, 0} {
			h := long(i)
			ids, usage, err := hear(e, h.job())
			require.NoError(t, err)
			require.Equal(t, h.Greedy, ids)
			require.GreaterOrEqual(t, int(usage.CachedTokens), cached)
			if cached == 0 {
				require.Zero(t, usage.CachedTokens)
			}
		}
		require.EqualValues(t, 3, m.encoded.Load())
	})
}

func TestRequestsWithoutTheirSourceAreRefused(t *testing.T) {
	e, _ := listen(t, Config{Rows: 2, PrefillChunk: 40}, func(m *listener) {
		m.fails = func(media []plugin.Media) error {
			if media[0].Data[0] == 99 {
				return errors.New("no sound")
			}
			return nil
		}
	})
	h := readHeard(t)[4]
	job := h.job()
	job.Media = nil
	_, _, err := hear(e, job)
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.ErrorContains(t, err, "media: the model attends to a source, and the request has none")

	err = e.Score(context.Background(), &plugin.ScoreJob{IDs: []int32{1}, Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS}}, func(*cladev1.ScoreResponse) error { return nil })
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))

	// One whose source cannot be computed fails alone.
	var wg sync.WaitGroup
	wg.Go(func() {
		bad := h.job()
		bad.Media[0].Data[0] = 99
		if _, _, err := hear(e, bad); err == nil || !errors.Is(err, err) {
			t.Error("it should fail")
		}
	})
	wg.Go(func() {
		if ids, _, err := hear(e, h.job()); err != nil || !slices.Equal(ids, h.Greedy) {
			t.Errorf("got %v, want %v: %v", ids, h.Greedy, err)
		}
	})
	wg.Wait()
	long := h.job()
	long.Media[0].Data = make([]byte, listenLongest+1)
	_, _, err = hear(e, long)
	require.ErrorContains(t, err, "of at most 64 positions")
}
