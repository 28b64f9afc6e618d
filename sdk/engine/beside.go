package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/tokenizer"
	"github.com/clademl/clade/sdk/weights"
)

// beside is what drafts for the target, known from its headers: a model over the same tokens, or a head made for the target.
type beside struct {
	name  string
	depth int
	file  *artifact.Artifact // nil where it is the target's
	draft                    // its device, dtype, context and kernels are the target's
	// head makes the drafter of a head; nil for a model of its own.
	head func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType, target Model) Drafter
}

// targetOf finds the model among the artifacts.
func targetOf(spec *cladev1.ModelSpec) (*cladev1.Artifact, error) {
	if len(spec.Artifacts) == 0 || spec.Artifacts[0].Role != cladev1.Role_ROLE_TARGET {
		return nil, invalid("artifacts", "the first one must be the model")
	}
	return spec.Artifacts[0], nil
}

// headRoles are the roles of artifacts of heads that lie beside the model, by the contract's kind.
var headRoles = map[string]cladev1.Role{"mtp": cladev1.Role_ROLE_MTP, "assistant": cladev1.Role_ROLE_ASSISTANT}

// bundledHead is the kind of a head among the target's own weights.
const bundledHead = "checkpoint-mtp"

// closeBeside closes the files of what drafts.
func (d *draft) closeBeside() {
	for _, one := range d.beside {
		if one.file != nil {
			_ = one.file.Close()
		}
	}
}

// besides reads what drafts for the target. Roles and kinds of draft that nothing here opens are refused by name. What it returns with
// an error is open too.
func (b *Backend) besides(spec *cladev1.ModelSpec, a *artifact.Artifact, parsed artifact.Config, target *draft) ([]beside, error) {
	wish := spec.Composition.GetDraft()
	role := cladev1.Role_ROLE_UNSPECIFIED
	switch kind := wish.GetKind(); {
	case wish == nil:
	case wish.GetDepth() < 1 || wish.GetDepth() > maxDepth:
		return nil, invalid("draft.depth", "%d: want 1 to %d", wish.GetDepth(), maxDepth)
	case kind == twoModelKind:
		role = cladev1.Role_ROLE_DRAFT
	case kind != ngramKind && target.graph.Heads[kind] == nil:
		return nil, unhonoured("draft", "the kind %q: only ngram, a model of this plugin's own families and heads of the graph can draft, and %s has no such head", kind, target.graph.ID)
	case (kind == ngramKind || kind == bundledHead) && (wish.Dir != nil || wish.Graph != nil):
		return nil, invalid("draft", "%s needs no model", kind)
	default:
		role = headRoles[kind]
	}
	var out []beside
	for _, art := range spec.Artifacts[1:] {
		if art.Role == cladev1.Role_ROLE_ADAPTER {
			continue // readAdapters has it
		}
		if role == cladev1.Role_ROLE_UNSPECIFIED || art.Role != role || art.Path != wish.GetDir() {
			return out, unhonoured("artifacts", "%s %s: nothing here opens it", art.Role, art.Path)
		}
		one, err := b.beside(art, wish, a, parsed, target)
		if err != nil {
			return out, err
		}
		out = append(out, one)
	}
	switch {
	case role != cladev1.Role_ROLE_UNSPECIFIED && len(out) != 1:
		return out, invalid("draft", "%s is named %d times among the artifacts, want once", wish.GetDir(), len(out))
	case wish.GetKind() == bundledHead:
		one, err := b.readHead(a, wish, a, parsed, target)
		return []beside{one}, err
	}
	return out, nil
}

// beside opens the headers of what drafts.
func (b *Backend) beside(art *cladev1.Artifact, wish *cladev1.Draft, targetFile *artifact.Artifact, parsed artifact.Config, target *draft) (beside, error) {
	var record *family.Record
	if art.Role == cladev1.Role_ROLE_DRAFT {
		var err error
		if record, err = b.family.record(wish.GetGraph()); err != nil {
			return beside{}, err
		}
	}
	a, err := artifact.Open(art.Path)
	if err != nil {
		return beside{}, err
	}
	var one beside
	if record != nil {
		one, err = b.secondModel(a, record, wish, targetFile, target)
	} else {
		one, err = b.readHead(a, wish, targetFile, parsed, target)
	}
	if err != nil {
		_ = a.Close()
		return beside{}, err
	}
	one.file = a
	return one, nil
}

// readHead understands a head of the target's graph.
func (b *Backend) readHead(a *artifact.Artifact, wish *cladev1.Draft, targetFile *artifact.Artifact, parsed artifact.Config, target *draft) (beside, error) {
	h, err := target.graph.Heads[wish.GetKind()](targetFile, a, parsed)
	if err != nil {
		return beside{}, err
	}
	one := beside{name: filepath.Base(a.Path), depth: target.depth, draft: draft{settings: target.settings}, head: h.Build}
	one.graph = target.graph
	one.Blueprint = Blueprint{Layout: Layout{Vocab: target.Layout.Vocab, Caches: h.Caches}, Weights: h.Weights, TokenBytes: h.TokenBytes}
	one.library, one.sources = target.library, target.sources
	return one, nil
}

// secondModel understands a model that drafts, read by the record of its own graph id. Its tokens must be the target's.
func (b *Backend) secondModel(a *artifact.Artifact, record *family.Record, wish *cladev1.Draft, targetFile *artifact.Artifact, target *draft) (one beside, err error) {
	parsed, err := record.Parse(a)
	if err != nil {
		return one, err
	}
	one = beside{name: filepath.Base(a.Path), depth: target.depth, draft: draft{settings: target.settings}}
	if one.graph, _, err = b.family.pick(&cladev1.ModelSpec{Graph: wish.GetGraph()}); err != nil {
		return one, err
	}
	if one.Blueprint, err = one.graph.Read(a, parsed.Config); err != nil {
		return one, err
	}
	one.chooseKernels(b)
	return one, sameTokens(targetFile, a, target.Layout.Vocab, one.Layout.Vocab)
}

