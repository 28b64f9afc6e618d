package family

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clademl/clade/sdk/artifact"
)

// Profile claims how a model is opened and what it is held to. One in a manifest names the exact artifact it is of; one
// that a person gives as a file may be of a whole family. A record carries its family's own profile in itself (ProfileFor).
type Profile struct {
	ID string `yaml:"id" json:"id"`
	// Artifact and Config are the fingerprints of the exact artifact, both or neither.
	Artifact string `yaml:"artifact,omitempty" json:"artifact,omitempty"`
	Config   string `yaml:"config,omitempty" json:"config,omitempty"`
	// Graph is the family's graph id, of this plugin or another.
	Graph          string         `yaml:"graph" json:"graph"`
	Loader         string         `yaml:"loader" json:"loader"`
	Loop           Loop           `yaml:"loop" json:"loop"`
	Fidelity       Fidelity       `yaml:"fidelity" json:"fidelity"`
	Specialization Specialization `yaml:"specialization" json:"specialization"`
	// Implementation names a registered one; only for an exact artifact.
	Implementation string `yaml:"implementation,omitempty" json:"implementation,omitempty"`
	// Requires are capabilities; when given they must cover those of loader, loop and graph.
	Requires []string `yaml:"requires,omitempty" json:"requires,omitempty"`
}

// ForArtifact is the specialization of an exact profile. No record has it.
const ForArtifact Specialization = "artifact"

// Implementation is a graph that a plugin registers for a graph id, its own or another family's, or for one exact artifact.
type Implementation struct {
	ID       string `yaml:"id" json:"id"`
	Graph    string `yaml:"graph" json:"graph"`
	Loader   string `yaml:"loader" json:"loader"`
	Loop     Loop   `yaml:"loop" json:"loop"`
	Artifact string `yaml:"artifact,omitempty" json:"artifact,omitempty"`
	// Also are loaders beside Loader whose files the graph reads too.
	Also []string `yaml:"also,omitempty" json:"also,omitempty"`
}

// GraphKey is a fingerprint that a graph table of this family is known to be keyed by.
type GraphKey struct {
	Fingerprint string `yaml:"fingerprint" json:"fingerprint"`
	Model       string `yaml:"model" json:"model"`
	// Verified is whether this project can compute it.
	Verified bool   `yaml:"verified" json:"verified"`
	Note     string `yaml:"note,omitempty" json:"note,omitempty"`
}

// ParseProfile reads a profile file: YAML or JSON, one document, no unknown key.
func ParseProfile(data []byte) (*Profile, error) {
	if len(data) > manifestLimit {
		return nil, fmt.Errorf("%d bytes, the limit is %d", len(data), manifestLimit)
	}
	p := &Profile{}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(p); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("is empty")
		}
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one document")
	}
	return p, p.check()
}

// Exact says whether the profile is of one artifact.
func (p *Profile) Exact() bool { return p.Artifact != "" }

// check holds the rules that need no record.
func (p *Profile) check() error {
	for _, err := range []error{
		oneOf("loader", p.Loader, loaderNames...),
		oneOf("loop", p.Loop, Autoregressive, Diffusion, EncoderDecoder),
		oneOf("fidelity", p.Fidelity, L1MLXLM, L1MLXWhisper, L2MLXOptiQ, L3Measured),
		oneOf("specialization", p.Specialization, ForArtifact, Dedicated, GenericUse),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case p.ID == "" || strings.TrimSpace(p.ID) != p.ID:
		return fmt.Errorf("id %q: want a name", p.ID)
	case !graphName.MatchString(p.Graph):
		return fmt.Errorf("graph %q: want a graph id", p.Graph)
	case (p.Artifact == "") != (p.Config == ""):
		return errors.New("artifact and config: both fingerprints or neither")
	case p.Exact() != (p.Specialization == ForArtifact):
		return errors.New("specialization artifact: belongs to a profile with fingerprints, and only to it")
	case p.Implementation != "" && !p.Exact():
		return errors.New("implementation: only a profile of one artifact names one")
	case p.Fidelity == L1MLXWhisper && p.Loop != EncoderDecoder:
		return fmt.Errorf("fidelity %s: only a graph that transcribes is held to it", p.Fidelity)
	case p.Loader == string(artifact.GGUF) && p.Fidelity != L3Measured:
		return fmt.Errorf("fidelity %s: no oracle reads gguf, so it is %s", p.Fidelity, L3Measured)
	}
	if p.Exact() {
		return artifact.CheckFingerprint(p.Artifact)
	}
	return nil
}

