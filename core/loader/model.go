package loader

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/tokenizer"
)

// priorityOption is declared by a plugin that orders waiting requests itself.
const priorityOption = "priority"

// maxQueue is how many requests may wait for a row; more are refused as busy.
const maxQueue = 256

// Model is an open model. Its methods may be called concurrently; Close waits for nothing and ends what runs.
type Model struct {
	decision *Decision
	wishes   Wishes
	text     *text
	files    generate.Settings
	family   generate.Settings
	stopIDs  []int32
	// rows holds one token for each request that the plugin may have; queue one for each that is there or waits.
	rows, queue chan struct{}

	starting sync.Mutex // one start at a time; held while starting
	breaker  supervise.Breaker
	court    court
	mu       sync.Mutex // guards what follows
	planned  *Planned
	facts    *cladev1.ModelFacts
	declared map[string]bool
	counted  bool // the present process's death was told to the breaker
	closed   bool
	loaded   []*loaded         // after the opening
	digests  map[string]string // of adapters that go with the model, by id
}

func newModel(p *Planned, facts *cladev1.ModelFacts, t *text) (*Model, error) {
	files, err := generate.FromFiles(p.Artifact.GenerationConfig())
	if err != nil {
		return nil, err
	}
	stops, err := stopIDs(p.Decision, t.tokenizer)
	if err != nil {
		return nil, err
	}
	rows := max(int(p.Composition.Proto.GetRows()), 1)
	m := &Model{
		digests:  map[string]string{},
		decision: p.Decision, wishes: p.wishes, text: t, files: files, stopIDs: stops,
		family: generate.FromRecord(p.Decision.Family.Record.Generation), queue: make(chan struct{}, rows+maxQueue),
	}
	m.install(p, facts)
	if m.honours(priorityOption) { // it has a queue of its own, in which priorities count
		rows += maxQueue
	}
	m.rows = make(chan struct{}, rows)
	return m, nil
}

// stopIDs are the tokens that end a turn: the tokenizer's, and what the family's dialect makes of the files; a family without
// a rule has those of generation_config.json and the config.
func stopIDs(d *Decision, t *tokenizer.Tokenizer) ([]int32, error) {
	seen := map[int32]bool{}
	var out []int32
	add := func(id int64) {
		if id >= 0 && id < 1<<31 && !seen[int32(id)] {
			seen[int32(id)] = true
			out = append(out, int32(id))
		}
	}
	if t != nil {
		for _, id := range t.EOS() {
			add(int64(id))
		}
	}
	ids, ruled, err := d.Parsed.Ints("eos_token_ids")
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		add(id)
	}
	if ruled {
		return out, nil
	}
	for _, source := range []interface {
		Ints(path string) ([]int64, bool, error)
	}{d.Artifact.GenerationConfig(), d.Artifact.Config()} {
		ids, _, err := source.Ints("eos_token_id")
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			add(id)
		}
	}
	return out, nil
}

// install makes p the present process.
func (m *Model) install(p *Planned, facts *cladev1.ModelFacts) {
	declared := map[string]bool{}
	for _, o := range p.Describe.GetOptions() {
		declared[o.GetPath()] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.planned, m.facts, m.declared, m.counted = p, facts, declared, false
}

// Facts are what the plugin said of the model when it opened.
func (m *Model) Facts() *cladev1.ModelFacts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.facts
}

// Planned is the admitted plan of the present process.
func (m *Model) Planned() *Planned {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.planned
}

// Decision is what was decided of the model before it was opened.
func (m *Model) Decision() *Decision { return m.decision }

// TextErr is why the model has no text and runs on token ids alone; nil when it has.
func (m *Model) TextErr() error { return m.text.err }

// Encode tokenizes text.
func (m *Model) Encode(s string, addSpecial bool) ([]int32, error) {
	return m.text.encode(s, addSpecial)
}

// Pid is the present process's id.
func (m *Model) Pid() int { return m.Planned().process.Pid() }

// Stats asks the plugin for memory and counters.
func (m *Model) Stats(ctx context.Context) (*cladev1.StatsResponse, error) {
	return m.Planned().process.Stats(ctx)
}

// PlannedBytes is the memory that the model was admitted with.
func (m *Model) PlannedBytes() uint64 { return m.Planned().Plan.GetTotalBytes() }

// Tune sets the present process's share of threads, at most the composition's maximum. Results do not depend on it.
func (m *Model) Tune(ctx context.Context, threads int) error {
	_, err := m.Planned().process.Tune(ctx, uint32(max(threads, 1)))
	return err
}

// State is the present process's.
func (m *Model) State() string {
	m.mu.Lock()
	p, closed := m.planned, m.closed
	m.mu.Unlock()
	if closed {
		return supervise.Draining.String()
	}
	return p.process.State().String()
}

// stuckAfter is how long a running request may see no progress before the model counts as stuck; evaluations are sized to
// about a second.
const stuckAfter = 2 * time.Second

