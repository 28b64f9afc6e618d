package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// manifest is what serving needs of plugin.yaml; sdk/family owns the whole.
type manifest struct {
	Name     string   `yaml:"name"`
	Version  string   `yaml:"version"`
	Families []record `yaml:"families"`
	json     string
}

type record struct {
	Graph   string   `yaml:"graph"`
	Loaders []string `yaml:"loaders"`
	Loop    string   `yaml:"loop"`
	Profile string   `yaml:"profile"`
}

func parseManifest(data []byte) (*manifest, error) {
	m := &manifest{}
	if err := yaml.Unmarshal(data, m); err != nil {
		return nil, contract.Errorf(contract.PluginMismatch, "plugin.yaml", "%w", err)
	}
	if m.Name == "" || m.Version == "" || len(m.Families) == 0 {
		return nil, contract.Errorf(contract.PluginMismatch, "plugin.yaml", "name, version and families are needed")
	}
	var tree any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return nil, contract.Errorf(contract.PluginMismatch, "plugin.yaml", "%w", err)
	}
	canonical, err := json.Marshal(tree)
	if err != nil {
		return nil, contract.Errorf(contract.PluginMismatch, "plugin.yaml", "%w", err)
	}
	m.json = string(canonical)
	return m, nil
}

// nextRelease is the version that brings what an announced family cannot do yet: the next minor.
func (m *manifest) nextRelease() string {
	part := strings.SplitN(m.Version, ".", 3)
	if len(part) == 3 {
		if minor, err := strconv.Atoi(part[1]); err == nil {
			return fmt.Sprintf("%s.%d.0", part[0], minor+1)
		}
	}
	return "the release after " + m.Version
}

// assert checks what the host decided against the record it claims to have matched.
func (m *manifest) assert(spec *cladev1.ModelSpec) error {
	if spec == nil || len(spec.Artifacts) == 0 || spec.Profile == nil || spec.Composition == nil {
		return contract.Errorf(contract.InvalidArgument, "model", "artifacts, profile and composition are needed")
	}
	i := slices.IndexFunc(m.Families, func(r record) bool { return r.Graph == spec.Graph })
	if i < 0 {
		return contract.Errorf(contract.PluginMismatch, spec.Graph, "plugin %s %s has no family with this graph",
			m.Name, m.Version)
	}
	r, p := m.Families[i], spec.Profile
	refuse := func(format string, args ...any) error {
		return contract.Errorf(contract.UnsupportedModelLoad, p.Id, format, args...)
	}
	if !slices.Contains(r.Loaders, p.Loader) {
		return refuse("loader %q is not one of %v that %s has", p.Loader, r.Loaders, r.Graph)
	}
	if p.Loop != r.Loop {
		return refuse("loop %q is not %q, which %s runs", p.Loop, r.Loop, r.Graph)
	}
	if !p.ExactArtifact && p.Id != r.profileFor(p.Loader) {
		return contract.Errorf(contract.PluginMismatch, p.Id, "%s with loader %s has profile %s",
			r.Graph, p.Loader, r.profileFor(p.Loader))
	}
	return nil
}

// profileFor is the id of the record's profile for a loader: the record's own for its first loader, else suffixed.
func (r record) profileFor(loader string) string {
	if r.Loaders[0] == loader {
		return r.Profile
	}
	return r.Profile + "-" + loader
}
