package loader

import (
	"context"
	"fmt"
	"sync"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/machine"
	"github.com/clademl/clade/sdk/contract"
)

// Evictor closes models that nobody uses, to make room for another.
type Evictor interface {
	// Idle is the planned bytes of the models that could be closed now.
	Idle() uint64
	// Evict closes idle models, the least recently used first, until their plans have given up bytes or none is left.
	Evict(ctx context.Context, bytes uint64)
}

// Ledger is the memory that the open models of one host were admitted with: the sum that a budget bounds. The zero value is
// ready. A share lasts from the admission until the model is closed, through crashes and restarts.
type Ledger struct {
	// Evictor makes room; nil when no model may be closed for another.
	Evictor Evictor

	admission sync.Mutex // one admission at a time, evictions included
	mu        sync.Mutex // guards shares
	shares    map[*Decision]share
}

// share is what one model was admitted with, and the process that takes it.
type share struct {
	bytes uint64
	pid   int
}

// room is what a host has for one more model.
type room struct {
	// limit is the budget; 0 when it is not known. free is what is left of it, idle what closing idle models would add.
	limit, free, idle uint64
	// others counts the models that hold the rest.
	others int
}

// known reports whether there is anything to judge by.
func (r room) known() bool { return r.limit > 0 }

// most is what a plan may take.
func (r room) most() uint64 { return r.free + r.idle }

// room judges by a configured limit, or by what the machine has available and the open models already take of it. The share
// of the model that asks, if it has one, counts as free.
func (l *Ledger) room(configured uint64, asks *Decision) room {
	r := room{limit: configured}
	held := uint64(0)
	l.mu.Lock()
	if configured == 0 {
		_, r.limit = machine.Memory()
	}
	for d, s := range l.shares {
		if d == asks {
			continue
		}
		r.others++
		held += s.bytes
		if configured == 0 && r.limit > 0 {
			r.limit += machine.Resident(s.pid)
		}
	}
	l.mu.Unlock()
	r.free = r.limit - min(held, r.limit)
	if l.Evictor != nil && r.others > 0 {
		r.idle = min(l.Evictor.Idle(), r.limit-r.free)
	}
	return r
}

// take admits a model in place of the share it has, if any, evicting idle models when that makes the room. ok is false when
// nothing does; the share it had is then given back.
func (l *Ledger) take(ctx context.Context, configured uint64, d *Decision, s share) (r room, ok bool) {
	l.admission.Lock()
	defer l.admission.Unlock()
	r = l.room(configured, d)
	if r.known() && s.bytes > r.free && s.bytes <= r.most() {
		l.Evictor.Evict(ctx, s.bytes-r.free)
		r = l.room(configured, d)
	}
	if r.known() && s.bytes > r.free {
		l.release(d)
		return r, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shares == nil {
		l.shares = map[*Decision]share{}
	}
	l.shares[d] = s
	return r, true
}

// release gives a model's share back.
func (l *Ledger) release(d *Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.shares, d)
}

// refuse words a plan that does not fit: the sum, what there is, and fits, the largest context whose plan does.
func (p *Planned) refuse(r room, fits uint32) error {
	have := "the budget is " + config.FormatBytes(r.limit)
	if r.others > 0 {
		have = fmt.Sprintf("%s of the budget of %s are free, open models hold the rest", config.FormatBytes(r.most()), config.FormatBytes(r.limit))
	}
	next := "free memory, choose a smaller model, or raise memory_budget"
	if fits > 0 {
		next = fmt.Sprintf("a context of %d tokens would fit (--context %d); or free memory, or raise memory_budget", fits, fits)
	}
	return contract.Errorf(contract.MemoryAdmission, p.Model.ID, "needs %s, %s (%s)", config.FormatBytes(p.Plan.GetTotalBytes()), have, p.sum()).
		WithNext("%s", next)
}
