package loader

import (
	"errors"
	"fmt"
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
	// From is ngram, mtp (the model's own head), or the path of a draft's artifact; empty: none.
	From string
	// Depth is the most tokens drafted at once; 0: the host's default.
	Depth uint32
}

// Drafts that need no artifact, by the word that asks for them and the contract's kind.
var ownDrafts = map[string]string{"ngram": "ngram", "mtp": "checkpoint-mtp"}

// OwnDraft says whether a wish for a draft is one that needs no artifact.
func OwnDraft(from string) bool { return ownDrafts[from] != "" }

const (
	twoModelDraft = "two-model"
	defaultDepth  = 4
	// maxDepth is far beyond any depth that pays; rows times depth must stay a count.
	maxDepth = 64
)

// Auxiliary is an artifact that goes with the model, known from its headers.
type Auxiliary struct {
	Role cladev1.Role
	// Path is a folder or a file; Format as an artifact's.
	Path, Format string
	// Kind of a draft. Graph is the family graph of one that is a model of its own.
	Kind, Graph string
	// ID and Scale of an adapter; Scale nil: its own.
	ID    string
	Scale *float64
	// WeightBytes is what its tensors take in its files.
	WeightBytes int64
	// Unused says why it is not opened; empty when it is.
	Unused string

	// parsed is the config of a draft that is a model of its own.
	parsed family.Parsed
	// err is why it cannot be opened; it is told when it would be.
	err error
}

// RoleName spells a role as show prints it.
func (a Auxiliary) RoleName() string {
	return strings.ToLower(strings.TrimPrefix(a.Role.String(), "ROLE_"))
}

// auxiliaries resolves what goes with the model. What a person named must be there and fit; a tower that merely lies beside
// the weights is judged when a plugin would open it.
func (d *Decision) auxiliaries() error {
	if d.Parsed.VisionSidecar {
		d.Auxiliaries = append(d.Auxiliaries, sidecar(filepath.Join(d.Artifact.Path, artifact.VisionSidecarFile)))
	}
	if err := d.resolveDraft(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, text := range d.choices.Adapters {
		wish, err := ParseAdapter(text)
		if err != nil {
			return err
		}
		a, err := adapter(wish)
		if err != nil {
			return err
		}
		if seen[a.ID] {
			return contract.Errorf(contract.InvalidArgument, "adapter", "%s is named twice", a.ID).WithNext("give one of them another name: NAME=FOLDER")
		}
		seen[a.ID] = true
		d.Auxiliaries = append(d.Auxiliaries, a)
	}
	return nil
}

func sidecar(path string) Auxiliary {
	out := Auxiliary{Role: cladev1.Role_ROLE_SIDECAR, Path: path, Format: string(artifact.Safetensors)}
	a, err := artifact.OpenFile(path)
	if err != nil {
		out.err = err
		return out
	}
	out.WeightBytes, out.err = a.Bytes(), a.Close()
	return out
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
	d.draft = &cladev1.Draft{Kind: ownDrafts[wish.From], Depth: &depth}
	if d.draft.Kind != "" {
		return nil
	}
	a, err := artifact.Open(wish.From)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	aux, err := d.judgeDraft(a)
	if err != nil {
		return err
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

// settleAuxiliaries says of each auxiliary whether the plugin opens it. One that a person named was refused by the
// composition when it is not.
func (p *Planned) settleAuxiliaries() error {
	p.Auxiliaries = slices.Clone(p.Auxiliaries)
	for i := range p.Auxiliaries {
		a := &p.Auxiliaries[i]
		if a.Role == cladev1.Role_ROLE_SIDECAR && !p.declares("media") {
			a.Unused = fmt.Sprintf("plugin %s takes no media", p.Plugin.Name)
		}
		if a.Unused == "" && a.err != nil {
			return a.err
		}
	}
	return nil
}

// auxiliaryLine begins the name of every line of a plan that is of an auxiliary artifact.
const auxiliaryLine = "auxiliaries"

// adapterLine is the name of a line of adapters alone.
const adapterLine = "adapters"

// checkAuxiliaries refuses a plan that leaves out what goes with the model.
func (p *Planned) checkAuxiliaries() error {
	for _, sent := range p.spec.GetArtifacts()[1:] {
		planned := slices.ContainsFunc(p.Plan.GetLines(), func(l *cladev1.MemoryLine) bool {
			return strings.HasPrefix(l.GetName(), auxiliaryLine) || sent.GetRole() == cladev1.Role_ROLE_ADAPTER && l.GetName() == adapterLine
		})
		if !planned {
			return contract.Errorf(contract.PluginMismatch, p.Plugin.Name, "plans without a line for %s, which goes with the model", sent.GetPath())
		}
	}
	return nil
}

func (p *Planned) declares(path string) bool {
	return slices.ContainsFunc(p.Describe.GetOptions(), func(o *cladev1.Option) bool { return o.GetPath() == path })
}

// adapterIDs are the adapters, in the order in which a person named them.
func (d *Decision) adapterIDs() []string {
	var out []string
	for _, a := range d.Auxiliaries {
		if a.Role == cladev1.Role_ROLE_ADAPTER {
			out = append(out, a.ID)
		}
	}
	return out
}
