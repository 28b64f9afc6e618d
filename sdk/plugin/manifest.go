package plugin

import (
	"slices"

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

// assert checks what the host decided against the record that it claims to have matched: graph, loader, loop and, unless the
// profile is of one exact artifact, its id.
func assert(m *family.Manifest, spec *cladev1.ModelSpec) error {
	if spec == nil || len(spec.Artifacts) == 0 || spec.Profile == nil || spec.Composition == nil {
		return contract.Errorf(contract.InvalidArgument, "model", "artifacts, profile and composition are needed")
	}
	p := spec.Profile
	r, ok := record(m, spec.Graph)
	if !ok {
		return contract.Errorf(contract.PluginMismatch, spec.Graph, "plugin %s %s has no family with this graph",
			m.Name, m.Version)
	}
	if r.Status == family.Announced {
		return contract.Errorf(contract.UnsupportedModel, r.Graph, "plugin %s %s announces this family and cannot run it yet",
			m.Name, m.Version).WithNext("it comes with version %s", r.Since)
	}
	want, err := r.ProfileFor(artifact.Format(p.Loader))
	if err != nil {
		return err
	}
	if p.Loop != string(want.Loop) {
		return contract.Errorf(contract.UnsupportedModelLoad, p.Id, "%s runs the loop %s, not %q", r.Graph, want.Loop, p.Loop)
	}
	if !p.ExactArtifact && p.Id != want.ID {
		return contract.Errorf(contract.PluginMismatch, p.Id, "%s with loader %s has profile %s", r.Graph, p.Loader, want.ID)
	}
	return nil
}
