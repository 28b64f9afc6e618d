package serve

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Engine is an open model with a process behind it.
type Engine interface {
	openai.Model
	// Plain is the model without the server's own settings, for a command line that borrows it.
	Plain() admin.Model
	// Card says what it is; ID, Object, Created and State are filled by the server.
	Card() openai.Card
	// State is the process's, as Card spells it.
	State() string
	// PlannedBytes is the memory it was admitted with; Pid its process.
	PlannedBytes() uint64
	Pid() int
	// Alive is nil when the process answers, before ctx ends, and its requests move on.
	Alive(ctx context.Context) error
	// Load is how many requests run and how many wait.
	Load() (running, waiting int)
	// Stats asks the process for memory and counters.
	Stats(ctx context.Context) (*cladev1.StatsResponse, error)
	// Tune sets its share of the machine's threads.
	Tune(ctx context.Context, threads int) error
	// Adapters are those that requests may choose, in the order of loading.
	Adapters() []Adapter
	// LoadAdapter loads one whole or changes nothing. UnloadAdapter takes one away from new requests at once and returns when its
	// memory is free.
	LoadAdapter(ctx context.Context, a Adapter) error
	UnloadAdapter(ctx context.Context, id string) error
	// Down is closed when the present process has ended.
	Down() <-chan struct{}
	// Ready starts a new process if there is none, with the engine's own back-off; nil: it can generate.
	Ready(ctx context.Context) error
	Close(ctx context.Context) error
}

// Served is one model to serve, and how it is opened.
type Served struct {
	Name string
	// Key names what it is opened as: the same model with the same wishes.
	Key  string
	Open func(ctx context.Context) (Engine, error)
	// Adapters that it is opened with.
	Adapters []Adapter
	// Stale says that an opening now would use another version of the plugin than e does, unless that one failed already; nil:
	// never. It is asked often.
	Stale func(e Engine) bool
	// Beside opens the model once more while e still runs, for at least its context; MemoryAdmission when both do not fit. Nil
	// where Stale is.
	Beside func(ctx context.Context, e Engine) (Engine, error)
}

// retryPause is how long the watcher waits after a start that failed; the engine's own back-off comes on top.
const retryPause = time.Second

// registry holds the served models. start begins its life and close ends it; close waits for its watchers.
//
// A model is used under a lease. Only a model without leases is unloaded: when it was idle for keepAlive, when another one
// needs its memory (Evict), or when it is told to stop, which lets its leases end first. Whoever opens a model for a request
// gets its lease in the same step, so that it cannot be taken away before its first use. A model whose plugin was updated moves
// to the new version (upgrade.go); the engine before it goes on until its leases have ended.
type registry struct {
	models    []*served
	keepAlive time.Duration // negative: for ever
	cores     int
	log       *slog.Logger
	meter     *meter
	sharing   sync.Mutex // one division of threads at a time
	wg        sync.WaitGroup
	ctx       context.Context
	cancel    context.CancelFunc
}

type served struct {
	name, key string
	created   int64
	open      func(ctx context.Context) (Engine, error)
	stale     func(e Engine) bool
	beside    func(ctx context.Context, e Engine) (Engine, error)

	given []Adapter // what it is opened with

	opening  sync.Mutex // held while opening and while closing
	adapting sync.Mutex // held while the adapters of the present engine change, and while it becomes that; inside opening
	mu       sync.Mutex // guards what follows
	*tenure             // the present engine's; never nil
	err      error
	added    []Adapter       // loaded while it is served
	had      map[string]bool // names of adapters that were loaded at some time
	used     time.Time       // when the last lease ended, or it was opened
	waiting  int             // requests that wait for an opening
	// stopping refuses leases of the present engine: who wants one waits for the next.
	stopping bool
	released chan struct{} // tells the watcher that a lease ended
}

// tenure is the time of one engine; the zero value has none. Its fields are guarded by the model's mu.
type tenure struct {
	engine  Engine
	leases  int
	idle    chan struct{} // closed when the last lease ends; made by who waits
	unwatch context.CancelFunc
}

func newRegistry(models []Served, keepAlive time.Duration, cores int, log *slog.Logger) (*registry, error) {
	if len(models) == 0 {
		return nil, contract.Errorf(contract.InvalidArgument, "MODEL", "no model to serve").WithNext("name at least one")
	}
	r := &registry{meter: newMeter(), log: log, keepAlive: keepAlive, cores: cores}
	now := time.Now().Unix()
	for _, m := range models {
		if r.find(m.Name) != nil {
			return nil, contract.Errorf(contract.InvalidArgument, m.Name, "is named twice")
		}
		for i := range m.Adapters {
			m.Adapters[i].Given = true
		}
		r.models = append(r.models, &served{
			name: m.Name, key: m.Key, open: m.Open, stale: m.Stale, beside: m.Beside, given: m.Adapters, had: map[string]bool{}, created: now, released: make(chan struct{}, 1), tenure: &tenure{},
		})
	}
	for _, m := range r.models {
		for _, a := range m.given {
			if r.find(a.ID) != nil {
				return nil, contract.Errorf(contract.InvalidArgument, "adapter", "%s is the name of a served model too", a.ID).WithNext("give it a name: NAME=FOLDER")
			}
		}
		r.meter.watch(m)
	}
	r.start(context.Background())
	return r, nil
}

