package serve

import (
	"math"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// upgradePoll is how often a watcher asks whether the plugin was updated: a stat of one file.
const upgradePoll = time.Second

// staleness ticks for a model that can become stale.
func (m *served) staleness() (<-chan time.Time, func()) {
	if m.stale == nil {
		return nil, func() {}
	}
	t := time.NewTicker(upgradePoll)
	return t.C, t.Stop
}

// upgrade moves m from t to an engine of the version that is installed now. Where the memory admits both, the new one is opened
// beside the old, takes the new requests, and the old one ends with its last. Where it does not, new requests queue (at most
// maxWaiting) until the old one has ended its own. No request is dropped either way. A new version that cannot be opened leaves
// the old one in place.
func (r *registry) upgrade(m *served, t *tenure) {
	if !m.opening.TryLock() {
		return // it is being closed, or opened; the next tick looks again
	}
	locked := true
	defer func() {
		if locked {
			m.opening.Unlock()
		}
	}()
	m.mu.Lock()
	present := m.tenure == t
	m.mu.Unlock()
	if !present {
		return
	}
	next, err := m.beside(r.ctx, t.engine)
	switch {
	case err == nil:
		r.install(m, next, 0)
		r.log.Info("plugin updated; the version before ends with its requests", "model", m.name, "plugin", next.Card().Plugin)
		r.wg.Go(func() { r.retire(m, t) })
		t.unwatch()
		r.divide()
	case contract.KindOf(err) == contract.MemoryAdmission:
		r.log.Info("plugin updated; new requests wait for the version before to end", "model", m.name, "why", err)
		m.opening.Unlock()
		locked = false
		r.wg.Go(func() { r.replace(m) })
	case r.ctx.Err() == nil:
		r.log.Error("plugin was updated and its new version cannot open the model; the one before stays", "model", m.name, "error", err)
	}
}

// retire ends an engine that another one stands in for, after its leases.
func (r *registry) retire(m *served, t *tenure) {
	m.mu.Lock()
	idle := m.ended(t)
	m.mu.Unlock()
	select {
	case <-idle:
	case <-r.ctx.Done():
	}
	r.end(m, t.engine, "its plugin was updated")
}

// replace closes the present engine when its leases have ended, and opens the new version for those that wait.
func (r *registry) replace(m *served) {
	if !r.stop(m, math.MaxInt64) {
		return
	}
	if _, release, err := r.openLeased(m); err == nil {
		release()
	}
}
