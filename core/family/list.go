package family

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	record "github.com/clademl/clade/sdk/family"
)

// Source says where a manifest came from. A lower value is stronger.
type Source int

// The sources, strongest first.
const (
	FromInstalled Source = iota
	FromIndex
	FromEmbedded
	// FromCaller is a plugin that a person named by its path; it is no part of the list.
	FromCaller
)

// String names the source as the families verb prints it.
func (s Source) String() string {
	switch s {
	case FromInstalled:
		return "installed"
	case FromIndex:
		return "index"
	case FromCaller:
		return "named by the caller"
	}
	return "embedded"
}

// Offer is a manifest and where it came from.
type Offer struct {
	Manifest *record.Manifest
	Source   Source
}

// Entry is one family in the list.
type Entry struct {
	Record  *record.Record
	Plugin  string
	Version string
	Source  Source
}

// Problem is a record, a profile or an implementation that was left out, and why.
type Problem struct {
	Plugin string
	// What is profile or implementation; empty for a family. Graph is the family's graph id, or the other's own id.
	What   string
	Graph  string
	Reason string
}

func (p Problem) String() string {
	what := p.What
	if what == "" {
		what = "family"
	}
	return fmt.Sprintf("%s %s of plugin %s is disabled: %s", what, p.Graph, p.Plugin, p.Reason)
}

// List is the families in the order they are asked.
type List struct {
	entries         []Entry
	capabilities    []string
	profiles        []ProfileEntry
	implementations []ImplementationEntry
}

// New builds the list. Graph ids must be unique over all plugins, a plugin that is not first-party must name its graphs
// under a domain (example.org/x), and its records must not accept a model of the corpus that another of their tier accepts;
// what breaks that is left out and reported.
func New(offers []Offer) (*List, []Problem) {
	firstParty := map[string]bool{}
	for _, o := range offers {
		if o.Source == FromEmbedded {
			firstParty[o.Manifest.Name] = true
		}
	}
	var entries []Entry
	var problems []Problem
	owner := map[string]string{}
	used := strongest(offers, firstParty)
	for _, o := range used {
		for _, r := range o.Manifest.Families {
			e := Entry{Record: r, Plugin: o.Manifest.Name, Version: o.Manifest.Version, Source: o.Source}
			switch other, taken := owner[r.Graph]; {
			case taken:
				problems = append(problems, Problem{Plugin: e.Plugin, Graph: r.Graph, Reason: "plugin " + other + " has this graph id"})
			case !firstParty[e.Plugin] && !strings.Contains(r.Graph, "/"):
				problems = append(problems, Problem{
					Plugin: e.Plugin, Graph: r.Graph, Reason: "a third-party graph id must hold a domain, as in example.org/" + r.Graph,
				})
			default:
				owner[r.Graph] = e.Plugin
				entries = append(entries, e)
			}
		}
	}
	inOrder := func(a, b Entry) int { return compare(a, b, firstParty) }
	slices.SortStableFunc(entries, inOrder)
	entries, more := disjoint(entries, firstParty)
	slices.SortStableFunc(entries, inOrder)
	l := &List{entries: entries, capabilities: capabilities(entries)}
	return l, append(append(problems, more...), l.collect(used)...)
}

// strongest keeps one offer for each plugin, first-party ones first so that they win a conflict, then by name.
func strongest(offers []Offer, firstParty map[string]bool) []Offer {
	best := map[string]Offer{}
	for _, o := range offers {
		if have, ok := best[o.Manifest.Name]; !ok || o.Source < have.Source {
			best[o.Manifest.Name] = o
		}
	}
	out := make([]Offer, 0, len(best))
	for _, o := range best {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b Offer) int {
		return cmp.Or(
			thirdLast(firstParty[a.Manifest.Name], firstParty[b.Manifest.Name]),
			cmp.Compare(a.Manifest.Name, b.Manifest.Name),
		)
	})
	return out
}

func thirdLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// compare is the list's order: targeted records before generic ones, first-party targeted ones before third-party, and the
// first-party generic one last of all.
func compare(a, b Entry, firstParty map[string]bool) int {
	aFirst, bFirst := firstParty[a.Plugin], firstParty[b.Plugin]
	if a.Record.Tier == record.Generic && b.Record.Tier == record.Generic {
		return cmp.Or(thirdLast(bFirst, aFirst), cmp.Compare(a.Record.Graph, b.Record.Graph))
	}
	rank := 0
	if aFirst && bFirst {
		rank = cmp.Compare(a.Record.Order, b.Record.Order)
	}
	return cmp.Or(
		thirdLast(a.Record.Tier == record.Targeted, b.Record.Tier == record.Targeted),
		thirdLast(aFirst, bFirst),
		rank,
		cmp.Compare(a.Record.Graph, b.Record.Graph),
	)
}

// engineCapabilities are what the engine itself brings; records add theirs.
var engineCapabilities = []string{
	"autoregressive", "colibri-container", "diffusion", "encoder-decoder", "gguf", "mixed-precision-kv", "native-mtp",
	"safetensors", "vision-sidecar",
}

func capabilities(entries []Entry) []string {
	all := slices.Clone(engineCapabilities)
	for _, e := range entries {
		all = append(all, e.Record.Capabilities...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Families lists the entries in order. The slice must not be changed.
func (l *List) Families() []Entry { return l.entries }

// Capabilities is the engine's and every family's, sorted, without repeats.
func (l *List) Capabilities() []string { return l.capabilities }

// ByGraph finds the family with a graph id.
func (l *List) ByGraph(graph string) (Entry, bool) {
	i := slices.IndexFunc(l.entries, func(e Entry) bool { return e.Record.Graph == graph })
	if i < 0 {
		return Entry{}, false
	}
	return l.entries[i], true
}

// ByType finds the first family that a bare type is enough for, as a listing of models on a hub needs.
func (l *List) ByType(modelType string) (Entry, bool) {
	if draftReason(modelType) != "" {
		return Entry{}, false
	}
	for _, e := range l.entries {
		if e.Record.MatchType(modelType) {
			return e, true
		}
	}
	return Entry{}, false
}
