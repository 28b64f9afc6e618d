package loader

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
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
