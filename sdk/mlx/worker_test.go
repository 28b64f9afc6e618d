package mlx

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestPanicInDoIsAnErrorAndWorkerGoesOn(t *testing.T) {
	w := newTestWorker(t)
	err := w.Do(t.Context(), func(s *Scope) error {
		FromSlice(s, []float32{1})
		panic("boom")
	})
	var p *PanicError
	require.ErrorAs(t, err, &p)
	require.Equal(t, "panic on the mlx worker: boom", err.Error())
	require.Contains(t, p.Stack, "worker_test.go")
	require.Zero(t, LiveHandles())
	require.NoError(t, w.Do(t.Context(), func(*Scope) error { return nil }))
}

// An inert array has no shape, so model code that goes on may index past it: the cause is the first error.
func TestPanicAfterAFailedOpReportsTheOp(t *testing.T) {
	w := newTestWorker(t)
	err := w.Do(t.Context(), func(s *Scope) error {
		x := s.Reshape(FromSlice(s, []float32{1, 2}), 3)
		_ = 10 / x.Dim(0)
		return nil
	})
	require.ErrorContains(t, err, "reshape: [2]: ")
}

func TestContextCancelsOnlyQueuedWork(t *testing.T) {
	w := newTestWorker(t)
	running, release := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		first <- w.Do(ctx, func(*Scope) error { close(running); <-release; return nil })
	}()
	<-running
	queued := make(chan error, 1)
	go func() { queued <- w.Do(ctx, func(*Scope) error { return errors.New("ran") }) }()
	time.Sleep(10 * time.Millisecond)
	cancel()
	require.ErrorIs(t, <-queued, context.Canceled)
	close(release)
	require.NoError(t, <-first)
}

func TestDoAfterCloseIsRefused(t *testing.T) {
	w, err := testRuntime.NewWorker(CPU)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	err = w.Do(t.Context(), func(*Scope) error { return nil })
	require.Equal(t, contract.Unavailable, contract.KindOf(err))
}

func TestAbsentDeviceIsRefused(t *testing.T) {
	if testRuntime.HasGPU() {
		w, err := testRuntime.NewWorker(GPU)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return
	}
	_, err := testRuntime.NewWorker(GPU)
	require.ErrorContains(t, err, "no gpu")
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
}

// Streams are thread-local in MLX, and the error message belongs to the thread: workers beside one another do not mix.
func TestWorkersRunSideBySide(t *testing.T) {
	var wg sync.WaitGroup
	ws := []*Worker{newTestWorker(t), newTestWorker(t), newTestWorker(t)}
	for i, w := range ws {
		for range 2 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for k := range 20 {
					err := w.Do(context.Background(), func(s *Scope) error {
						x := s.Full([]int{8, 8}, s.Scalar(float64(i+1), Float32), Float32)
						if k%3 == 0 {
							s.Matmul(x, s.Zeros([]int{i + 1, 2}, Float32))
							return nil
						}
						v, err := Item[float32](s, s.SumAll(s.Matmul(x, x), false))
						if v != float32(8*8*8*(i+1)*(i+1)) {
							return errors.New("wrong sum")
						}
						return err
					})
					if k%3 == 0 {
						if err == nil || err.Error()[:20] != "matmul: [8 8] x ["+string(rune('1'+i))+" 2" {
							t.Errorf("worker %d: %v", i, err)
						}
					} else if err != nil {
						t.Errorf("worker %d: %v", i, err)
					}
				}
			}()
		}
	}
	wg.Wait()
}

// singular fails when it is evaluated, not when it is built.
func singular(s *Scope) *Array { return s.LinalgInv(s.Zeros([]int{300, 300}, Float32)) }

func TestFailedEvaluationPoisonsUntilACleanSynchronize(t *testing.T) {
	w := newTestWorker(t)
	err := w.Do(t.Context(), func(s *Scope) error { return s.Eval(singular(s)) })
	require.ErrorContains(t, err, "eval: [300 300]: [Inverse::eval_cpu]")
	require.EqualValues(t, 1, w.Poisoned())

	err = w.Do(t.Context(), func(s *Scope) error {
		_, err := ToSlice[float32](s, FromSlice(s, []float32{1}))
		return err
	})
	require.ErrorContains(t, err, "its results are undefined")

	require.NoError(t, w.Do(t.Context(), func(s *Scope) error {
		if err := s.Synchronize(); err != nil {
			return err
		}
		require.Zero(t, w.Poisoned())
		v, err := Item[float32](s, s.AddScalar(FromSlice(s, []float32{1}), 1))
		require.Equal(t, float32(2), v)
		return err
	}))
}

// Trap of DESIGN section 9: an op that fails inside async_eval returns 0 and the next unrelated evaluation gets the error.
func TestErrorInsideAsyncEvalReachesTheNextEvaluation(t *testing.T) {
	w := newTestWorker(t)
	err := w.Do(t.Context(), func(s *Scope) error {
		if err := s.AsyncEval(singular(s)); err != nil {
			return err // the failure may be fast enough to be seen here
		}
		time.Sleep(50 * time.Millisecond)
		return s.Eval(s.AddScalar(FromSlice(s, []float32{1}), 1))
	})
	require.ErrorContains(t, err, "[Inverse::eval_cpu]")
	require.NotZero(t, w.Poisoned())
}

func TestErrorInsideAsyncEvalReachesSynchronizeAndTheReader(t *testing.T) {
	w := newTestWorker(t)
	err := w.Do(t.Context(), func(s *Scope) error {
		_ = s.AsyncEval(singular(s))
		if s.Err() != nil {
			return s.Err()
		}
		return s.Synchronize()
	})
	require.ErrorContains(t, err, "[Inverse::eval_cpu]")
	require.NotZero(t, w.Poisoned())
	require.NoError(t, w.Do(t.Context(), (*Scope).Synchronize))
	require.Zero(t, w.Poisoned())

	err = w.Do(t.Context(), func(s *Scope) error {
		x := singular(s)
		_ = s.AsyncEval(x)
		_, err := ToSlice[float32](s, x)
		return err
	})
	require.ErrorContains(t, err, "[Inverse::eval_cpu]")
}

// require.FailNow inside Do is runtime.Goexit on the worker's goroutine.
func TestGoexitInDoEndsTheWorkerNotTheCaller(t *testing.T) {
	w, err := testRuntime.NewWorker(CPU)
	require.NoError(t, err)
	err = w.Do(t.Context(), func(s *Scope) error {
		FromSlice(s, []float32{1})
		runtime.Goexit()
		return nil
	})
	require.ErrorContains(t, err, "ended its worker's goroutine")
	require.Zero(t, LiveHandles())
	require.NoError(t, w.Close())
	require.Equal(t, contract.Unavailable, contract.KindOf(w.Do(t.Context(), func(*Scope) error { return nil })))
}
