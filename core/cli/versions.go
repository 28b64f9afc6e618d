package cli

import (
	"context"
	"errors"
	"sync"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/serve"
	"github.com/clademl/clade/sdk/contract"
)

// versions opens one served model, each time with the plugins that are installed then.
type versions struct {
	app      *app
	host     *host
	flags    *modelFlags
	path     string
	defaults generate.Settings
	thinking *bool

	mu sync.Mutex // guards what follows
	// seen is the state of the store that was compared last, fresh that it holds what the engine uses.
	seen  string
	fresh bool
}

// open implements serve.Served: a first opening, or one after the model was unloaded.
func (v *versions) open(ctx context.Context) (serve.Engine, error) { return v.openFor(ctx, 0) }

// openFor opens the model with the plugins of this moment, for at least context tokens.
func (v *versions) openFor(ctx context.Context, context uint32) (serve.Engine, error) {
	h, err := v.host.again()
	if err != nil {
		return nil, err
	}
	h.unattended, h.leastContext = true, context
	model, err := v.app.open(ctx, h, v.flags, v.path)
	if err != nil {
		return nil, err
	}
	if err := model.TextErr(); err != nil {
		return nil, errors.Join(err, closeSoon(ctx, model))
	}
	return engine{model, v.defaults, v.thinking}, nil
}

func closeSoon(ctx context.Context, m *loader.Model) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return m.Close(limit)
}

// stale implements serve.Served: the store is looked into only when it changed.
func (v *versions) stale(e serve.Engine) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.host.plugins.stored.Stamp()
	if now == v.seen && v.fresh {
		return false
	}
	v.seen, v.fresh = now, v.uses(e)
	return !v.fresh
}

// uses says whether e runs what would be started now. A plugin that is no longer there is no reason to stop one that runs.
func (v *versions) uses(e serve.Engine) bool {
	running, ok := e.(engine)
	if !ok {
		return true
	}
	set, err := findPlugins(v.host.config)
	if err != nil {
		return true
	}
	used := running.Decision().Plugin
	now, err := set.find(used.Name)
	return err != nil || now.Exe == used.Exe && now.RuntimeDir == used.RuntimeDir
}

// beside implements serve.Served. A version that fails is not tried again until the store changes.
func (v *versions) beside(ctx context.Context, e serve.Engine) (serve.Engine, error) {
	next, err := v.openFor(ctx, e.Card().Context)
	if err != nil && contract.KindOf(err) != contract.MemoryAdmission {
		v.mu.Lock()
		v.fresh = true
		v.mu.Unlock()
	}
	return next, err
}

// enough refuses a plan for less context than the engine has that it would stand in for.
func (h *host) enough(p *loader.Planned) error {
	if p.Plan.GetContext() >= h.leastContext {
		return nil
	}
	return contract.Errorf(contract.MemoryAdmission, p.Model.ID, "beside the version that runs there is memory for %d tokens of context, not for its %d; the budget is %s",
		p.Plan.GetContext(), h.leastContext, config.FormatBytes(p.Budget))
}
