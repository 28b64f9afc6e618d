package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
)

// Config is what a composition settles for an engine.
type Config struct {
	// Context is the most tokens of one sequence, prompt and generated together.
	Context int
	// MaxGeneration bounds the tokens of one request; 0 leaves it to the context.
	MaxGeneration int
	// PrefillChunk is the most tokens of one prefill evaluation; the engine takes fewer when they last too long.
	PrefillChunk int
	// Queue is how many requests may wait for the running one; more are Busy.
	Queue int
	// EOS ends a generation unless a request ignores it.
	EOS []int32
	// Kernels are those that the model's weights were packed for; nil without.
	Kernels *mlx.Kernels
	// MaxThreads is the composition's maximum for them.
	MaxThreads uint32
	// Parameters is the size of the model, from which the first prefill chunk is guessed.
	Parameters int64
	// Provenance is copied into every finish, completed with the request's seed.
	Provenance *cladev1.Provenance
}

// stockThreads is what the stock CPU runtime computes with: one stream is one thread, and its BLAS has no threads of its own.
const stockThreads = 1

// threads is what the model computes with.
func (e *Engine) threads() uint32 {
	if e.config.Kernels == nil {
		return stockThreads
	}
	return uint32(e.config.Kernels.Threads())
}

// Engine runs requests on one model, one at a time, first come first served. It owns the model and the worker: Close ends
// both.
type Engine struct {
	runtime *mlx.Runtime
	worker  *mlx.Worker
	model   Model
	layout  Layout
	config  Config
	started time.Time

	turn    chan struct{} // holds the one turn; receivers wait in order
	closing chan struct{}
	waiting atomic.Int32
	pace    pace // touched only by the request that has the turn

	running                       atomic.Int32
	evaluations, tokens           atomic.Uint64
	promptTokens, generatedTokens atomic.Uint64
}

// New makes an engine over an open model.
func New(runtime *mlx.Runtime, worker *mlx.Worker, model Model, config Config) *Engine {
	e := &Engine{
		runtime: runtime, worker: worker, model: model, layout: model.Layout(), config: config, started: time.Now(),
		turn: make(chan struct{}, 1), closing: make(chan struct{}), pace: newPace(config.PrefillChunk, firstChunk(config)),
	}
	e.turn <- struct{}{}
	return e
}

// enter waits for the turn. The returned function gives it back.
func (e *Engine) enter(ctx context.Context) (leave func(), err error) {
	leave = func() {
		e.running.Store(0)
		e.turn <- struct{}{}
	}
	select {
	case <-e.turn: // nobody runs, so nobody waits
		e.running.Store(1)
		return leave, nil
	default:
	}
	defer e.waiting.Add(-1)
	if int(e.waiting.Add(1)) > e.config.Queue {
		return nil, contract.Errorf(contract.Busy, "queue", "%d requests are waiting already", e.config.Queue).
			WithNext("try again later")
	}
	select {
	case <-e.turn:
		e.running.Store(1)
		return leave, nil
	case <-ctx.Done():
		return nil, cancelled(ctx)
	case <-e.closing:
		return nil, contract.Errorf(contract.Unavailable, "model", "it is closing")
	}
}

// do runs fn on the worker's thread. After a failed evaluation everything in flight is undefined: the caller drops it, and
// do synchronizes so that the next request starts clean.
func (e *Engine) do(ctx context.Context, fn func(*mlx.Scope) error) error {
	err := e.worker.Do(ctx, func(s *mlx.Scope) error {
		return errors.Join(fn(s), s.Err())
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	if e.worker.Poisoned() > 0 {
		_ = e.worker.Do(context.Background(), (*mlx.Scope).Synchronize)
	}
	var known *contract.Error
	if errors.As(err, &known) {
		return err
	}
	return contract.Errorf(contract.Internal, "evaluation", "%w", err)
}

func cancelled(ctx context.Context) error {
	return contract.Errorf(contract.Cancelled, "request", "%w", context.Cause(ctx))
}

// Progress counts evaluations and tokens since the engine was made.
func (e *Engine) Progress() (evaluations, tokens uint64) {
	return e.evaluations.Load(), e.tokens.Load()
}

// Stats is the state of the moment.
func (e *Engine) Stats() *cladev1.StatsResponse {
	return &cladev1.StatsResponse{
		Memory: MemoryStats(e.runtime, e.config.Kernels), ActiveRequests: uint32(e.running.Load()),
		QueuedRequests: uint32(max(0, e.waiting.Load())), PromptTokens: e.promptTokens.Load(),
		GeneratedTokens: e.generatedTokens.Load(), Evaluations: e.evaluations.Load(), Threads: e.threads(),
		LiveArrays: mlx.LiveHandles(), UptimeNs: uint64(time.Since(e.started)),
	}
}

// MemoryStats reads the runtime's counters, packed weights included, and the process's resident size.
func MemoryStats(r *mlx.Runtime, k *mlx.Kernels) *cladev1.MemoryStats {
	out := &cladev1.MemoryStats{RssBytes: residentBytes()}
	if m, err := r.Memory(); err == nil {
		out.ActiveBytes, out.PeakBytes, out.CacheBytes = uint64(m.Active), uint64(m.Peak), uint64(m.Cache)
	}
	if k != nil {
		packed := uint64(k.WeightBytes())
		out.ActiveBytes, out.PeakBytes = out.ActiveBytes+packed, out.PeakBytes+packed
	}
	return out
}

// Tune sets the kernels' threads and answers those in force. The stock runtime cannot change its one.
func (e *Engine) Tune(_ context.Context, threads uint32) (uint32, error) {
	if threads == 0 {
		return 0, contract.Errorf(contract.InvalidArgument, "threads", "at least one is needed")
	}
	if e.config.Kernels != nil {
		if err := e.config.Kernels.SetThreads(int(min(threads, e.config.MaxThreads))); err != nil {
			return 0, contract.Errorf(contract.Internal, "threads", "%w", err)
		}
	}
	return e.threads(), nil
}

// Close waits for the running request, then frees the model and ends the worker.
func (e *Engine) Close() error {
	select {
	case <-e.closing:
		return nil
	default:
		close(e.closing)
	}
	<-e.turn
	err := e.worker.Do(context.Background(), func(*mlx.Scope) error {
		e.model.Close()
		return nil
	})
	if err = errors.Join(err, e.worker.Close()); err != nil {
		return fmt.Errorf("close the model: %w", err)
	}
	return nil
}
