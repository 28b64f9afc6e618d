package loader

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// AdapterWish names an adapter to load.
type AdapterWish struct {
	ID, Path string
	Scale    *float64 // nil: 1
}

// ParseAdapter reads [NAME=]FOLDER[:SCALE]. Without a name the folder's own is taken.
func ParseAdapter(text string) (AdapterWish, error) {
	w := AdapterWish{Path: text}
	if id, path, named := strings.Cut(text, "="); named && contract.CheckAdapterID(id) == nil {
		w.ID, w.Path = id, path
	}
	if at := strings.LastIndex(w.Path, ":"); at > 0 {
		if v, err := strconv.ParseFloat(w.Path[at+1:], 64); err == nil {
			w.Path, w.Scale = w.Path[:at], &v
		}
	}
	abs, err := filepath.Abs(w.Path)
	if err != nil || w.Path == "" {
		return w, contract.Errorf(contract.InvalidArgument, "adapter", "%q is not a usable folder", text)
	}
	w.Path = abs
	if w.ID == "" {
		w.ID = filepath.Base(abs)
	}
	return w, w.check()
}

func (w AdapterWish) check() error {
	if err := contract.CheckAdapterID(w.ID); err != nil {
		return contract.Errorf(contract.InvalidArgument, "adapter", "%w", err).WithNext("give it a name: NAME=FOLDER")
	}
	if w.Scale != nil {
		return contract.CheckAdapterScale(w.ID, *w.Scale)
	}
	return nil
}

// adapter knows one from its headers.
func adapter(w AdapterWish) (Auxiliary, error) {
	out := Auxiliary{Role: cladev1.Role_ROLE_ADAPTER, Path: w.Path, Format: string(artifact.Safetensors), ID: w.ID, Scale: w.Scale}
	a, err := lora.Open(w.Path)
	if err != nil {
		return out, err
	}
	out.Kind, out.WeightBytes = string(a.Format), a.StoredBytes()
	return out, a.Close()
}

// loaded is an adapter that was loaded after the model was opened.
type loaded struct {
	AdapterWish
	digest string
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

// LoadAdapter loads one whole, or changes nothing. It is loaded again in every process that follows the present one.
func (m *Model) LoadAdapter(ctx context.Context, w AdapterWish) error {
	if err := w.check(); err != nil {
		return err
	}
	p, err := m.alive(ctx)
	if err != nil {
		return err
	}
	if err := m.canAdapt(); err != nil {
		return err
	}
	digest, err := p.loadAdapter(ctx, w)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = append(m.loaded, loaded{w, digest})
	m.digests[w.ID] = digest
	return nil
}

// loadAdapter has the process load one, and gives its digest.
func (p *Planned) loadAdapter(ctx context.Context, w AdapterWish) (string, error) {
	r, err := p.process.Adapters(ctx, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Load{
		Load: &cladev1.AdapterLoad{Id: w.ID, Path: w.Path, Scale: w.Scale},
	}})
	if err != nil {
		return "", err
	}
	for _, a := range r.GetAdapters() {
		if a.GetId() == w.ID {
			return a.GetDigest(), nil
		}
	}
	return "", contract.Errorf(contract.PluginMismatch, p.Plugin.Name, "loaded adapter %s and does not list it", w.ID)
}

// UnloadAdapter takes an adapter away: no new request finds it, those that have it go on, and it returns when the last has ended.
func (m *Model) UnloadAdapter(ctx context.Context, id string) error {
	if err := m.canAdapt(); err != nil {
		return err
	}
	p, err := m.alive(ctx)
	if err != nil {
		return err
	}
	_, err = p.process.Adapters(ctx, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Unload{Unload: &cladev1.AdapterUnload{Id: id}}})
	if err != nil && contract.KindOf(err) != contract.Cancelled {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = slices.DeleteFunc(m.loaded, func(l loaded) bool { return l.ID == id })
	delete(m.digests, id)
	return err
}

// AdapterIDs are those that a request may choose, in the order of loading.
func (m *Model) AdapterIDs() []string {
	out := m.decision.adapterIDs()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.loaded {
		out = append(out, l.ID)
	}
	return out
}

// readapt loads in a new process what was loaded in the one before it, so that requests go on with the same adapters. One whose files
// changed meanwhile would go on as another: it is left out, and requests that have it are told.
func (m *Model) readapt(ctx context.Context, p *Planned) error {
	m.mu.Lock()
	again := slices.Clone(m.loaded)
	m.mu.Unlock()
	for _, l := range again {
		digest, err := p.loadAdapter(ctx, l.AdapterWish)
		switch {
		case contract.KindOf(err) == contract.PluginCrashed:
			return err
		case err == nil && digest != l.digest:
			_, err = p.process.Adapters(ctx, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Unload{Unload: &cladev1.AdapterUnload{Id: l.ID}}})
			if err == nil {
				err = contract.Errorf(contract.ArtifactCorrupt, l.Path, "changed since it was loaded")
			}
		}
		if err != nil {
			m.decision.host.logger().Error("adapter is gone", "adapter", l.ID, "error", err)
			m.mu.Lock()
			m.loaded = slices.DeleteFunc(m.loaded, func(other loaded) bool { return other.ID == l.ID })
			delete(m.digests, l.ID)
			m.mu.Unlock()
		}
	}
	return m.sameAdapters(ctx, p)
}

// sameAdapters remembers what the adapters that go with the model are at the first opening, and refuses others later.
func (m *Model) sameAdapters(ctx context.Context, p *Planned) error {
	if len(m.decision.adapterIDs()) == 0 || !p.declares(adapterOption) {
		return nil
	}
	r, err := p.process.Adapters(ctx, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_List{List: &cladev1.AdapterList{}}})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range r.GetAdapters() {
		before, known := m.digests[a.GetId()]
		if known && before != a.GetDigest() {
			return contract.Errorf(contract.ArtifactCorrupt, a.GetPath(), "changed since it was loaded").WithNext("open the model again")
		}
		m.digests[a.GetId()] = a.GetDigest()
	}
	return nil
}
