package loader

import (
	"context"
	"maps"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// inspect asks the plugin for what the record's data cannot express: the parsed config, where the dialect says so, and the
// graph fingerprint, where the record says so. What follows from them is decided again.
func (p *Planned) inspect(ctx context.Context) error {
	r := p.Family.Record
	if !r.Config.Inspect && r.Fingerprint != family.FingerprintPlugin {
		return nil
	}
	said, err := p.process.Inspect(ctx, &cladev1.InspectRequest{Artifacts: p.artifacts()[:1], Graph: r.Graph})
	if err != nil {
		return err
	}
	if r.Config.Inspect {
		if said.ParsedConfigJson == nil {
			return contract.Errorf(contract.PluginMismatch, p.Plugin.Name, "parses the configs of %s itself, and Inspect gave none", r.Graph)
		}
		cfg, err := artifact.ParseConfig(p.Parsed.Name(), []byte(said.GetParsedConfigJson()))
		if err != nil {
			return err
		}
		parsed := p.Parsed
		parsed.Config = artifact.NewConfig(cfg.Name(), maps.Clone(cfg.Map()))
		if p.choices.Own == nil {
			err = p.identify(parsed)
		} else {
			p.Parsed = parsed
			p.ConfigFingerprint, err = parsed.ConfigFingerprint()
		}
		if err != nil {
			return err
		}
	}
	if r.Fingerprint == family.FingerprintPlugin {
		if p.GraphFingerprint = said.GetGraphFingerprint(); p.GraphFingerprint == "" {
			return contract.Errorf(contract.PluginMismatch, p.Plugin.Name, "computes the graph fingerprint of %s itself, and Inspect gave none", r.Graph)
		}
	}
	return nil
}

// artifacts is the model and what goes with it, as the plugin is told.
func (p *Planned) artifacts() []*cladev1.Artifact {
	target := &cladev1.Artifact{Role: cladev1.Role_ROLE_TARGET, Path: p.Artifact.Path, Format: string(p.Artifact.Format)}
	if p.ArtifactFingerprint != "" {
		target.Fingerprint = &p.ArtifactFingerprint
	}
	out := []*cladev1.Artifact{target}
	for _, a := range p.Auxiliaries {
		if a.Unused == "" {
			one := &cladev1.Artifact{Role: a.Role, Path: a.Path, Format: a.Format, Scale: a.Scale}
			if a.ID != "" {
				one.Id = &a.ID
			}
			out = append(out, one)
		}
	}
	return out
}
