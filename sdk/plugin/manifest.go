package plugin

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

func parseManifest(data []byte) (*family.Manifest, error) {
	m, err := family.ParseManifest(data)
	if err != nil {
		return nil, contract.Errorf(contract.PluginMismatch, "manifest", "%w", err)
	}
	return m, nil
}

// since is the version that brings what m only announces.
func since(m *family.Manifest) string {
	for _, r := range m.Families {
		if r.Since != "" {
			return r.Since
		}
	}
	return "a later version"
}

// record finds the family with a graph id.
func record(m *family.Manifest, graph string) (*family.Record, bool) {
	i := slices.IndexFunc(m.Families, func(r *family.Record) bool { return r.Graph == graph })
	if i < 0 {
		return nil, false
	}
	return m.Families[i], true
}

// implementationsOf are the manifest's, on the wire.
func implementationsOf(m *family.Manifest) []*cladev1.Implementation {
	var out []*cladev1.Implementation
	for i := range m.Implementations {
		in := &m.Implementations[i]
		p := &cladev1.Implementation{Id: in.ID, Graph: in.Graph, Loader: in.Loader, Loop: string(in.Loop)}
		if in.Artifact != "" {
			p.ArtifactFingerprint = &in.Artifact
		}
		out = append(out, p)
	}
	return out
}

// implementations holds what a plugin registers in code to its plugin.yaml, which is what hosts know without starting it.
func implementations(m *family.Manifest, given []*cladev1.Implementation) error {
	if len(given) == 0 {
		return nil
	}
	same := slices.EqualFunc(implementationsOf(m), given, func(a, b *cladev1.Implementation) bool { return proto.Equal(a, b) })
	if !same {
		return contract.Errorf(contract.PluginMismatch, m.Name, "registers other implementations than plugin.yaml does")
	}
	return nil
}

// assert checks what the host decided: the profile against the record that it claims to have matched, or against the
// implementation that stands in for one, and that all parts of the decision are there.
func assert(m *family.Manifest, spec *cladev1.ModelSpec) error {
	if spec == nil || len(spec.Artifacts) == 0 || spec.Profile == nil || spec.Composition == nil {
		return contract.Errorf(contract.InvalidArgument, "model", "artifacts, profile and composition are needed")
	}
	p := spec.Profile
	if format := spec.Artifacts[0].Format; format != p.Loader {
		return contract.Errorf(contract.PluginMismatch, p.Id, "has loader %s for an artifact that is %s", p.Loader, format)
	}
	if fp := p.ConfigFingerprint; fp != nil && *fp != spec.ConfigFingerprint {
		return contract.Errorf(contract.PluginMismatch, p.Id, "is of config %s, the model's is %s", *fp, spec.ConfigFingerprint)
	}
	if id := spec.GetImplementation(); id != "" {
		i := slices.IndexFunc(m.Implementations, func(i family.Implementation) bool { return i.ID == id })
		if i < 0 {
			return contract.Errorf(contract.UnsupportedModelLoad, p.Id, "plugin %s %s registers no implementation %s; refusing to fall back",
				m.Name, m.Version, id)
		}
		if err := m.Implementations[i].Fits(spec.Graph, p.Loader, p.Loop, spec.Artifacts[0].GetFingerprint()); err != nil {
			return contract.Errorf(contract.UnsupportedModelLoad, p.Id, "implementation %s does not fit: %w; refusing to fall back", id, err)
		}
		own, _ := record(m, spec.Graph)
		return family.AssertProfile(p, own)
	}
	r, ok := record(m, spec.Graph)
	if !ok {
		return contract.Errorf(contract.PluginMismatch, spec.Graph, "plugin %s %s has no family with this graph",
			m.Name, m.Version)
	}
	if r.Status == family.Announced {
		return contract.Errorf(contract.UnsupportedModel, r.Graph, "plugin %s %s announces this family and cannot run it yet",
			m.Name, m.Version).WithNext("it comes with version %s", r.Since)
	}
	return family.AssertProfile(p, r)
}

// assertFiles reads the artifact's headers again and refuses a host that decided by another config: the record must accept
// it, unless a person chose this plugin or this implementation themselves, and give the fingerprints and the parsed config
// that the host sent.
func assertFiles(m *family.Manifest, spec *cladev1.ModelSpec) (err error) {
	r, ok := record(m, spec.Graph)
	if !ok {
		return nil // an implementation for another plugin's family: its record is not here
	}
	own := spec.Profile.GetFromCaller() && spec.Profile.GetId() == ""
	if own && spec.ConfigFingerprint == "" && spec.ParsedConfigJson == "" {
		return nil // nothing is claimed of the files
	}
	a, err := artifact.Open(spec.Artifacts[0].Path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := a.Close(); err == nil && cerr != nil {
			err = contract.Errorf(contract.ArtifactCorrupt, a.Path, "%w", cerr)
		}
	}()
	mismatch := func(format string, args ...any) error {
		return contract.Errorf(contract.PluginMismatch, spec.Graph, format, args...)
	}
	if got := r.Match(a.Config()); !own && !got.OK {
		return mismatch("the record does not accept this model: %s", strings.Join(got.Failed, "; "))
	}
	if string(a.Format) != spec.Artifacts[0].Format {
		return mismatch("the artifact is %s, the host says %s", a.Format, spec.Artifacts[0].Format)
	}
	if r.Config.Inspect {
		return nil // the plugin parsed it itself
	}
	parsed, err := r.Parse(a)
	if err != nil {
		return err
	}
	fingerprint, err := parsed.ConfigFingerprint()
	switch {
	case err != nil:
		return err
	case fingerprint != spec.ConfigFingerprint:
		return mismatch("the config's fingerprint is %s, the host says %s", fingerprint, spec.ConfigFingerprint)
	case parsed.JSON() != spec.ParsedConfigJson:
		return mismatch("the host read the config otherwise than this plugin")
	}
	return nil
}
