package loader

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Draft is the wish for speculation.
type Draft struct {
	// From is the path of a draft's artifact, or a word that OwnDraft knows; empty: none.
	From string
	// Depth is the most tokens drafted at once; 0: the host's default.
	Depth uint32
}

// The words for drafts that need no artifact to be named.
const (
	ngramWord   = "ngram"
	bundledWord = "checkpoint-mtp" // the head among the model's tensors
	headWord    = "mtp"            // the model's head: in its folder, or bundled
	autoWord    = "auto"           // the head, or ngram where the model has none
)

// OwnDraft says whether a wish for a draft is one that needs no artifact to be named.
func OwnDraft(from string) bool {
	return slices.Contains([]string{ngramWord, bundledWord, headWord, autoWord}, from)
}

const (
	twoModelDraft = "two-model"
	defaultDepth  = 4
	// maxDepth is far beyond any depth that pays; rows times depth must stay a count.
	maxDepth = 64
	// headFolder is where a model's own head lies in its folder, as in mlx-bun's.
	headFolder = "mtp"
)

// draftOf is what a wish is for: a kind that needs no artifact, or else an artifact's path.
func (d *Decision) draftOf(from string) (kind, path string, err error) {
	if !OwnDraft(from) {
		return "", from, nil
	}
	if from == ngramWord || from == bundledWord {
		return from, "", nil
	}
	beside := filepath.Join(d.Artifact.Path, headFolder)
	if d.Artifact.Format == artifact.Safetensors { // a folder
		if _, err := os.Stat(filepath.Join(beside, "config.json")); err == nil {
			return "", beside, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", "", contract.Errorf(contract.NotFound, beside, "%w", err)
		}
	}
	if from == headWord || d.bundlesHead() {
		return bundledWord, "", nil
	}
	return ngramWord, "", nil
}

// bundlesHead reports whether some tensors are, by the family's record, a head's. Converters put the model's part in front.
func (d *Decision) bundlesHead() bool {
	prefix := d.Family.Record.MTPTensors
	return prefix != "" && slices.ContainsFunc(d.Artifact.Tensors(), func(t artifact.Tensor) bool {
		return strings.HasPrefix(strings.TrimPrefix(t.Name, "language_model."), prefix)
	})
}

// resolveDraft finds what a draft is by its headers: a drafter or a head of the target's, or a model of its own, which the
// target's plugin must have, as one process opens both.
func (d *Decision) resolveDraft() (err error) {
	wish := d.choices.Draft
	if wish.From == "" {
		if wish.Depth > 0 {
			return contract.Errorf(contract.InvalidArgument, "draft", "a depth of %d is of no use without a draft", wish.Depth).WithNext("name one with --draft")
		}
		return nil
	}
	depth := wish.Depth
	if depth == 0 {
		depth = defaultDepth
	}
	if depth > maxDepth {
		return contract.Errorf(contract.InvalidArgument, "draft", "a depth of %d is over the limit of %d", depth, maxDepth)
	}
	kind, path, err := d.draftOf(wish.From)
	d.draft = &cladev1.Draft{Kind: kind, Depth: &depth}
	if err != nil || kind != "" {
		return err
	}
	a, err := artifact.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	aux, err := d.judgeDraft(a)
	if err != nil {
		return err
	}
	if OwnDraft(wish.From) && aux.Kind != corefamily.MTPDraft {
		return contract.Errorf(contract.InvalidArgument, "draft", "%s is no head, but a draft of kind %s", path, aux.Kind).WithNext("name it with --draft %s", path)
	}
	d.draft.Kind, d.draft.Dir = aux.Kind, &aux.Path
	if aux.Graph != "" {
		d.draft.Graph = &aux.Graph
	}
	d.Auxiliaries = append(d.Auxiliaries, aux)
	return nil
}

// draftRoles are the roles of drafts that are no models of their own.
var draftRoles = map[string]cladev1.Role{
	corefamily.AssistantDraft: cladev1.Role_ROLE_ASSISTANT, corefamily.MTPDraft: cladev1.Role_ROLE_MTP,
}

func (d *Decision) judgeDraft(a *artifact.Artifact) (Auxiliary, error) {
	out := Auxiliary{Path: a.Path, Format: string(a.Format), WeightBytes: a.Bytes()}
	modelType, _, err := a.Config().String("model_type")
	if err != nil {
		return out, err
	}
	if out.Kind = corefamily.DraftKind(modelType); out.Kind != "" {
		out.Role = draftRoles[out.Kind]
		return out, nil
	}
	out.Kind, out.Role = twoModelDraft, cladev1.Role_ROLE_DRAFT
	e, err := d.host.Families.Match(a.Config())
	if err != nil {
		return out, err
	}
	if e.Plugin != d.Family.Plugin {
		return out, contract.Errorf(contract.UnsupportedOption, "draft", "%s is of plugin %s, the model of %s, and one process opens both", a.Path, e.Plugin, d.Family.Plugin).
			WithNext("use a draft of the model's own plugin")
	}
	profile, err := e.Record.ProfileFor(a.Format)
	if err != nil {
		return out, err
	}
	cell, err := family.CellOf(profile.ID, profile.Loader, string(profile.Loop))
	switch {
	case err != nil:
		return out, err
	case cell != family.Resident || profile.Loop != family.Autoregressive:
		return out, contract.Errorf(contract.UnsupportedModelLoad, profile.ID, "a %s %s model cannot draft", cell, profile.Loop).
			WithNext("use a resident autoregressive one")
	}
	out.Graph = e.Record.Graph
	out.parsed, err = e.Record.Parse(a)
	return out, err
}
