package index

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/clademl/clade/sdk/contract"
)

// Machine is what a host can run.
type Machine struct {
	OS, Arch string
	// Variants of the runtime, the best first.
	Variants []string
}

// Choice is what to install for one plugin.
type Choice struct {
	Name    string
	Version *Version
	Archive Archive
	// Runtime is nil when the plugin needs none.
	Runtime *Runtime
}

// Choose picks the newest version of a plugin that this host and machine can run, or exactly the wanted one. Versions before
// a release (1.0.0-rc.1) are taken when wanted, or when there is nothing else. The error says why the newest cannot be taken.
func (x *Index) Choose(name, wanted string, m Machine) (Choice, error) {
	p, ok := x.Plugins[name]
	if !ok {
		return Choice{}, contract.Errorf(contract.NotFound, name, "source %s has no such plugin", x.Name).WithNext("`clade plugin search` lists what there is")
	}
	var first error
	for _, v := range candidates(p.Versions, wanted) {
		c, err := x.fit(name, v, m)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		var have []string
		for _, v := range p.Versions {
			have = append(have, v.Version)
		}
		first = contract.Errorf(contract.NotFound, name, "source %s has no version %s", x.Name, wanted).WithNext("it has %s", strings.Join(have, ", "))
	}
	return Choice{}, first
}

// candidates are the versions to try, releases before pre-releases, newest first.
func candidates(versions []Version, wanted string) []*Version {
	var out, pre []*Version
	for i := range versions {
		v := &versions[i]
		switch {
		case wanted != "":
			if v.Version == wanted {
				out = append(out, v)
			}
		case semver.Prerelease("v"+v.Version) != "":
			pre = append(pre, v)
		default:
			out = append(out, v)
		}
	}
	return append(out, pre...)
}

// fit finds the archive and the runtime of one version.
func (x *Index) fit(name string, v *Version, m Machine) (Choice, error) {
	subject := name + " " + v.Version
	if !slices.Contains(v.manifest.Contract, contract.Major) {
		return Choice{}, contract.Errorf(contract.PluginMismatch, subject, "speaks contract versions %v, this host speaks %d", v.manifest.Contract, contract.Major).
			WithNext("update clade, or install another version of it")
	}
	var here, elsewhere []string
	for _, a := range v.Platforms {
		if a.OS == m.OS && a.Arch == m.Arch {
			here = append(here, a.Platform())
		}
		elsewhere = append(elsewhere, a.Platform())
	}
	if len(here) == 0 {
		return Choice{}, contract.Errorf(contract.PluginMismatch, subject, "has no archive for %s/%s", m.OS, m.Arch).
			WithNext("it is there for %s", orNothing(elsewhere))
	}
	needs := v.manifest.Runtime
	if len(needs.MLX)+len(needs.MLXC) == 0 {
		for _, a := range v.Platforms {
			if a.OS == m.OS && a.Arch == m.Arch && a.Variant == "" {
				return Choice{Name: name, Version: v, Archive: a}, nil
			}
		}
	}
	for _, variant := range m.Variants {
		// The last one listed is the latest build.
		for _, r := range slices.Backward(x.Runtimes) {
			if r.OS != m.OS || r.Arch != m.Arch || r.Variant != variant || !WorksWith(needs.MLX, r.MLX) || !WorksWith(needs.MLXC, r.MLXC) {
				continue
			}
			for _, a := range v.Platforms {
				if a.OS == m.OS && a.Arch == m.Arch && (a.Variant == "" || a.Variant == variant) {
					return Choice{Name: name, Version: v, Archive: a, Runtime: &r}, nil
				}
			}
		}
	}
	return Choice{}, contract.Errorf(contract.PluginMismatch, subject, "works with the runtime MLX %s, mlx-c %s; the source has %s for %s/%s %s",
		orNothing(needs.MLX), orNothing(needs.MLXC), x.runtimesFor(m), m.OS, m.Arch, strings.Join(m.Variants, ", ")).
		WithNext("install another version of the plugin, or ask its source for the runtime")
}

// WorksWith says whether a runtime's version is one of those that a plugin names; a plugin that names none takes any.
func WorksWith(named []string, version string) bool {
	return len(named) == 0 || slices.Contains(named, version)
}

func (x *Index) runtimesFor(m Machine) string {
	var out []string
	for _, r := range x.Runtimes {
		if r.OS == m.OS && r.Arch == m.Arch && slices.Contains(m.Variants, r.Variant) {
			out = append(out, fmt.Sprintf("MLX %s with mlx-c %s (%s)", r.MLX, r.MLXC, r.Variant))
		}
	}
	return orNothing(out)
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
