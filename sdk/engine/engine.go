package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/adapters"
	"github.com/clademl/clade/sdk/engine/schedule"
	"github.com/clademl/clade/sdk/kv"
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
	// Rows is how many requests run at once; 0 is 1.
	Rows int
	// KVTokens is how many tokens the caches of all rows hold together, rounded up to kv.Step; 0 is Context for each row.
	KVTokens int
	// Layout is the model's, its caches with the formats that they are stored in.
	Layout Layout
	// Paging keeps layers that attend to all positions in blocks that rows with the same beginning, and what is kept of it, share.
	Paging bool
	// KVStart is the token at which the formats begin; a request that is resumed names it.
	KVStart int
	// PrefixBytes bounds what the beginnings of earlier requests may keep; 0 keeps none.
	PrefixBytes int64
	// Disk keeps them beyond the process; nil: nothing does.
	Disk *Disk
	// DType is what the model computes in.
	DType mlx.DType
	// Queue is how many requests may wait for a row; more are Busy.
	Queue int
	// EOS ends a generation unless a request ignores it.
	EOS []int32
	// Kernels are those that the model's weights were packed for; nil without.
	Kernels *mlx.Kernels
	// Sampler has the kernel that picks tokens; nil has MLX's operations do it.
	Sampler *mlx.Kernels
	// MaxThreads is the composition's maximum for them.
	MaxThreads uint32
	// Parameters is the size of the model, from which the first prefill chunk is guessed.
	Parameters int64
	// Adapters are those of the model, which requests choose from; nil: it takes none. The engine closes them.
	Adapters *adapters.Book
	// Constraints makes what narrows a request's tokens; nil refuses requests that ask for it.
	Constraints func(*cladev1.Constraint) (Constraint, error)
	// Speculation is what drafts tokens for the rows.
	Speculation Speculation
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

// Engine runs requests on one model, several at once. It owns the model and the worker: Close ends both.
type Engine struct {
	runtime *mlx.Runtime
	worker  *mlx.Worker
	model   Model
	layout  Layout
	config  Config
	started time.Time
	totals  totals

	saver *saver // nil: nothing is kept on disk

	mu      sync.Mutex
	said    []func() // for the loop
	closing bool
	deaf    bool // the loop ends: it runs nothing more
	wake    chan struct{}
	ended   chan struct{}

	// What follows is the loop's alone.
	sched        *schedule.Scheduler
	rows         map[*schedule.Row]*row
	flight       *flight // queued, not read
	garbage      []State
	leaving      []*row // rows that ended and whose cache is worth keeping
	memory       *memory
	sources      map[string]*kv.Source // that rows attend to, by digest
	blocks       *kv.Pool              // of the rows' caches; nil: each has its own buffers
	speculation  *speculation          // nil: nothing is drafted
	farewells    []func()              // to rows that ended
	pace, beside pace                  // of prefill alone, and while others decode
}

// totals are counters since the engine was made, and the loop's last counts.
type totals struct {
	evaluations, tokens           atomic.Uint64
	promptTokens, generatedTokens atomic.Uint64
	finished, failures, putBack   atomic.Uint64
	queueNs, prefillNs, decodeNs  atomic.Uint64
	rounds, drafted, accepted     atomic.Uint64
	draftFailures                 atomic.Uint64
	draftParked                   atomic.Pointer[string]
	active, queued                atomic.Int32
	freeBlocks                    atomic.Int64
}

// New makes an engine over an open model and starts its loop, which Close ends.
func New(runtime *mlx.Runtime, worker *mlx.Worker, model Model, config Config) *Engine {
	config.Rows = max(config.Rows, 1)
	if config.KVTokens == 0 {
		config.KVTokens = config.Rows * kv.Capacity(config.Context)
	}
	first := firstChunk(config)
	e := &Engine{
		runtime: runtime, worker: worker, model: model, layout: config.Layout, config: config, started: time.Now(),
		memory: newMemory(config.PrefixBytes), speculation: newSpeculation(config.Speculation, config.Rows),
		wake: make(chan struct{}, 1), ended: make(chan struct{}), rows: map[*schedule.Row]*row{}, sources: map[string]*kv.Source{},
		pace: newPace(config.PrefillChunk, first, evaluationTarget), beside: newPace(config.PrefillChunk, first/4, besideTarget),
	}
	room := schedule.Config{
		Cut:  func(first, n int) int { return kv.Cut(e.layout.Caches, first, n) },
		Rows: config.Rows, Queue: config.Queue, BlockTokens: kv.Step, Blocks: kv.Capacity(config.KVTokens) / kv.Step,
		Restore: func(r *schedule.Row) int { return e.restore(e.rows[r]) },
	}
	if config.Paging {
		e.blocks, room.Begins = kv.NewPool(room.Blocks), func(r *schedule.Row) []uint64 { return e.begins(e.rows[r]) }
	}
	e.memory.runs.Merges = config.Paging && !kv.Forgets(e.layout.Caches)
	e.sched = schedule.New(room)
	e.publish()
	e.tellParked()
	e.saver = e.startSaver()
	go e.loop()
	return e
}

// emptyCache is of no row.
func (e *Engine) emptyCache() *kv.Cache {
	return e.blocks.Cache(e.layout.Caches, e.config.Kernels != nil)
}

