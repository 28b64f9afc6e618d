package family

import (
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/contract"
	record "github.com/clademl/clade/sdk/family"
)

// disjoint leaves out third-party records that accept a model of the corpus which a record before them, of the same tier,
// accepts too: whichever came first would win by its name alone. entries are in the list's order.
func disjoint(entries []Entry, firstParty map[string]bool) ([]Entry, []Problem) {
	third := func(e Entry) bool { return !firstParty[e.Plugin] }
	if !slices.ContainsFunc(entries, third) {
		return entries, nil
	}
	corpus, err := Corpus()
	if err != nil {
		// The corpus is part of the build and a test reads it.
		return entries, []Problem{{Reason: err.Error()}}
	}
	// First-party records keep their place whatever the order: they are held to the corpus by a test.
	kept := slices.DeleteFunc(slices.Clone(entries), third)
	var problems []Problem
	for _, e := range entries {
		if !third(e) {
			continue
		}
		if other, sample := clash(e, kept, corpus); sample != "" {
			problems = append(problems, Problem{
				Plugin: e.Plugin, Graph: e.Record.Graph,
				Reason: fmt.Sprintf("it accepts %s, which family %s of plugin %s has", sample, other.Record.Graph, other.Plugin),
			})
			continue
		}
		kept = append(kept, e)
	}
	return kept, problems
}

// clash finds a kept entry of e's tier that accepts a sample which e accepts too.
func clash(e Entry, kept []Entry, corpus []Sample) (Entry, string) {
	for _, s := range corpus {
		if !e.Record.Match(s.Config).OK {
			continue
		}
		for _, k := range kept {
			if k.Record.Tier == e.Record.Tier && k.Record.Match(s.Config).OK {
				return k, s.Name
			}
		}
	}
	return Entry{}, ""
}

// ProfileEntry is a profile of one exact artifact and where it came from.
type ProfileEntry struct {
	*record.Profile
	Plugin string
	Source Source
}

// ImplementationEntry is a registered implementation and the plugin that has it.
type ImplementationEntry struct {
	*record.Implementation
	Plugin string
	Source Source
}

// collect takes profiles and implementations from the offers in use, first-party ones first. A graph that no family has,
// a rule that is broken, and what is claimed already leave the later one out.
func (l *List) collect(offers []Offer) (problems []Problem) {
	claimed := map[string]string{}
	claim := func(what, plugin string, keys ...string) error {
		for _, k := range keys {
			if other, taken := claimed[what+k]; taken && k != "" {
				return fmt.Errorf("plugin %s claims %s", other, k)
			}
		}
		for _, k := range keys {
			claimed[what+k] = plugin
		}
		return nil
	}
	for _, o := range offers {
		plugin := o.Manifest.Name
		for i := range o.Manifest.Profiles {
			p := &o.Manifest.Profiles[i]
			err := l.known(p.Graph)
			if err == nil {
				e, _ := l.ByGraph(p.Graph)
				err = p.CheckFor(e.Record)
			}
			if err == nil {
				err = claim("profile ", plugin, p.ID, p.Artifact)
			}
			if err != nil {
				problems = append(problems, Problem{Plugin: plugin, What: "profile", Graph: p.ID, Reason: err.Error()})
				continue
			}
			l.profiles = append(l.profiles, ProfileEntry{p, plugin, o.Source})
		}
		for i := range o.Manifest.Implementations {
			impl := &o.Manifest.Implementations[i]
			err := l.known(impl.Graph)
			if err == nil {
				err = claim("implementation ", plugin, impl.ID)
			}
			if err != nil {
				problems = append(problems, Problem{Plugin: plugin, What: "implementation", Graph: impl.ID, Reason: err.Error()})
				continue
			}
			l.implementations = append(l.implementations, ImplementationEntry{impl, plugin, o.Source})
		}
	}
	return problems
}

func (l *List) known(graph string) error {
	if _, ok := l.ByGraph(graph); !ok {
		return fmt.Errorf("no family has its graph %s", graph)
	}
	return nil
}

// Profiles lists the profiles of exact artifacts. The slice must not be changed.
func (l *List) Profiles() []ProfileEntry { return l.profiles }

// Implementation finds a registered one.
func (l *List) Implementation(id string) (ImplementationEntry, bool) {
	i := slices.IndexFunc(l.implementations, func(e ImplementationEntry) bool { return e.ID == id })
	if i < 0 {
		return ImplementationEntry{}, false
	}
	return l.implementations[i], true
}

// Implementations lists them all. The slice must not be changed.
func (l *List) Implementations() []ImplementationEntry { return l.implementations }

// CheckInstall refuses a manifest that would conflict with the offers that are there: what start would leave out is never
// installed. An offer of the same plugin is the one being replaced.
func CheckInstall(offers []Offer, m *record.Manifest) error {
	others := slices.DeleteFunc(slices.Clone(offers), func(o Offer) bool {
		return o.Manifest.Name == m.Name && o.Source == FromInstalled
	})
	_, before := New(others)
	_, problems := New(append(others, Offer{Manifest: m, Source: FromInstalled}))
	for _, p := range problems {
		if !slices.Contains(before, p) {
			return contract.Errorf(contract.PluginMismatch, m.Name, "cannot be installed beside what is there: %s", p).
				WithNext("remove the plugin that conflicts, or ask this one's author")
		}
	}
	return nil
}
