package serve

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/sdk/contract"
)

// Engine is an open model with a process behind it.
type Engine interface {
	openai.Model
	// Card says what it is; ID, Object, Created and State are filled by the server.
	Card() openai.Card
	// State is the process's, as Card spells it.
	State() string
	// Down is closed when the present process has ended.
	Down() <-chan struct{}
	// Ready starts a new process if there is none, with the engine's own back-off; nil: it can generate.
	Ready(ctx context.Context) error
	Close(ctx context.Context) error
}

// Served is one model to serve, and how it is opened.
type Served struct {
	Name string
	Open func(ctx context.Context) (Engine, error)
}

// retryPause is how long the watcher waits after a start that failed; the engine's own back-off comes on top.
const retryPause = time.Second

// registry holds the served models. start begins its life and close ends it; close waits for its watchers.
type registry struct {
	models []*served
	log    *slog.Logger
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

type served struct {
	name    string
	created int64
	open    func(ctx context.Context) (Engine, error)

	opening sync.Mutex // one opener at a time; held while opening
	mu      sync.Mutex // guards engine and err
	engine  Engine
	err     error
}

func newRegistry(models []Served, log *slog.Logger) (*registry, error) {
	if len(models) == 0 {
		return nil, contract.Errorf(contract.InvalidArgument, "MODEL", "no model to serve").WithNext("name at least one")
	}
	r := &registry{log: log}
	now := time.Now().Unix()
	for _, m := range models {
		if r.find(m.Name) != nil {
			return nil, contract.Errorf(contract.InvalidArgument, m.Name, "is named twice")
		}
		r.models = append(r.models, &served{name: m.Name, open: m.Open, created: now})
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

func (r *registry) openAll(ctx context.Context) error {
	for _, m := range r.models {
		if _, err := r.engineOf(ctx, m); err != nil {
			return err
		}
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
		return nil, contract.Errorf(contract.NotFound, name, "no such model is served").WithNext("GET /v1/models lists them")
	}
	return nil, contract.Errorf(contract.InvalidArgument, "model", "%s matches %s and %s", name, hits[0].name, hits[1].name)
}

// Get implements openai.Models.
func (r *registry) Get(ctx context.Context, name string) (openai.Model, openai.Card, error) {
	m, err := r.pick(name)
	if err != nil {
		return nil, openai.Card{}, err
	}
	engine, err := r.engineOf(ctx, m)
	if err != nil {
		return nil, openai.Card{}, err
	}
	return engine, m.card(), nil
}

// List implements openai.Models.
func (r *registry) List() []openai.Card {
	out := make([]openai.Card, 0, len(r.models))
	for _, m := range r.models {
		out = append(out, m.card())
	}
	return out
}

// engineOf opens m if it is not. An opening belongs to the server, not to the request that asked first: it goes on when
// that client leaves.
func (r *registry) engineOf(ctx context.Context, m *served) (Engine, error) {
	if e := m.current(); e != nil {
		return e, nil
	}
	type opened struct {
		engine Engine
		err    error
	}
	done := make(chan opened, 1)
	r.wg.Go(func() {
		e, err := r.openOnce(m)
		done <- opened{e, err}
	})
	select {
	case o := <-done:
		return o.engine, o.err
	case <-ctx.Done():
		return nil, contract.Errorf(contract.Cancelled, m.name, "cancelled while opening")
	}
}

func (r *registry) openOnce(m *served) (Engine, error) {
	m.opening.Lock()
	defer m.opening.Unlock()
	if e := m.current(); e != nil {
		return e, nil
	}
	if err := r.ctx.Err(); err != nil {
		return nil, contract.Errorf(contract.Unavailable, m.name, "the server is stopping")
	}
	e, err := m.open(r.ctx)
	m.mu.Lock()
	m.engine, m.err = e, err
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r.wg.Go(func() { r.watch(m, e) })
	return e, nil
}

// watch starts a dead engine again, until the server stops.
func (r *registry) watch(m *served, e Engine) {
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-e.Down():
		}
		if r.ctx.Err() != nil {
			return
		}
		err := e.Ready(r.ctx)
		m.mu.Lock()
		m.err = err
		m.mu.Unlock()
		if err == nil {
			r.log.Warn("engine started again", "model", m.name)
			continue
		}
		r.log.Error("engine cannot start", "model", m.name, "error", err)
		select {
		case <-r.ctx.Done():
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

func (m *served) card() openai.Card {
	c := openai.Card{State: "absent"}
	if e := m.current(); e != nil {
		c = e.Card()
		c.State = e.State()
	}
	c.ID, c.Object, c.Created, c.OwnedBy = m.name, "model", m.created, "local"
	return c
}

// health is the engine's state and why it cannot generate now. A model that nobody opened yet is fine unless opening it
// failed.
func (m *served) health() (string, error) {
	m.mu.Lock()
	e, err := m.engine, m.err
	m.mu.Unlock()
	if e == nil {
		return "absent", err
	}
	state := e.State()
	if state == "ready" || state == "busy" {
		return state, nil
	}
	if err == nil {
		err = fmt.Errorf("the engine is %s", state)
	}
	return state, err
}