// Alive asks the present process for a sign of life: an error when it has ended, does not answer before ctx ends, or has not
// moved its running requests on for two seconds.
func (m *Model) Alive(ctx context.Context) error {
	p, err := m.present()
	if err != nil {
		return err
	}
	if p == nil {
		return contract.Errorf(contract.Unavailable, m.decision.Model.ID, "its process has ended")
	}
	if d := p.process.Stalled(); d > stuckAfter {
		return contract.Errorf(contract.Unavailable, m.decision.Model.ID, "no progress for %s", d.Round(100*time.Millisecond))
	}
	if _, err := p.process.Stats(ctx); err != nil {
		return contract.Errorf(contract.Unavailable, m.decision.Model.ID, "its process does not answer: %w", err)
	}
	return nil
}

// Load is how many requests run and how many wait for a row.
func (m *Model) Load() (running, waiting int) {
	running = len(m.rows)
	return running, max(0, len(m.queue)-running)
}

// Down is closed when the present process has ended.
func (m *Model) Down() <-chan struct{} { return m.Planned().process.Done() }

// Ready starts a new process if the present one has died, waiting as the back-off says.
func (m *Model) Ready(ctx context.Context) error {
	_, err := m.alive(ctx)
	return err
}

// alive is a process that can generate: the present one, or a new one. One that dies while it opens the model is followed by
// another until the breaker opens.
func (m *Model) alive(ctx context.Context) (*Planned, error) {
	if p, err := m.present(); p != nil || err != nil {
		return p, err
	}
	m.starting.Lock()
	defer m.starting.Unlock()
	p, err := m.present()
	if p != nil || err != nil {
		return p, err
	}
	m.tellDeath()
	for {
		wait, err := m.breaker.Next()
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, cancelled(ctx, m.decision.Model.ID)
		}
		err = m.restart(ctx)
		if err == nil {
			return m.Planned(), nil
		}
		if contract.KindOf(err) != contract.Cancelled {
			m.breaker.Crashed(err)
		}
		if contract.KindOf(err) != contract.PluginCrashed {
			return nil, err
		}
	}
}

// present is the process if it lives, an error if the model is closed, and neither if it has to be started again.
func (m *Model) present() (*Planned, error) {
	m.mu.Lock()
	p, closed := m.planned, m.closed
	m.mu.Unlock()
	if closed {
		return nil, contract.Errorf(contract.Unavailable, m.decision.Model.ID, "the model is closed")
	}
	select {
	case <-p.process.Done():
		return nil, nil
	default:
		return p, nil
	}
}

// tellDeath records the present process's death with the breaker, once.
func (m *Model) tellDeath() {
	m.mu.Lock()
	p, counted := m.planned, m.counted
	m.counted = true
	m.mu.Unlock()
	if counted {
		return
	}
	cause := p.process.Err()
	if cause == nil {
		cause = contract.Errorf(contract.PluginCrashed, p.Plugin.Name, "ended without a cause")
	}
	m.breaker.Crashed(cause)
}

// restart plans, admits and opens again, as the first time.
func (m *Model) restart(ctx context.Context) error {
	p, err := m.decision.Plan(ctx, m.wishes)
	if err != nil {
		return err
	}
	if err := p.admit(ctx); err != nil {
		p.Stop()
		return err
	}
	facts, err := p.load(ctx, nil, m.text)
	if err != nil {
		p.Stop()
		return err
	}
	if err := m.readapt(ctx, p); err != nil {
		p.Stop()
		return err
	}
	m.install(p, facts)
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed { // Close ran meanwhile and stopped the old process
		p.Stop()
		p.host.ledger().release(p.Decision)
		return contract.Errorf(contract.Unavailable, m.decision.Model.ID, "the model is closed")
	}
	return nil
}

// admitRequest waits for a row. The returned func gives it back.
func (m *Model) admitRequest(ctx context.Context) (func(), error) {
	select {
	case m.queue <- struct{}{}:
	default:
		return nil, contract.Errorf(contract.Busy, m.decision.Model.ID, "%d requests wait already", maxQueue).WithNext("try again later")
	}
	select {
	case m.rows <- struct{}{}:
		return func() { <-m.rows; <-m.queue }, nil
	case <-ctx.Done():
		<-m.queue
		return nil, cancelled(ctx, m.decision.Model.ID)
	}
}

// cancelled is the error of a context that ended: its own cause when that is a contract error, as a drain's is.
func cancelled(ctx context.Context, subject string) error {
	var e *contract.Error
	if errors.As(context.Cause(ctx), &e) {
		return e
	}
	return contract.Errorf(contract.Cancelled, subject, "%w", context.Cause(ctx))
}

// Close stops the process and releases the artifact.
func (m *Model) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	p := m.planned
	m.mu.Unlock()
	var stopErr error
	if p.process.State() != supervise.Dead {
		stopErr = p.process.Stop(ctx)
	}
	m.decision.host.ledger().release(m.decision)
	return errors.Join(stopErr, m.decision.Close())
}
