package engine

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// beside is a model that goes with the target, known from its headers: a draft over the same tokens.
type beside struct {
	name  string
	depth int
	draft // its device, dtype, context and kernels are the target's
}

// targetOf finds the model among the artifacts.
func targetOf(spec *cladev1.ModelSpec) (*cladev1.Artifact, error) {
	if len(spec.Artifacts) == 0 || spec.Artifacts[0].Role != cladev1.Role_ROLE_TARGET {
		return nil, invalid("artifacts", "the first one must be the model")
	}
	return spec.Artifacts[0], nil
}

// besides reads what goes with the target. Roles and kinds of draft that nothing here opens are refused by name.
func (b *Backend) besides(spec *cladev1.ModelSpec, target *draft) ([]beside, error) {
	wish := spec.Composition.GetDraft()
	switch {
	case wish != nil && wish.GetKind() != twoModelKind && wish.GetKind() != ngramKind:
		return nil, unhonoured("draft", "the kind %q: only a model of this plugin's own families and ngram can draft", wish.GetKind())
	case wish != nil && (wish.GetDepth() < 1 || wish.GetDepth() > maxDepth):
		return nil, invalid("draft.depth", "%d: want 1 to %d", wish.GetDepth(), maxDepth)
	case wish.GetKind() == ngramKind && (wish.Dir != nil || wish.Graph != nil):
		return nil, invalid("draft", "ngram needs no model")
	}
	var out []beside
	for _, a := range spec.Artifacts[1:] {
		if a.Role != cladev1.Role_ROLE_DRAFT || a.Path != wish.GetDir() {
			return nil, unhonoured("artifacts", "%s %s: nothing here opens it", a.Role, a.Path)
		}
		one, err := b.beside(a, wish, target)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	if wish.GetKind() == twoModelKind && len(out) != 1 {
		return nil, invalid("draft", "%s is named %d times among the artifacts, want once", wish.GetDir(), len(out))
	}
	return out, nil
}

// beside understands a draft from its headers, read by the record of its own graph id.
func (b *Backend) beside(art *cladev1.Artifact, wish *cladev1.Draft, target *draft) (one beside, err error) {
	record, err := b.family.record(wish.GetGraph())
	if err != nil {
		return one, err
	}
	a, err := artifact.Open(art.Path)
	if err != nil {
		return one, err
	}
	defer func() { _ = a.Close() }()
	parsed, err := record.Parse(a)
	if err != nil {
		return one, err
	}
	one = beside{name: filepath.Base(art.Path), depth: int(wish.GetDepth()), draft: draft{settings: target.settings}}
	if one.graph, _, err = b.family.pick(&cladev1.ModelSpec{Graph: wish.GetGraph()}); err != nil {
		return one, err
	}
	if one.Blueprint, err = one.graph.Read(a, parsed.Config); err != nil {
		return one, err
	}
	one.chooseKernels(b)
	return one, nil
}

func (f Family) record(graph string) (*family.Record, error) {
	if f.Manifest != nil {
		if i := slices.IndexFunc(f.Manifest.Families, func(r *family.Record) bool { return r.Graph == graph }); i >= 0 {
			return f.Manifest.Families[i], nil
		}
	}
	return nil, contract.Errorf(contract.PluginMismatch, graph, "%s %s has no family of this id, which a draft needs", f.Name, f.Version)
}

// line is what the draft takes: its weights, caches of the target's rows, and a step's activations and scores. A prompt
// runs through it in the room of the target's own chunk.
func (d *beside) line() (*cladev1.MemoryLine, error) {
	loaded, err := d.Weights.LoadedBytes(d.target())
	if err != nil {
		return nil, err
	}
	perToken := int64(0)
	for _, spec := range d.Layout.Caches {
		perToken += spec.BytesPerToken(d.dtype)
	}
	cache := perToken * int64(d.kvTokens())
	step := int64(d.rows) * (int64(d.depth+1)*d.TokenBytes(d.context, d.dtype, d.library != nil) + int64(d.Layout.Vocab)*4*sampledRows)
	return &cladev1.MemoryLine{
		Name: "auxiliaries", Bytes: uint64(loaded + cache + step),
		Detail: fmt.Sprintf("draft %s: weights %d, kv %d, a step of %d tokens %d", d.name, loaded, cache, d.depth, step),
	}, nil
}
