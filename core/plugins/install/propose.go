package install

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/source"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
)

// Proposal is an installation that was not begun.
type Proposal struct {
	// Name is how a person calls the plugin: example.org/foo, or the bare name of a first-party one.
	Name   string
	Source trust.Source
	Index  index.Accepted
	Choice index.Choice
	// Missing is the bytes to download; 0 when all archives are in the store.
	Missing int64
	// Replaces is what is installed now; nil: nothing.
	Replaces *store.Record

	source source.Source
}

// Current says that nothing would change.
func (p *Proposal) Current() bool {
	r := p.Replaces
	return r != nil && p.Missing == 0 && r.Digest == p.Choice.Archive.SHA256 && r.Version == p.Choice.Version.Version &&
		(p.Choice.Runtime == nil && r.Runtime == "" || p.Choice.Runtime != nil && r.Runtime == p.Choice.Runtime.SHA256)
}

// archives are those of the proposal: the plugin's and its runtime's.
func (p *Proposal) archives() []index.Archive {
	out := []index.Archive{p.Choice.Archive}
	if p.Choice.Runtime != nil {
		out = append(out, p.Choice.Runtime.Archive)
	}
	return out
}

func (p *Proposal) unpacked(l *store.Locked) (sum int64) {
	for _, a := range p.archives() {
		if !l.Has(a.SHA256) {
			sum += a.Unpacked
		}
	}
	return sum
}

// Qualified is how a plugin of a source is called.
func Qualified(source, plugin string) string {
	if source == index.FirstParty {
		return plugin
	}
	return source + "/" + plugin
}

// parseRef reads NAME or SOURCE/NAME; a bare name is a first-party plugin's.
func parseRef(ref string) (whole, source, name string, err error) {
	source, name, scoped := strings.Cut(ref, "/")
	if !scoped {
		source, name = index.FirstParty, ref
	}
	if !index.IsSourceName(source) || name == "" || strings.ContainsAny(name, "/ ") {
		return ref, "", "", contract.Errorf(contract.InvalidArgument, ref, "is no plugin's name").WithNext("want NAME, or SOURCE/NAME for a plugin by others")
	}
	return ref, source, name, nil
}

// Refresh fetches the index of a source and judges it; an accepted one is remembered.
func (m *Manager) Refresh(ctx context.Context, s trust.Source) (index.Accepted, source.Source, error) {
	if s.Location == "" {
		return index.Accepted{}, nil, contract.Errorf(contract.Unavailable, s.Name, "has no location; only bundles of it can be installed").
			WithNext("clade plugin install BUNDLE")
	}
	place, err := source.Open(s.Location, m.Sources)
	if err != nil {
		return index.Accepted{}, nil, err
	}
	a, err := m.accept(ctx, s, place, s.Location)
	return a, place, err
}

// accept judges the index of a place and remembers it for the source.
func (m *Manager) accept(ctx context.Context, s trust.Source, place source.Source, where string) (index.Accepted, error) {
	raw, signature, err := place.Index(ctx)
	if err != nil {
		return index.Accepted{}, err
	}
	l, err := m.Store.Lock(ctx, m.Waiting)
	if err != nil {
		return index.Accepted{}, err
	}
	defer l.Unlock()
	e, err := m.Trust.Expect(s, m.now(), m.Release)
	if err != nil {
		return index.Accepted{}, err
	}
	a, err := index.Read(raw, signature, where, e)
	if err != nil {
		return index.Accepted{}, err
	}
	if err := m.foreign(a); err != nil {
		return index.Accepted{}, err
	}
	return a, m.Trust.Accept(a, raw, signature, m.now())
}

// foreign refuses an index by others that offers a plugin with a first-party name: it would stand for ours in lists.
func (m *Manager) foreign(a index.Accepted) error {
	if a.Name == index.FirstParty {
		return nil
	}
	for _, o := range m.Offers {
		if _, taken := a.Plugins[o.Manifest.Name]; taken && o.Source == corefamily.FromEmbedded {
			return contract.Errorf(contract.PluginUntrusted, a.Name, "offers a plugin %s, which is the name of a first-party one", o.Manifest.Name).
				WithNext("ask the publisher to give it another name")
		}
	}
	return nil
}

