package serve

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// maxWaiting is how many requests may wait for one model's opening; more are refused as busy.
const maxWaiting = 256

// lease is m's engine, opened if it is not, and what ends its use. An opening belongs to the server, not to the request that
// asked first: it goes on when that client leaves.
func (r *registry) lease(ctx context.Context, m *served) (Engine, func(), error) {
	if e, release := m.join(); e != nil {
		return e, release, nil
	}
	if !m.await(1) {
		return nil, nil, contract.Errorf(contract.Busy, m.name, "%d requests wait for it to be opened", maxWaiting).WithNext("try again later")
	}
	type opened struct {
		engine  Engine
		release func()
		err     error
	}
	done, left := make(chan opened), make(chan struct{})
	r.wg.Go(func() {
		defer m.await(-1)
		e, release, err := r.openLeased(m)
		select {
		case done <- opened{e, release, err}:
		case <-left:
			if err == nil {
				release()
			}
		}
	})
	select {
	case o := <-done:
		return o.engine, o.release, o.err
	case <-ctx.Done():
		close(left)
		return nil, nil, contract.Errorf(contract.Cancelled, m.name, "cancelled while opening")
	}
}

// await counts who waits for an opening; it refuses one too many.
func (m *served) await(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > 0 && m.waiting == maxWaiting {
		return false
	}
	m.waiting += n
	return true
}

// join takes a lease of the present engine; nil when there is none to take.
func (m *served) join() (Engine, func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.engine == nil || m.stopping {
		return nil, nil
	}
	t := m.tenure
	t.leases++
	return t.engine, func() { m.release(t) }
}

// release ends a lease of the present engine, or of one before it.
func (m *served) release(t *tenure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.leases--
	if t.leases == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
	if t != m.tenure {
		return
	}
	m.used = time.Now()
	select {
	case m.released <- struct{}{}:
	default:
	}
}

// openLeased opens m and takes the first lease. It waits for a closing that is under way.
func (r *registry) openLeased(m *served) (Engine, func(), error) {
	m.opening.Lock()
	defer m.opening.Unlock()
	if e, release := m.join(); e != nil {
		return e, release, nil
	}
	if err := r.ctx.Err(); err != nil {
		return nil, nil, contract.Errorf(contract.Unavailable, m.name, "the server is stopping")
	}
	e, err := m.open(r.ctx)
	if err != nil {
		m.setErr(err)
		return nil, nil, again(m.name, err)
	}
	t := r.install(m, e, 1)
	r.divide()
	return e, func() { m.release(t) }, nil
}

// again says of an opening whose process ended that the next one may do: the model is as absent as before.
func again(name string, err error) error {
	if contract.KindOf(err) != contract.PluginCrashed {
		return err
	}
	return contract.Errorf(contract.Unavailable, name, "cannot be opened now: %w", err).WithNext("try again")
}

// begin makes e the present engine and watches it.
func (r *registry) begin(m *served, e Engine, leases int) *tenure {
	watched, unwatch := context.WithCancel(r.ctx)
	t := &tenure{engine: e, leases: leases, unwatch: unwatch}
	m.mu.Lock()
	m.tenure, m.err, m.used = t, nil, time.Now()
	m.mu.Unlock()
	r.wg.Go(func() { r.watch(watched, m, t) })
	return t
}

// expiry fires when the model will have been idle for keepAlive; never while it is leased.
func (m *served) expiry(keepAlive time.Duration) <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if keepAlive < 0 || m.leases > 0 || m.stopping {
		return nil
	}
	return time.After(time.Until(m.used.Add(keepAlive)))
}

// unload closes m if nobody uses it, and says whether it did. A model that is being opened or closed is left alone.
func (r *registry) unload(m *served, why string) bool {
	if !m.opening.TryLock() {
		return false
	}
	defer m.opening.Unlock()
	m.mu.Lock()
	if m.engine == nil || m.leases > 0 || (why == "idle" && time.Since(m.used) < r.keepAlive) {
		m.mu.Unlock()
		return false
	}
	e := m.detach()
	m.mu.Unlock()
	r.end(m, e, why)
	return true
}

// detach takes the engine out; under mu.
func (m *served) detach() Engine {
	e := m.engine
	m.unwatch()
	m.tenure, m.err, m.stopping = &tenure{}, nil, false
	return e
}

// end closes an engine that was taken out. One that died meanwhile is as gone as one that stopped.
func (r *registry) end(m *served, e Engine, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), closeTimeout)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		r.log.Warn("model did not close well", "model", m.name, "error", err)
	}
	r.log.Info("model unloaded", "model", m.name, "why", why)
	r.divide()
}

// stop unloads m after its leases have ended, or patience has. New requests wait and open it again.
func (r *registry) stop(m *served, patience time.Duration) bool {
	m.opening.Lock()
	defer m.opening.Unlock()
	m.mu.Lock()
	if m.engine == nil {
		m.mu.Unlock()
		return false
	}
	m.stopping = true
	idle := m.ended(m.tenure)
	m.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(patience):
	case <-r.ctx.Done():
	}
	m.mu.Lock()
	e := m.detach()
	m.mu.Unlock()
	r.end(m, e, "stopped")
	return true
}

// ended is closed when t has no leases; under mu.
func (m *served) ended(t *tenure) <-chan struct{} {
	idle := make(chan struct{})
	if t.leases == 0 {
		close(idle)
	} else {
		t.idle = idle
	}
	return idle
}

// idlers are the open models that nobody uses, the least recently used first.
func (r *registry) idlers() []*served {
	type idler struct {
		m    *served
		used time.Time
	}
	var list []idler
	for _, m := range r.models {
		m.mu.Lock()
		if m.engine != nil && m.leases == 0 && !m.stopping {
			list = append(list, idler{m, m.used})
		}
		m.mu.Unlock()
	}
	slices.SortStableFunc(list, func(a, b idler) int { return cmp.Compare(a.used.UnixNano(), b.used.UnixNano()) })
	out := make([]*served, 0, len(list))
	for _, i := range list {
		out = append(out, i.m)
	}
	return out
}

// Idle implements loader.Evictor.
func (r *registry) Idle() uint64 {
	total := uint64(0)
	for _, m := range r.idlers() {
		if e := m.current(); e != nil {
			total += e.PlannedBytes()
		}
	}
	return total
}

// Evict implements loader.Evictor.
func (r *registry) Evict(_ context.Context, bytes uint64) {
	freed := uint64(0)
	for _, m := range r.idlers() {
		if freed >= bytes {
			return
		}
		if e := m.current(); e != nil {
			n := e.PlannedBytes()
			if r.unload(m, "evicted for another model") {
				freed += n
			}
		}
	}
}

// tuneTimeout bounds the telling of one engine; an engine that does not listen keeps the threads it has.
const tuneTimeout = 2 * time.Second

// divide gives each open model an equal share of the cores, at least one.
func (r *registry) divide() {
	r.sharing.Lock()
	defer r.sharing.Unlock()
	var open []Engine
	for _, m := range r.models {
		if e := m.current(); e != nil {
			open = append(open, e)
		}
	}
	if len(open) == 0 {
		return
	}
	share := max(1, r.cores/len(open))
	for _, e := range open {
		ctx, cancel := context.WithTimeout(r.ctx, tuneTimeout)
		if err := e.Tune(ctx, share); err != nil && r.ctx.Err() == nil {
			r.log.Debug("threads stay as they are", "pid", e.Pid(), "error", err)
		}
		cancel()
	}
}
