package install

import (
	"context"
	"slices"
	"strings"

	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/sdk/family"
)

// Change is what an update would do to one installed plugin.
type Change struct {
	*Proposal
	// Err is why the source cannot update it; then there is no proposal.
	Err error
	Was store.Record
	// Added and Removed are families' graph ids, Changed those whose record differs.
	Added, Removed, Changed []string
	// RuntimeChanges says that another build of the runtime comes with it.
	RuntimeChanges bool
}

// Updates says what updating plugins would change; no names is every installed one.
func (m *Manager) Updates(ctx context.Context, refs []string) ([]Change, error) {
	all, err := m.Store.Installed()
	if err != nil {
		return nil, err
	}
	var out []Change
	for _, r := range all {
		ref := Qualified(r.Source, r.Plugin)
		if len(refs) > 0 && !slices.Contains(refs, ref) && !slices.Contains(refs, r.Plugin) {
			continue
		}
		c := Change{Was: r}
		if c.Proposal, c.Err = m.Propose(ctx, ref, ""); c.Err == nil {
			m.compare(&c)
		}
		out = append(out, c)
	}
	for _, ref := range refs {
		if !slices.ContainsFunc(out, func(c Change) bool { return Qualified(c.Was.Source, c.Was.Plugin) == ref || c.Was.Plugin == ref }) {
			return nil, notInstalled(ref, m.Store.Dir)
		}
	}
	return out, nil
}

// compare lists what another version's records change. A folder that cannot be read counts as having none.
func (m *Manager) compare(c *Change) {
	if r := c.Choice.Runtime; r != nil {
		c.RuntimeChanges = c.Was.Runtime != r.SHA256
	}
	old := map[string]string{}
	if was, err := plugins.ManifestOf(m.Store.Folder(c.Was.Digest)); err == nil {
		for _, r := range was.Families {
			old[r.Graph] = recordText(r)
		}
	}
	for _, r := range c.Choice.Version.Parsed().Families {
		switch text, had := old[r.Graph]; {
		case !had:
			c.Added = append(c.Added, r.Graph)
		case text != recordText(r):
			c.Changed = append(c.Changed, r.Graph)
		}
		delete(old, r.Graph)
	}
	for graph := range old {
		c.Removed = append(c.Removed, graph)
	}
	slices.SortFunc(c.Removed, strings.Compare)
}

func recordText(r *family.Record) string {
	return (&family.Manifest{Families: []*family.Record{r}}).JSON()
}

// Collect removes what nothing needs any more, such as a version that still ran when it was replaced.
func (m *Manager) Collect(ctx context.Context) error {
	l, err := m.Store.Lock(ctx, m.Waiting)
	if err != nil {
		return err
	}
	defer l.Unlock()
	_, err = l.Collect()
	return err
}
