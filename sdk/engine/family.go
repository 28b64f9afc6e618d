package engine

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/weights"
)

// Family is what a plugin of token loops brings: its graphs.
type Family struct {
	// Tables lists, for each family graph id of the manifest, the graphs that can run it. The last one is generic.
	Tables []Table
	// Implementations are graphs that stand in for those of other families, by the ids that the manifest registers.
	Implementations map[string]Graph
	Kernels         kernels.Registry
	// Own is the plugin's own library of kernels, which graphs name beside the runtime's; nil: it brings none.
	Own *kernels.Own

	// manifest is the plugin's; its records read the configs of auxiliary models too.
	manifest *family.Manifest
}

// Main is the whole main of a plugin that brings f; manifest is its plugin.yaml, embedded. It does not return.
func Main(manifest []byte, f Family) {
	p, err := Plugin(manifest, f)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(contract.KindOf(err).ExitCode())
	}
	plugin.Main(p)
}

// Plugin makes a plugin of the family, for a main that has more to say than Main. Its errors are the manifest's.
func Plugin(manifest []byte, f Family) (plugin.Family, error) {
	m, err := family.ParseManifest(manifest)
	if err != nil {
		return plugin.Family{}, err
	}
	f.manifest = m
	b := newBackend(f)
	return plugin.Family{Manifest: manifest, Tables: f.graphTables(), Options: Options(), Kernels: b.Kernels, Backend: b}, nil
}

// Table is the graphs of one family graph id, in the order they are tried.
type Table struct {
	Graph   string
	Entries []Graph
}

// Graph is one implementation of a family graph id.
type Graph struct {
	ID string
	// Serves is nil for the generic entry.
	Serves *cladev1.GraphKey
	// Revision is raised with every change after which the graph may compute other values: what was kept of the old ones is not used.
	// Of a graph without one, what is kept is of one version of the plugin.
	Revision int
	// Kernels names what the graph uses where a runtime has it.
	Kernels []string
	// Read understands a model from its headers: no payload byte is read.
	Read func(a *artifact.Artifact, parsed artifact.Config) (Blueprint, error)
	// Suits says why the graph is of no use to a model whose weights are loaded for target, "" where it is: when it was only proposed it
	// then gives way to the generic one, with this reason. Nil: its key says all.
	Suits func(set *weights.Set, target weights.Target) string
	// Heads are the draft networks made for the graph's models, by the contract's kind of draft; nil: there are none.
	Heads map[string]ReadHead
}

// ReadHead understands, from headers, a draft network that was made for a model and reads its hidden states or its caches. head is
// its artifact, the target itself for the kind checkpoint-mtp; parsed is the target's config.
type ReadHead func(target, head *artifact.Artifact, parsed artifact.Config) (Head, error)

// Head is a draft network known from headers.
type Head struct {
	// Weights are the network's own; what it shares with the target is not counted twice.
	Weights *weights.Set
	// Caches of its own that it keeps for each text, over the target's tokens; nil where it has none.
	Caches []kv.Spec
	// TokenBytes is as a Blueprint's.
	TokenBytes func(context int, dtype mlx.DType, packed bool) int64
	// Build makes the Drafter, a Follower as a rule, over loaded weights, which it takes over, and the open target, which it shares: on
	// the worker's thread.
	Build func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType, target Model) Drafter
}

// Blueprint is a model known from headers.
type Blueprint struct {
	Layout  Layout
	Weights *weights.Set
	EOS     []int32
	// MaxPositions is the trained context; 0 when the model states none.
	MaxPositions int
	// TokenBytes is what one token of an evaluation takes beside weights and cache, when context tokens are attended to, with
	// packed weights and the kernels or without.
	TokenBytes func(context int, dtype mlx.DType, packed bool) int64
	// Notes are what a person would want to know of how the model was read.
	Notes []string
	// Kernels names what this model uses beside its graph's own, where a runtime has it: a library that lacks one does the rest.
	Kernels []string
	// Unfused names the parts of the graph that MLX's operations compute where kernels compute the rest.
	Unfused []string
	// Uncertain says why tokens of a context depend on how the prompt is cut even on the kernels; empty where they do not. Nil: never.
	Uncertain func(context int) string
	// Adapts gives the path of the linear layer that an adapter's module path means, false for none. Nil: the graph takes no adapters.
	// Every such layer must be made by nn.NewLinear and computed by sdk/nn.
	Adapts func(module string) (layer string, ok bool)
	// Build makes the graph over loaded weights, which it takes over, on the worker's thread.
	Build func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) Model
}

// graphTables is the family's tables as Describe tells them.
func (f Family) graphTables() []*cladev1.GraphTable {
	var out []*cladev1.GraphTable
	for _, t := range f.Tables {
		table := &cladev1.GraphTable{Graph: t.Graph}
		for _, g := range t.Entries {
			table.Entries = append(table.Entries, &cladev1.GraphEntry{Id: g.ID, Serves: g.Serves, Kernels: g.Kernels})
		}
		out = append(out, table)
	}
	return out
}

// generic is the last entry of a family graph's table, which there is.
func (f Family) generic(graph string) Graph {
	at := slices.IndexFunc(f.Tables, func(t Table) bool { return t.Graph == graph })
	return f.Tables[at].Entries[len(f.Tables[at].Entries)-1]
}

// pick finds the proposed entry. One that was only proposed gives way to the generic one, with the reason.
func (f Family) pick(spec *cladev1.ModelSpec) (Graph, string, error) {
	if id := spec.GetImplementation(); id != "" {
		g, ok := f.Implementations[id]
		if !ok {
			return Graph{}, "", unhonoured("implementation", "%q is not one of this plugin's", id)
		}
		g.ID = id // it is its own graph
		return g, "", nil
	}
	at := slices.IndexFunc(f.Tables, func(t Table) bool { return t.Graph == spec.Graph })
	if at < 0 {
		return Graph{}, "", contract.Errorf(contract.PluginMismatch, spec.Graph, "%s %s has no graph of this id", f.manifest.Name, f.manifest.Version)
	}
	entries, generic := f.Tables[at].Entries, f.generic(spec.Graph)
	if spec.GraphEntry == "" {
		return generic, "", nil
	}
	for _, g := range entries {
		if g.ID == spec.GraphEntry {
			return g, "", nil
		}
	}
	if !spec.GraphRequired {
		return generic, "the table has no entry " + spec.GraphEntry, nil
	}
	names := make([]string, len(entries))
	for i, g := range entries {
		names[i] = g.ID
	}
	return Graph{}, "", contract.Errorf(contract.InvalidArgument, spec.GraphEntry, "the table of %s has %s", spec.Graph, strings.Join(names, ", "))
}