// newCache makes an empty cache for a row, whose forwards have the row's adapters, with the row's source.
func (e *Engine) newCache(s *mlx.Scope, r *row) (*kv.Cache, error) {
	c := e.emptyCache()
	if err := e.attach(s, r, c); err != nil {
		return nil, err
	}
	if book := e.config.Adapters; book != nil {
		c.Adapt(book.Board(), r.adapters.Stack)
	}
	return c, nil
}

// submit hands a row to the loop.
func (e *Engine) submit(r *row) error {
	refused := make(chan error, 1)
	now := time.Now()
	heard := e.tell(func() {
		if e.closes() {
			refused <- errClosing()
			return
		}
		r.submitted = now
		if e.memory.on && r.gen != nil && r.gen.remember && kv.Forgets(e.layout.Caches) {
			r.captures, r.Cut, r.passes = r.capturesOf(), r.cut, kv.Captures(e.layout.Caches)
		}
		refused <- e.enter(r, now)
	})
	if !heard {
		return errClosing()
	}
	return e.refusal(r, <-refused)
}

// refusal is the scheduler's in words.
func (e *Engine) refusal(r *row, err error) error {
	switch {
	case errors.Is(err, schedule.ErrBusy):
		return contract.Errorf(contract.Busy, "queue", "%d requests are waiting already", e.config.Queue).WithNext("try again later")
	case errors.Is(err, schedule.ErrTooLong):
		return contract.Errorf(contract.ContextTooLong, "prompt", "with what it may generate it takes %d tokens, the caches hold %d", r.Limit, e.config.KVTokens)
	default:
		return err
	}
}

func errClosing() error { return contract.Errorf(contract.Unavailable, "model", "it is closing") }

func (e *Engine) closes() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closing
}

// release sees that a row is out of the engine: its slot is free when it returns.
func (e *Engine) release(r *row) {
	if r.parted {
		return
	}
	done := make(chan struct{})
	if e.tell(func() { e.end(r, nil); close(done) }) {
		<-done
	}
}

// Progress counts evaluations and tokens since the engine was made.
func (e *Engine) Progress() (evaluations, tokens uint64) {
	return e.totals.evaluations.Load(), e.totals.tokens.Load()
}

// Stats is the state of the moment.
func (e *Engine) Stats() *cladev1.StatsResponse {
	t := &e.totals
	blocks := int64(kv.Capacity(e.config.KVTokens) / kv.Step)
	out := &cladev1.StatsResponse{
		Memory: MemoryStats(e.runtime, e.config.Kernels), ActiveRequests: uint32(t.active.Load()),
		QueuedRequests: uint32(t.queued.Load()), PromptTokens: t.promptTokens.Load(),
		GeneratedTokens: t.generatedTokens.Load(), Evaluations: t.evaluations.Load(), Threads: e.threads(),
		LiveArrays: mlx.LiveHandles(), UptimeNs: uint64(time.Since(e.started)),
		Rows: uint32(e.config.Rows), KvTokens: uint64(blocks * kv.Step), KvTokensUsed: uint64((blocks - t.freeBlocks.Load()) * kv.Step),
		Preemptions: t.putBack.Load(), FinishedRequests: t.finished.Load(), FailedEvaluations: t.failures.Load(),
		QueueNs: t.queueNs.Load(), PrefillNs: t.prefillNs.Load(), DecodeNs: t.decodeNs.Load(),
		PrefixQueriedTokens: e.memory.queried.Load(), PrefixCachedTokens: e.memory.found.Load(),
		DraftedTokens: t.drafted.Load(), AcceptedTokens: t.accepted.Load(), DraftRounds: t.rounds.Load(), DraftKind: e.draftKind(), DraftParked: *t.draftParked.Load(),
	}
	if t := e.saver; t != nil {
		out.PrefixDiskReadTokens, out.PrefixDiskWrittenTokens = t.read.Load(), t.written.Load()
		out.PrefixDiskFailures, out.PrefixDiskDamaged = t.failures.Load(), t.Damaged()
	}
	return out
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
	if k := cmp.Or(e.config.Kernels, e.config.Sampler); k != nil {
		if err := k.SetThreads(int(min(threads, e.config.MaxThreads))); err != nil {
			return 0, contract.Errorf(contract.Internal, "threads", "%w", err)
		}
	}
	return e.threads(), nil
}

// Close ends requests that wait, lets those that run finish, frees the model and ends the worker.
func (e *Engine) Close() error {
	e.mu.Lock()
	again := e.closing
	e.closing = true
	e.mu.Unlock()
	if again {
		<-e.ended
		return nil
	}
	e.tell(func() {
		for _, r := range e.rows {
			if r.Waits() && r.started.IsZero() {
				e.endWith(r, errClosing())
			}
		}
	})
	<-e.ended
	if e.saver != nil {
		e.saver.close()
	}
	err := e.worker.Do(context.Background(), func(*mlx.Scope) error {
		e.memory.runs.Clear()
		if e.speculation != nil {
			e.speculation.Drafter.Close()
		}
		if e.config.Adapters != nil {
			e.config.Adapters.Close()
		}
		e.model.Close()
		return nil
	})
	if err = errors.Join(err, e.worker.Close()); err != nil {
		return fmt.Errorf("close the model: %w", err)
	}
	return nil
}