func (r *registry) start(ctx context.Context) {
	if r.cancel != nil {
		r.cancel()
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
}

// openAll opens every model that there is memory for at once; none is closed for another here. The first one must open; a later
// one that does not fit beside the others opens at its first request.
func (r *registry) openAll(ctx context.Context) error {
	for i, m := range r.models {
		_, release, err := r.lease(ctx, m)
		if i > 0 && contract.KindOf(err) == contract.MemoryAdmission {
			r.log.Warn("model does not fit beside the others; it opens at its first request", "model", m.name, "error", err)
			m.setErr(nil)
			continue
		}
		if err != nil {
			return err
		}
		defer release()
	}
	return nil
}

func (r *registry) find(name string) *served {
	for _, m := range r.models {
		if strings.EqualFold(m.name, name) {
			return m
		}
	}
	return nil
}

// pick is the model a request names: exactly, or by a part of one name only. No name is the only model.
func (r *registry) pick(name string) (*served, error) {
	if name == "" {
		if len(r.models) == 1 {
			return r.models[0], nil
		}
		return nil, contract.Errorf(contract.InvalidArgument, "model", "is missing and %d models are served", len(r.models)).WithNext("GET /v1/models lists them")
	}
	if m := r.find(name); m != nil {
		return m, nil
	}
	var hits []*served
	for _, m := range r.models {
		if strings.Contains(strings.ToLower(m.name), strings.ToLower(name)) {
			hits = append(hits, m)
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return nil, r.unknown(name)
	}
	return nil, contract.Errorf(contract.InvalidArgument, "model", "%s matches %s and %s", name, hits[0].name, hits[1].name)
}

func (r *registry) unknown(name string) error {
	return openai.ModelNotFound(name, r.List())
}

// Get implements openai.Models.
func (r *registry) Get(ctx context.Context, name string) (openai.Model, openai.Card, func(), error) {
	m, adapter, err := r.chosen(name)
	if err != nil {
		return nil, openai.Card{}, nil, err
	}
	engine, release, err := r.lease(ctx, m)
	if err != nil {
		return nil, openai.Card{}, nil, err
	}
	model, card := r.meter.model(m.name, engine), m.card()
	if adapter != "" {
		model, card = adapted{model, adapter}, adapterCard(card, adapter)
	}
	return model, card, release, nil
}

// List implements openai.Models.
func (r *registry) List() []openai.Card {
	out := make([]openai.Card, 0, len(r.models))
	for _, m := range r.models {
		out = append(out, m.cards()...)
	}
	return out
}

// watch starts a dead engine again, unloads an idle one and replaces one whose plugin was updated, until ctx ends.
func (r *registry) watch(ctx context.Context, m *served, t *tenure) {
	e := t.engine
	stale, stop := m.staleness()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stale:
			if m.stale(e) {
				r.upgrade(m, t)
			}
			continue
		case <-m.released:
			continue // the idle time begins anew
		case <-m.expiry(r.keepAlive):
			r.unload(m, "idle")
			continue
		case <-e.Down():
		}
		if ctx.Err() != nil {
			return
		}
		err := e.Ready(ctx)
		if ctx.Err() != nil {
			return
		}
		m.setErr(err)
		if err == nil {
			r.log.Warn("engine started again", "model", m.name)
			r.divide()
			continue
		}
		r.log.Error("engine cannot start", "model", m.name, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryPause):
		}
	}
}

func (r *registry) close(ctx context.Context) {
	r.cancel()
	r.wg.Wait()
	for _, m := range r.models {
		if e := m.current(); e != nil {
			m.unwatch()
			if err := e.Close(ctx); err != nil {
				r.log.Warn("model did not close well", "model", m.name, "error", err)
			}
		}
	}
}

func (m *served) current() Engine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine
}

func (m *served) setErr(err error) {
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
}

func (m *served) card() openai.Card {
	c := openai.Card{State: "absent"}
	m.mu.Lock()
	e, stopping := m.engine, m.stopping
	m.mu.Unlock()
	if e != nil {
		c = e.Card()
		c.State = e.State()
		if stopping {
			c.State = "draining"
		}
	}
	c.ID, c.Object, c.Created, c.OwnedBy = m.name, "model", m.created, "local"
	return c
}

// health is the engine's state and why it cannot generate now. A model that nobody opened yet, or that was unloaded, is fine
// unless opening it failed for a fault of its own: one that found no memory is asked again with the next request.
func (m *served) health(ctx context.Context) (string, error) {
	m.mu.Lock()
	e, err := m.engine, m.err
	m.mu.Unlock()
	if e == nil {
		if contract.KindOf(err) == contract.MemoryAdmission {
			err = nil
		}
		return "absent", err
	}
	state := e.State()
	if state == "ready" || state == "busy" {
		return state, e.Alive(ctx)
	}
	if err == nil {
		err = fmt.Errorf("the engine is %s", state)
	}
	return state, err
}