// CheckFor holds a profile to the record of its graph.
func (p *Profile) CheckFor(r *Record) error {
	if err := p.check(); err != nil {
		return err
	}
	switch {
	case p.Graph != r.Graph:
		return fmt.Errorf("graph %s: the record's is %s", p.Graph, r.Graph)
	case !slices.Contains(r.Loaders, p.Loader):
		return fmt.Errorf("loader %s: %s opens %s", p.Loader, r.Graph, show(anys(r.Loaders)))
	case p.Loop != r.Loop:
		return fmt.Errorf("loop %s: %s runs %s", p.Loop, r.Graph, r.Loop)
	case p.Fidelity == L1MLXWhisper && !r.Transcribes:
		return fmt.Errorf("fidelity %s: %s does not transcribe", p.Fidelity, r.Graph)
	}
	for _, need := range r.requiredCapabilities(p.Loader) {
		if len(p.Requires) > 0 && !slices.Contains(p.Requires, need) {
			return fmt.Errorf("requires: lacks %s, which loader, loop or graph need", need)
		}
	}
	return nil
}

// Capabilities are what the profile needs of the engine and the families: its own list, or what its record needs.
func (p *Profile) Capabilities(r *Record) []string {
	if len(p.Requires) > 0 {
		return slices.Sorted(slices.Values(p.Requires))
	}
	return r.requiredCapabilities(p.Loader)
}

func (i *Implementation) check() error {
	for _, err := range []error{
		oneOf("loader", i.Loader, loaderNames...),
		oneOf("loop", i.Loop, Autoregressive, Diffusion, EncoderDecoder),
	} {
		if err != nil {
			return err
		}
	}
	for _, loader := range i.Also {
		if err := oneOf("also", loader, loaderNames...); err != nil {
			return err
		}
	}
	switch {
	case i.ID == "" || strings.TrimSpace(i.ID) != i.ID:
		return fmt.Errorf("id %q: want a name", i.ID)
	case !graphName.MatchString(i.Graph):
		return fmt.Errorf("graph %q: want a graph id", i.Graph)
	case i.Artifact != "":
		return artifact.CheckFingerprint(i.Artifact)
	}
	return nil
}

// Fits says why the implementation cannot stand for a model; nil when it can.
func (i *Implementation) Fits(graph, loader, loop, artifactFingerprint string) error {
	switch {
	case i.Graph != graph:
		return fmt.Errorf("it is of graph %s, the model's is %s", i.Graph, graph)
	case i.Loader != loader && !slices.Contains(i.Also, loader):
		return fmt.Errorf("it opens %s, the model is %s", strings.Join(append([]string{i.Loader}, i.Also...), ", "), loader)
	case string(i.Loop) != loop:
		return fmt.Errorf("it runs the loop %s, the model's is %s", i.Loop, loop)
	case i.Artifact != "" && i.Artifact != artifactFingerprint:
		have := artifactFingerprint
		if have == "" {
			have = "not known"
		}
		return fmt.Errorf("it is of the artifact %s, the model's is %s", i.Artifact, have)
	}
	return nil
}

// checkLists holds what a manifest carries beside families.
func (m *Manifest) checkLists() error {
	ids := map[string]bool{}
	for i := range m.Profiles {
		p := &m.Profiles[i]
		err := p.check()
		switch {
		case err != nil:
			return fmt.Errorf("profile %q: %w", p.ID, err)
		case !p.Exact():
			return fmt.Errorf("profile %q: names no artifact; a family's own profile stands in its record", p.ID)
		case ids[p.ID] || ids[p.Artifact]:
			return fmt.Errorf("profile %q: its id or its artifact is claimed twice", p.ID)
		}
		ids[p.ID], ids[p.Artifact] = true, true
		for _, r := range m.Families {
			if r.Graph != p.Graph {
				continue
			}
			if err := p.CheckFor(r); err != nil {
				return fmt.Errorf("profile %q: %w", p.ID, err)
			}
		}
	}
	ids = map[string]bool{}
	for i := range m.Implementations {
		impl := &m.Implementations[i]
		if err := impl.check(); err != nil {
			return fmt.Errorf("implementation %q: %w", impl.ID, err)
		}
		if ids[impl.ID] {
			return fmt.Errorf("implementation %q: registered twice", impl.ID)
		}
		ids[impl.ID] = true
	}
	return nil
}
