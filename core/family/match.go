package family

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	record "github.com/clademl/clade/sdk/family"
)

// Found is the family that takes a model.
type Found struct {
	Entry
	// Profile is the family's own profile for the artifact's format.
	Profile record.LoadProfile
	// Parsed is the config read through the record's dialect.
	Parsed record.Parsed
}

// Match finds the first family whose clauses hold for a config and checks what the record requires of it. No family is
// UnsupportedModel; a recognised model that breaks a requirement is ArtifactCorrupt (or UnsupportedModel, when the record
// says so) naming the field.
func (l *List) Match(cfg artifact.Config) (Entry, error) {
	modelType, ok, err := cfg.String("model_type")
	switch {
	case err != nil:
		return Entry{}, err
	case !ok:
		return Entry{}, contract.Errorf(contract.ArtifactCorrupt, cfg.Name()+": model_type", "is missing, so no family can be found")
	}
	if reason := draftReason(modelType); reason != "" {
		return Entry{}, contract.Errorf(contract.UnsupportedModel, modelType, "%s", reason)
	}
	var near []string
	for _, e := range l.entries {
		m := e.Record.Match(cfg)
		if m.OK {
			return e, e.Record.Check(cfg)
		}
		if m.Type {
			near = append(near, nearMiss(m))
		}
	}
	return Entry{}, l.unsupported(modelType, near)
}

// fewReasons is how many clauses of a near miss are told.
const fewReasons = 3

// nearMiss is why a family that knows the type does not take the model.
func nearMiss(m record.Match) string {
	if more := len(m.Failed) - fewReasons; more > 0 {
		return fmt.Sprintf("%s, and %d clauses more", strings.Join(m.Failed[:fewReasons], "; "), more)
	}
	return strings.Join(m.Failed, "; ")
}

// Passed says, for each targeted family that is asked before the one that takes the model and knows its type, why it did
// not take it: "minicpm5 wants hidden_size 1536, this has 1537".
func (l *List) Passed(cfg artifact.Config, taken Entry) []string {
	var out []string
	for _, e := range l.entries {
		if e.Record.Graph == taken.Record.Graph {
			break
		}
		if m := e.Record.Match(cfg); m.Type && !m.OK && e.Record.Tier == record.Targeted {
			out = append(out, nearMiss(m))
		}
	}
	return out
}

// Open matches an opened artifact, reads its config and finds the family's profile for its format.
func (l *List) Open(a *artifact.Artifact) (*Found, error) {
	e, err := l.Match(a.Config())
	if err != nil {
		return nil, err
	}
	parsed, err := e.Record.Parse(a)
	if err != nil {
		return nil, err
	}
	profile, err := e.Record.ProfileFor(a.Format)
	if err != nil {
		return nil, err
	}
	return &Found{Entry: e, Parsed: parsed, Profile: profile}, nil
}

// Runnable is nil when this version of the plugin runs the family, else UnsupportedModel naming the version that will.
func (e Entry) Runnable() error {
	if e.Record.Status == record.Available {
		return nil
	}
	return contract.Errorf(contract.UnsupportedModel, e.Record.Graph,
		"this model's family is known and comes with version %s of plugin %s", e.Record.Since, e.Plugin)
}

// The kinds of draft networks that are no model of their own, as the contract spells them.
const (
	AssistantDraft = "assistant"
	MTPDraft       = "mtp"
)

// DraftKind tells the network of a draft by its type; empty for a model of its own.
func DraftKind(modelType string) string {
	switch {
	case strings.Contains(modelType, "assistant"):
		return AssistantDraft
	case strings.HasSuffix(modelType, "_mtp"):
		return MTPDraft
	}
	return ""
}

// draftReason says why a type is never a model of its own; empty for any other.
func draftReason(modelType string) string {
	switch DraftKind(modelType) {
	case AssistantDraft:
		return "is an assistant drafter, not a model; give it to its target as a draft (--draft)"
	case MTPDraft:
		return "is a multi-token-prediction head, not a model; give it to its target as a draft (--draft)"
	}
	return ""
}

// unsupported is the text for a type that no family takes: the type, what it is read as, where it came close, the
// targeted families in order and the generic types sorted.
func (l *List) unsupported(modelType string, near []string) error {
	var b strings.Builder
	b.WriteString("no family takes this model_type")
	if to := l.remap(modelType); to != modelType {
		fmt.Fprintf(&b, " (read as %s)", to)
	}
	for _, n := range near {
		b.WriteString("; " + n)
	}
	targeted, generic := l.Supported()
	return contract.Errorf(contract.UnsupportedModel, modelType, "%s", b.String()).
		WithNext("families: %s; generic: %s", strings.Join(targeted, ", "), strings.Join(generic, ", "))
}

// remap is what the first record with a remap for the type reads it as.
func (l *List) remap(modelType string) string {
	for _, e := range l.entries {
		if to := e.Record.Remap(modelType); to != modelType {
			return to
		}
	}
	return modelType
}

// Supported gives the labels of the targeted families in order and the types of the generic ones sorted.
func (l *List) Supported() (targeted, generic []string) {
	for _, e := range l.entries {
		if e.Record.Tier == record.Targeted {
			targeted = append(targeted, e.Record.Label)
			continue
		}
		generic = append(generic, e.Record.ModelTypes...)
	}
	slices.Sort(generic)
	return targeted, slices.Compact(generic)
}
