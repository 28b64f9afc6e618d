package loader

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// loaded is an adapter that was loaded after the model was opened. Its fields but the first are guarded by the model's mu.
type loaded struct {
	AdapterWish
	info  *cladev1.AdapterInfo
	users int  // requests that chose it and have not ended, in whatever process they are
	left  bool // no new request finds it
	gone  chan struct{}
}

// Adapter is one that a request may choose.
type Adapter struct {
	AdapterWish
	// Given: the model was opened with it, so that requests have it that choose nothing. It cannot be unloaded.
	Given bool
}

// adapterOption is declared by a plugin whose requests choose adapters.
const adapterOption = "adapter"

// canAdapt refuses for a plugin that has no adapters.
func (m *Model) canAdapt() error {
	if m.honours(adapterOption) {
		return nil
	}
	return contract.Errorf(contract.UnsupportedOption, "adapter", "the model's plugin does not honour it")
}

// Adapters are those that a request may choose, in the order of loading.
func (m *Model) Adapters() []Adapter {
	if m.canAdapt() != nil {
		return nil
	}
	var out []Adapter
	for _, a := range m.decision.Auxiliaries {
		if a.Role == cladev1.Role_ROLE_ADAPTER {
			out = append(out, Adapter{AdapterWish{a.ID, a.Path, a.Scale}, true})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.loaded {
		if !l.left {
			out = append(out, Adapter{AdapterWish: l.AdapterWish})
		}
	}
	return out
}

// noAdapter refuses a name, and says which there are.
func (m *Model) noAdapter(id string) error {
	var names []string
	for _, a := range m.Adapters() {
		names = append(names, a.ID)
	}
	if len(names) == 0 {
		return contract.Errorf(contract.NotFound, id, "no adapter is loaded")
	}
	return contract.Errorf(contract.NotFound, id, "no adapter of this name is loaded; there are %s", strings.Join(names, ", "))
}

// useAdapters keeps the adapters that a request chooses from being taken away until the result is called, through every process that
// the request runs in.
func (m *Model) useAdapters(choice *string) (func(), error) {
	if choice == nil {
		return func() {}, nil
	}
	uses, err := contract.ParseAdapters(*choice)
	if err != nil {
		return nil, err
	}
	given := m.decision.adapterIDs()
	var used []*loaded
	m.mu.Lock()
	unknown := slices.IndexFunc(uses, func(u contract.AdapterUse) bool {
		l := m.loadedAs(u.ID)
		if l != nil && !l.left {
			used = append(used, l)
			return false
		}
		return !slices.Contains(given, u.ID)
	})
	if unknown < 0 {
		for _, l := range used {
			l.users++
		}
	}
	m.mu.Unlock()
	if unknown >= 0 {
		return nil, m.noAdapter(uses[unknown].ID)
	}
	return func() { m.doneWith(used) }, nil
}

// loadedAs is the adapter of that name, also one that leaves; under mu.
func (m *Model) loadedAs(id string) *loaded {
	if i := slices.IndexFunc(m.loaded, func(l *loaded) bool { return l.ID == id }); i >= 0 {
		return m.loaded[i]
	}
	return nil
}

func (m *Model) doneWith(used []*loaded) {
	var last []*loaded
	m.mu.Lock()
	for _, l := range used {
		if l.users--; l.users == 0 && l.left {
			last = append(last, l)
		}
	}
	m.mu.Unlock()
	for _, l := range last {
		m.takeAway(l)
	}
}

// LoadAdapter loads one whole, or changes nothing. It is loaded again in every process that follows the present one.
func (m *Model) LoadAdapter(ctx context.Context, w AdapterWish) error {
	if err := w.check(); err != nil {
		return err
	}
	for {
		p, err := m.alive(ctx)
		if err != nil {
			return err
		}
		if err := m.canAdapt(); err != nil {
			return err
		}
		if done, err := m.loadIn(ctx, p, w); done {
			return err
		}
	}
}

// loadIn loads into p while no process begins; false when p is not the present one any more.
func (m *Model) loadIn(ctx context.Context, p *Planned, w AdapterWish) (done bool, err error) {
	m.starting.Lock()
	defer m.starting.Unlock()
	if now, _ := m.present(); now != p {
		return false, nil
	}
	m.mu.Lock()
	before := m.loadedAs(w.ID)
	leaving := before != nil && before.left
	m.mu.Unlock()
	if leaving {
		return true, contract.Errorf(contract.InvalidArgument, w.ID, "an adapter of this name is being unloaded, and requests still have it").
			WithNext("load it when they have ended, or choose another name")
	}
	info, err := p.loadAdapter(ctx, w)
	if contract.KindOf(err) == contract.PluginCrashed {
		return true, contract.Errorf(contract.Unavailable, w.ID, "nothing is loaded: %w", err).WithNext("try again")
	}
	if err != nil {
		return true, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = append(m.loaded, &loaded{AdapterWish: w, info: info, gone: make(chan struct{})})
	return true, nil
}

// loadAdapter has the process load one, and gives what it says of it.
func (p *Planned) loadAdapter(ctx context.Context, w AdapterWish) (*cladev1.AdapterInfo, error) {
	r, err := p.process.Adapters(ctx, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Load{
		Load: &cladev1.AdapterLoad{Id: w.ID, Path: w.Path, Scale: w.Scale},
	}})
	if err != nil {
		return nil, err
	}
	for _, a := range r.GetAdapters() {
		if a.GetId() == w.ID {
			return a, nil
		}
	}
	return nil, contract.Errorf(contract.PluginMismatch, p.Plugin.Name, "loaded adapter %s and does not list it", w.ID)
}

// UnloadAdapter takes an adapter away: no new request finds it, those that have it go on, also in another process when this one dies,
// and it returns when the last has ended and its memory is free. A ctx that ends leaves the rest to that request.
func (m *Model) UnloadAdapter(ctx context.Context, id string) error {
	if err := m.canAdapt(); err != nil {
		return err
	}
	m.mu.Lock()
	l := m.loadedAs(id)
	found := l != nil && !l.left
	if found {
		l.left = true
	}
	free := found && l.users == 0
	m.mu.Unlock()
	switch {
	case !found && slices.Contains(m.decision.adapterIDs(), id):
		return contract.Errorf(contract.InvalidArgument, id, "requests that choose nothing have it: the model was opened with it").
			WithNext("choose %q in the request, or open the model without it", contract.NoAdapter)
	case !found:
		return m.noAdapter(id)
	case free:
		m.takeAway(l)
	}
	select {
	case <-l.gone:
		return nil
	case <-ctx.Done():
		return contract.Errorf(contract.Cancelled, id, "no new request finds it; its memory is free when the last that has it has ended")
	}
}

// freeTime is what the plugin gets to free an adapter that nobody has.
const freeTime = 30 * time.Second

// takeAway frees an adapter that left and that no request has. It runs once for each.
func (m *Model) takeAway(l *loaded) {
	m.starting.Lock()
	defer m.starting.Unlock()
	defer close(l.gone)
	p, _ := m.present()
	if !m.forget(l) || p == nil {
		return // its memory went with its process
	}
	ctx, cancel := context.WithTimeout(context.Background(), freeTime)
	defer cancel()
	if err := p.unloadAdapter(ctx, l.ID); err != nil && contract.KindOf(err) != contract.PluginCrashed && contract.KindOf(err) != contract.NotFound {
		m.decision.host.logger().Error("adapter is not freed", "adapter", l.ID, "error", err)
	}
}

func (p *Planned) unloadAdapter(ctx context.Context, id string) error {
	_, err := p.process.Adapters(ctx, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Unload{Unload: &cladev1.AdapterUnload{Id: id}}})
	return err
}

// readapt loads in a new process what was loaded in the one before it, so that requests go on with the same adapters. One whose files
// changed meanwhile would go on as another: it is left out, and requests that have it are told.
func (m *Model) readapt(ctx context.Context, p *Planned) error {
	m.mu.Lock()
	again := slices.Clone(m.loaded)
	m.mu.Unlock()
	for _, l := range again {
		info, err := p.loadAdapter(ctx, l.AdapterWish)
		switch {
		case contract.KindOf(err) == contract.PluginCrashed:
			return err
		case err == nil && info.GetDigest() != l.info.GetDigest():
			if err = p.unloadAdapter(ctx, l.ID); err == nil {
				err = contract.Errorf(contract.ArtifactCorrupt, l.Path, "changed since it was loaded")
			}
		}
		if err != nil {
			m.decision.host.logger().Error("adapter is gone", "adapter", l.ID, "error", err)
			m.forget(l)
		}
	}
	return m.sameAdapters(ctx, p)
}

// forget drops an adapter from those that there are; false when it was none of them.
func (m *Model) forget(l *loaded) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.loaded)
	m.loaded = slices.DeleteFunc(m.loaded, func(other *loaded) bool { return other == l })
	return len(m.loaded) < before
}

// sameAdapters remembers what the adapters that go with the model are at the first opening, and refuses others later.
func (m *Model) sameAdapters(ctx context.Context, p *Planned) error {
	given := m.decision.adapterIDs()
	if len(given) == 0 || !p.declares(adapterOption) {
		return nil
	}
	r, err := p.process.Adapters(ctx, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_List{List: &cladev1.AdapterList{}}})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range r.GetAdapters() {
		if !slices.Contains(given, a.GetId()) {
			continue
		}
		before, known := m.digests[a.GetId()]
		if known && before != a.GetDigest() {
			return contract.Errorf(contract.ArtifactCorrupt, a.GetPath(), "changed since it was loaded").WithNext("open the model again")
		}
		m.digests[a.GetId()] = a.GetDigest()
	}
	return nil
}
