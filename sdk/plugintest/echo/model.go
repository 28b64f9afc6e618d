package echo

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// queued bounds the requests that wait for a slot.
const queued = 256

// model is one open model: slots for sequences, one goroutine that steps all of them, and the prefix cache. The goroutine
// ends with Close.
type model struct {
	settings
	faults     faults
	weights    []float32
	facts      *cladev1.ModelFacts
	provenance *cladev1.Provenance

	adapters *adapters

	slots   chan *slot
	waiting atomic.Int32
	threads atomic.Uint32
	tokens  [2]atomic.Uint64 // of prompts, of answers
	steps   atomic.Uint64

	mu    sync.Mutex
	rows  []*row
	cache []sequence // newest last
	kept  [][]uint64 // of the fault
	wake  chan struct{}
	quit  chan struct{}
	ended sync.WaitGroup
}

// slot holds the states of one running sequence.
type slot struct{ states []uint64 }

// sequence is what the prefix cache keeps.
type sequence struct {
	ids    []int32
	word   uint64 // of the adapters that they were computed with
	states []uint64
}

func newModel(s settings, weights []float32, f faults) *model {
	m := &model{
		adapters: &adapters{faults: f, limit: s.adapterBytes, preset: s.preset},
		settings: s, faults: f, weights: weights, slots: make(chan *slot, s.rows), wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	for range s.rows {
		m.slots <- &slot{states: make([]uint64, 0, s.context)}
	}
	m.threads.Store(1)
	m.ended.Go(m.run)
	return m
}

// run steps every row that has room for what comes of it.
func (m *model) run() {
	for {
		m.mu.Lock()
		stepped := m.step()
		m.mu.Unlock()
		pause := time.Duration(m.stepMicros) * time.Microsecond
		if !stepped {
			pause = max(pause, 50*time.Microsecond) // every reader is slow
		}
		m.mu.Lock()
		idle := len(m.rows) == 0
		m.mu.Unlock()
		if idle {
			select {
			case <-m.quit:
				return
			case <-m.wake:
			}
			continue
		}
		select {
		case <-m.quit:
			return
		case <-time.After(pause):
		}
	}
}

// step makes one evaluation of the batch; the caller holds mu.
func (m *model) step() bool {
	var batch []*row
	for _, r := range m.rows {
		if !r.finished && len(r.out) == 0 {
			batch = append(batch, r)
		}
	}
	for i, r := range batch {
		var beside *row
		if m.faults.has(WrongMask) && len(batch) > 1 {
			beside = batch[(i+1)%len(batch)]
		}
		e := r.advance(beside)
		r.finished = e.finish != nil
		r.out <- e
	}
	if len(batch) > 0 {
		m.steps.Add(1)
	}
	return len(batch) > 0
}

func (m *model) join(r *row) {
	m.mu.Lock()
	m.rows = append(m.rows, r)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *model) leave(r *row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows = slices.DeleteFunc(m.rows, func(x *row) bool { return x == r })
	if r.reuse {
		m.remember(r)
	}
	if m.faults.has(GrowingMemory) {
		m.kept = append(m.kept, make([]uint64, 1<<17))
	}
}

// remember keeps a sequence for the prefix cache.
func (m *model) remember(r *row) {
	n := len(r.slot.states)
	m.cache = append(m.cache, sequence{slices.Clone(r.ids[:n]), r.stack.word(), slices.Clone(r.slot.states)})
	if len(m.cache) > cached {
		m.cache = slices.Delete(m.cache, 0, 1)
	}
}

// restore copies the states that a prompt shares with a kept sequence into a slot; the last token is always evaluated.
func (m *model) restore(ids []int32, word uint64, s *slot) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := 0
	for _, c := range m.cache {
		n := 0
		if c.word != word && !m.faults.has(SharedCache) {
			continue
		}
		for n < min(len(c.ids), len(ids)-1) && c.ids[n] == ids[n] {
			n++
		}
		if m.faults.has(StaleCache) && n > 0 && n < min(len(c.ids), len(ids)-1) {
			n++
		}
		if n > most {
			most = n
			s.states = append(s.states[:0], c.states[:n]...)
		}
	}
	return most
}

// enter waits for a slot.
func (m *model) enter(ctx context.Context) (*slot, error) {
	if m.waiting.Add(1) > queued {
		m.waiting.Add(-1)
		return nil, contract.Errorf(contract.Busy, Name, "%d requests wait already", queued)
	}
	defer m.waiting.Add(-1)
	select {
	case s := <-m.slots:
		s.states = s.states[:0]
		return s, nil
	case <-ctx.Done():
		return nil, contract.Errorf(contract.Cancelled, Name, "%w", context.Cause(ctx))
	case <-m.quit:
		return nil, contract.Errorf(contract.Unavailable, Name, "the model was closed")
	}
}

func (m *model) Facts() *cladev1.ModelFacts { return m.facts }

func (m *model) memory() *cladev1.MemoryStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	active := int(m.adapters.bytes()) + 4*len(m.weights) + m.settings.rows*m.context*8 + len(m.kept)<<20
	for _, c := range m.cache {
		active += len(c.ids) * tokenBytes
	}
	return &cladev1.MemoryStats{ActiveBytes: uint64(active), PeakBytes: uint64(active)}
}

func (m *model) Stats() *cladev1.StatsResponse {
	r := &cladev1.StatsResponse{
		Memory: m.memory(), ActiveRequests: uint32(m.settings.rows - len(m.slots)), QueuedRequests: uint32(m.waiting.Load()),
		PromptTokens: m.tokens[0].Load(), GeneratedTokens: m.tokens[1].Load(), Evaluations: m.steps.Load(), Threads: m.threads.Load(),
	}
	return r
}

func (m *model) Progress() (uint64, uint64) {
	return m.steps.Load(), m.tokens[0].Load() + m.tokens[1].Load()
}

func (m *model) Tune(_ context.Context, threads uint32) (uint32, error) {
	m.threads.Store(threads)
	return threads, nil
}

func (m *model) Close() error {
	close(m.quit)
	m.ended.Wait()
	return nil
}

var _ plugin.Model = (*model)(nil)