// sameTokens refuses a draft whose ids stand for other tokens than the target's. Models without a tokenizer are run by ids alone:
// as many of them must there be.
func sameTokens(target, draft *artifact.Artifact, width, draftWidth int) error {
	differs := func(format string, args ...any) error {
		return contract.Errorf(contract.InvalidArgument, "draft", "%s has another vocabulary than the model: "+format, append([]any{draft.Path}, args...)...).
			WithNext("use a draft of the model's own kind, or ngram")
	}
	ours, err := tokenizer.FromArtifact(target)
	theirs, draftErr := tokenizer.FromArtifact(draft)
	none, draftNone := contract.KindOf(err) == contract.NotFound, contract.KindOf(draftErr) == contract.NotFound
	switch {
	case none && draftNone && width == draftWidth:
		return nil
	case none && draftNone:
		return differs("%d ids, not %d", draftWidth, width)
	case none != draftNone:
		return differs("only one of them has a tokenizer")
	case err != nil || draftErr != nil:
		return errors.Join(err, draftErr)
	case ours.Digest() == theirs.Digest():
		return nil
	}
	for id := range int32(max(ours.VocabSize(), theirs.VocabSize())) {
		a, known := ours.Token(id)
		b, drafts := theirs.Token(id)
		if a != b || known != drafts {
			return differs("id %d is %q, not %q", id, b, a)
		}
	}
	return nil
}

func (f Family) record(graph string) (*family.Record, error) {
	if i := slices.IndexFunc(f.manifest.Families, func(r *family.Record) bool { return r.Graph == graph }); i >= 0 {
		return f.manifest.Families[i], nil
	}
	return nil, contract.Errorf(contract.PluginMismatch, graph, "%s %s has no family of this id, which a draft needs", f.manifest.Name, f.manifest.Version)
}

// line is what the draft takes: its weights, caches of the target's rows, and a step's activations and scores. A prompt
// runs through it in the room of the target's own chunk.
func (d *beside) line() (*cladev1.MemoryLine, error) {
	loaded, err := d.Weights.LoadedBytes(d.draft.target())
	if err != nil {
		return nil, err
	}
	perToken := int64(0)
	for _, spec := range d.Layout.Caches {
		perToken += spec.BytesPerToken(d.dtype)
	}
	states, _ := d.Layout.stateBytes(d.dtype)
	cache := perToken*int64(d.kvTokens()) + int64(d.rows)*stateCopies*states
	step := int64(d.rows) * (int64(d.depth+1)*d.TokenBytes(d.context, d.dtype, d.library != nil) + int64(d.Layout.Vocab)*4*sampledRows)
	return &cladev1.MemoryLine{
		Name: "auxiliaries", Bytes: uint64(loaded + cache + step),
		Detail: fmt.Sprintf("draft %s: weights %d, kv %d, a step of %d tokens %d", d.name, loaded, cache, d.depth, step),
	}, nil
}

// load makes the drafter over the open target. Its weights are loaded behind the target's, in the same room.
func (d *beside) load(ctx context.Context, worker *mlx.Worker, target Model, chunk int, report func(*cladev1.OpenResponse)) (drafter Drafter, err error) {
	if d.head == nil {
		model, err := d.draft.load(ctx, worker, nil, report)
		if err != nil {
			return nil, err
		}
		return NewTwoModel(model, d.Layout, d.library != nil, chunk), nil
	}
	err = worker.Do(ctx, func(s *mlx.Scope) error {
		tensors, err := d.Weights.Load(ctx, s, d.draft.target(), loads(report))
		if err != nil {
			return err
		}
		drafter = d.head(s, tensors, d.dtype, target)
		if err := s.Err(); err != nil {
			drafter.Close()
			return fmt.Errorf("build the draft: %w", err)
		}
		return nil
	})
	return drafter, err
}

// speculation makes what a composition asks for. It is the engine's from then on.
func (d *draft) speculation(ctx context.Context, worker *mlx.Worker, target Model, wish *cladev1.Draft, report func(*cladev1.OpenResponse)) (Speculation, error) {
	if wish == nil {
		return Speculation{}, nil
	}
	if len(d.beside) == 0 {
		return Speculation{Drafter: Ngram(), Depth: d.depth}, nil
	}
	one := &d.beside[0]
	chunk := d.chunk // in the room of the target's
	if own := one.TokenBytes(d.context, d.dtype, one.library != nil); own > 0 {
		chunk = max(1, min(chunk, int(int64(chunk)*d.tokenBytes()/own)))
	}
	step, err := one.step(d)
	if err != nil {
		return Speculation{}, err
	}
	drafter, err := one.load(ctx, worker, target, chunk, report)
	return Speculation{Drafter: drafter, Depth: d.depth, Step: step}, err
}

// step is what one drafted token takes at least, in the target's steps: a step reads all weights once. A head's logits come from the
// target's weights, which are not counted here, so that it takes more.
func (d *beside) step(target *draft) (float64, error) {
	own, err := d.Weights.LoadedBytes(d.draft.target())
	if err != nil {
		return 0, err
	}
	all, err := target.Weights.LoadedBytes(target.target())
	return float64(own) / float64(max(all, 1)), err
}
