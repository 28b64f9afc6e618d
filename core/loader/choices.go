package loader

import (
	"slices"
	"strings"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/core/profile"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Choices are what a person may decide of a model themselves, before any process starts. The zero value decides nothing.
type Choices struct {
	// Profile is one of their own.
	Profile *family.Profile
	// ArtifactFingerprint replaces what the path says; a pointer to an empty text is none.
	ArtifactFingerprint *string
	// Implementation names a registered one.
	Implementation string
	// Own is their own plugin and graph; it needs no family and no profile, and goes with neither of those above.
	Own *Own
	// Draft is speculation; Adapters are [NAME=]FOLDER[:SCALE]. Programs names auxiliary programs of the graph that runs.
	Draft    Draft
	Adapters []string
	Programs []string
}

// Own is a caller's own plugin and one of its graphs.
type Own struct {
	Plugin Plugin
	entry  corefamily.Entry
	graph  string // entry of the graph table
}

// NewOwn finds a graph, by the id of a table's entry or of a family (then its generic entry), in what a plugin says of
// itself. An unknown one is InvalidArgument listing what there is.
func NewOwn(p Plugin, desc *cladev1.DescribeResponse, graph string) (*Own, error) {
	m, err := family.ParseManifest([]byte(desc.GetManifestJson()))
	if err != nil {
		return nil, contract.Errorf(contract.PluginMismatch, p.Exe, "describes itself with a bad manifest: %w", err)
	}
	own := &Own{Plugin: p}
	var found, all []string
	for _, t := range desc.GetGraphTables() {
		if err := m.CheckTable(t); err != nil {
			return nil, err
		}
		for i, e := range t.Entries {
			all = append(all, e.Id)
			if e.Id == graph || t.Graph == graph && i == len(t.Entries)-1 {
				found = append(found, t.Graph)
				own.graph, own.entry = e.Id, ownEntry(m, t.Graph)
			}
		}
	}
	switch slices.Sort(found); len(slices.Compact(found)) {
	case 1:
		return own, nil
	case 0:
		return nil, contract.Errorf(contract.InvalidArgument, "graph", "%q is not in the tables of plugin %s: %s", graph, m.Name, strings.Join(all, ", "))
	}
	return nil, contract.Errorf(contract.InvalidArgument, "graph", "%q is in the tables of %s", graph, strings.Join(found, " and "))
}

// ownEntry is the record of a graph that the manifest declares, as CheckTable has seen.
func ownEntry(m *family.Manifest, graph string) corefamily.Entry {
	i := slices.IndexFunc(m.Families, func(r *family.Record) bool { return r.Graph == graph })
	return corefamily.Entry{Record: m.Families[i], Plugin: m.Name, Version: m.Version, Source: corefamily.FromCaller}
}

// Decide opens the headers of a local model and decides everything that needs no plugin process.
func (h *Host) Decide(m hub.Model) (*Decision, error) { return h.DecideWith(m, Choices{}) }

// DecideWith is Decide with what a person chose themselves.
func (h *Host) DecideWith(m hub.Model, c Choices) (_ *Decision, err error) {
	if c.Own != nil && (c.Profile != nil || c.Implementation != "") {
		return nil, contract.Errorf(contract.UnsupportedOption, "plugin", "a plugin of your own needs no profile and takes no implementation")
	}
	a, err := artifact.Open(m.Path)
	if err != nil {
		return nil, err
	}
	d := &Decision{Model: m, Artifact: a, host: h, choices: c, ArtifactFingerprint: artifact.SnapshotFingerprint(m.Path)}
	defer func() {
		if err != nil {
			_ = a.Close() // only read; the first error is the one to tell
		}
	}()
	if given := c.ArtifactFingerprint; given != nil {
		if d.ArtifactFingerprint = *given; *given != "" {
			if err := artifact.CheckFingerprint(*given); err != nil {
				return nil, err
			}
		}
	}
	if c.Own != nil {
		if err = d.takeOwn(); err == nil {
			err = d.auxiliaries()
		}
		return d, err
	}
	if d.Family, err = h.Families.Match(a.Config()); err != nil {
		return nil, err
	}
	d.Passed = h.Families.Passed(a.Config(), d.Family)
	parsed, err := d.Family.Record.Parse(a)
	if err != nil {
		return nil, err
	}
	if err := d.identify(parsed); err != nil {
		return nil, err
	}
	if err := d.auxiliaries(); err != nil {
		return nil, err
	}
	d.PluginErr = d.findPlugin()
	return d, nil
}

// identify takes a parsed config and decides what follows from it: fingerprints, profile, implementation and cell.
func (d *Decision) identify(parsed family.Parsed) (err error) {
	d.Parsed = parsed
	if d.ConfigFingerprint, err = parsed.ConfigFingerprint(); err != nil {
		return err
	}
	if d.GraphFingerprint, _, err = parsed.GraphFingerprint(); err != nil {
		return err
	}
	resolved, err := profile.Resolve(profile.Input{
		Record: d.Family.Record, Format: d.Artifact.Format, ConfigFingerprint: d.ConfigFingerprint, ArtifactFingerprint: d.ArtifactFingerprint,
		Families: d.host.Families, Given: d.choices.Profile, Implementation: d.choices.Implementation,
	})
	if err != nil {
		return err
	}
	d.Profile, d.Implementation = resolved.Profile, resolved.Implementation
	d.Cell, err = family.CellOf(d.Profile.Id, d.Profile.Loader, d.Profile.Loop)
	return err
}

// findPlugin finds the plugin that runs the model: the implementation's, else the family's.
func (d *Decision) findPlugin() (err error) {
	if d.Implementation == nil {
		if err := d.Family.Runnable(); err != nil {
			return err
		}
	}
	if d.Plugin, err = d.host.Find(d.pluginName()); err == nil && d.Plugin.Hold != nil {
		d.release, err = d.Plugin.Hold()
	}
	return err
}

func (d *Decision) pluginName() string {
	if d.Implementation != nil {
		return d.Implementation.Plugin
	}
	return d.Family.Plugin
}

// takeOwn decides by a caller's own plugin and graph: no family is asked and no profile is needed; the format must still be
// one that the graph's record opens.
func (d *Decision) takeOwn() (err error) {
	own := d.choices.Own
	d.Family, d.Plugin = own.entry, own.Plugin
	r := d.Family.Record
	want, err := r.ProfileFor(d.Artifact.Format)
	if err != nil {
		return err
	}
	if d.Cell, err = family.CellOf(r.Graph, want.Loader, string(want.Loop)); err != nil {
		return err
	}
	if d.Cell == family.Streamed {
		return d.Cell.ForImplementation(r.Graph, own.graph)
	}
	if d.Parsed, err = r.Parse(d.Artifact); err != nil {
		return err
	}
	if d.ConfigFingerprint, err = d.Parsed.ConfigFingerprint(); err != nil {
		return err
	}
	if d.GraphFingerprint, _, err = d.Parsed.GraphFingerprint(); err != nil {
		return err
	}
	d.Profile = &cladev1.Profile{Loader: want.Loader, Loop: string(want.Loop), ConfigFingerprint: &d.ConfigFingerprint, FromCaller: true}
	return nil
}