// Propose says what installing ref would do: NAME or SOURCE/NAME, and exactly that version when one is given.
func (m *Manager) Propose(ctx context.Context, ref, version string) (*Proposal, error) {
	_, name, plugin, err := parseRef(ref)
	if err != nil {
		return nil, err
	}
	s, err := m.Trust.Find(name)
	if err != nil {
		var e *contract.Error
		if errors.As(err, &e) && name == index.FirstParty {
			return nil, m.noDefault(plugin)
		}
		return nil, err
	}
	a, place, err := m.Refresh(ctx, s)
	if err != nil {
		return nil, err
	}
	return m.propose(s, a, place, plugin, version)
}

// noDefault is the answer of a host that knows no source of first-party plugins; it names another one that has the plugin.
func (m *Manager) noDefault(plugin string) error {
	sources, err := m.Trust.Sources()
	if err != nil {
		return err
	}
	for _, s := range sources {
		if a, _, err := m.Trust.Cached(s, m.now(), m.Release); err == nil && a.Plugins[plugin] != nil {
			return contract.Errorf(contract.NotFound, plugin, "is a plugin of source %s", s.Name).WithNext("clade plugin install %s", Qualified(s.Name, plugin))
		}
	}
	return contract.Errorf(contract.PluginMissing, plugin, "no source of plugins is trusted that could have it").WithNext("%s", trust.HowToAdd)
}

func (m *Manager) propose(s trust.Source, a index.Accepted, place source.Source, plugin, version string) (*Proposal, error) {
	c, err := a.Choose(plugin, version, m.Machine)
	if err != nil {
		return nil, err
	}
	p := &Proposal{Name: Qualified(s.Name, plugin), Source: s, Index: a, Choice: c, source: place}
	have, there, err := m.Store.Find(plugin)
	if err != nil {
		return nil, err
	}
	if there {
		p.Replaces = &have
	}
	for _, archive := range p.archives() {
		if !m.Store.Has(archive.SHA256) {
			p.Missing += archive.Size
		}
	}
	return p, nil
}

// ProposeBundle says what installing a bundle would do: one proposal for each plugin that it carries for this machine.
func (m *Manager) ProposeBundle(ctx context.Context, path string) ([]*Proposal, error) {
	place, err := source.Open(path, m.Sources)
	if err != nil {
		return nil, err
	}
	raw, _, err := place.Index(ctx)
	if err != nil {
		return nil, err
	}
	// Its name says which source's keys must have signed it; nothing else of it is believed yet.
	claimed, err := index.Parse(raw)
	if err != nil {
		return nil, contract.Errorf(contract.PluginUntrusted, path, "%w", err)
	}
	s, err := m.Trust.Find(claimed.Name)
	if err != nil {
		return nil, err
	}
	a, err := m.accept(ctx, s, place, path)
	if err != nil {
		return nil, err
	}
	var out []*Proposal
	var first error
	for name := range a.Plugins {
		p, err := m.propose(s, a, place, name, "")
		if err == nil {
			err = carried(ctx, m.Store, p)
		}
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, first
	}
	slices.SortFunc(out, func(a, b *Proposal) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// carried says whether every archive of a proposal is in its source or in the store.
func carried(ctx context.Context, s *store.Store, p *Proposal) error {
	for _, a := range p.archives() {
		if s.Has(a.SHA256) {
			continue
		}
		r, _, err := p.source.Archive(ctx, a, 0)
		if err != nil {
			return err
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}

// IsBundle says that an argument names a file and not a plugin.
func IsBundle(arg string) bool {
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

// IndexOffers are the manifests that the trusted sources' last indexes have for this machine, without asking the sources. A
// source whose index is not there or no longer valid offers nothing.
func (m *Manager) IndexOffers() ([]corefamily.Offer, error) {
	sources, err := m.Trust.Sources()
	if err != nil {
		return nil, err
	}
	var out []corefamily.Offer
	seen := map[string]bool{}
	for _, s := range sources {
		a, _, err := m.Trust.Cached(s, m.now(), m.Release)
		if err != nil {
			continue
		}
		for name := range a.Plugins {
			c, err := a.Choose(name, "", m.Machine)
			if err != nil || seen[name] {
				continue
			}
			seen[name] = true
			out = append(out, corefamily.Offer{Manifest: c.Version.Parsed(), Source: corefamily.FromIndex})
		}
	}
	return out, nil
}

// SourceOf is the first trusted source whose last index has a plugin; a first-party plugin's is its own whether seen or not.
func (m *Manager) SourceOf(plugin string) string {
	sources, err := m.Trust.Sources()
	if err != nil {
		return index.FirstParty
	}
	for _, s := range sources {
		if a, _, err := m.Trust.Cached(s, m.now(), m.Release); err == nil && a.Plugins[plugin] != nil {
			return s.Name
		}
	}
	return index.FirstParty
}
