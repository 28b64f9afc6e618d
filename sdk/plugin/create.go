package plugin

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Create makes a model in this process, of an artifact that the caller has open: for programs that embed a family instead of
// starting its plugin. spec is what a host would send but for the artifact, which is a. runtime is the folder that the
// Backend opens.
//
// The caller keeps a on every path, and owns the model on success. Of the loader matrix only resident cells can be
// created: streamed weights are opened by their folder, and speech models by their own opener (UnsupportedModelLoad).
func Create(ctx context.Context, f Family, a *artifact.Artifact, spec *cladev1.ModelSpec, runtime string) (Model, error) {
	s, err := NewServer(f)
	if err != nil {
		return nil, err
	}
	if err := s.able(contract.UnsupportedModel); err != nil {
		return nil, err
	}
	spec = proto.Clone(spec).(*cladev1.ModelSpec)
	spec.Artifacts = append([]*cladev1.Artifact{{Role: cladev1.Role_ROLE_TARGET, Path: a.Path, Format: string(a.Format)}}, auxiliaries(spec)...)
	if err := assert(s.manifest, spec); err != nil {
		return nil, err
	}
	p := spec.Profile
	cell, err := family.CellOf(p.GetId(), p.GetLoader(), p.GetLoop())
	if err == nil {
		err = cell.ForCreate(p.GetId())
	}
	if err == nil {
		err = s.declared(spec.Composition)
	}
	if err != nil {
		return nil, err
	}
	var model Model
	err = s.guard("Create", func() error {
		if _, _, err := f.Backend.LoadRuntime(runtime); err != nil {
			return err
		}
		plan, err := f.Backend.Plan(ctx, &cladev1.PlanRequest{Model: spec})
		if err != nil {
			return err
		}
		model, err = f.Backend.Open(ctx, &cladev1.OpenRequest{Model: spec, Plan: plan}, func(*cladev1.OpenResponse) {})
		return err
	})
	if err != nil {
		if model != nil {
			_ = s.guard("Close", model.Close) // the first error is the one to tell
		}
		return nil, err
	}
	if model == nil {
		return nil, contract.Errorf(contract.Internal, s.manifest.Name, "the backend opened no model and no error")
	}
	return model, nil
}

// auxiliaries are the artifacts of a spec that are not its target.
func auxiliaries(spec *cladev1.ModelSpec) []*cladev1.Artifact {
	var out []*cladev1.Artifact
	for _, a := range spec.GetArtifacts() {
		if a.Role != cladev1.Role_ROLE_TARGET {
			out = append(out, a)
		}
	}
	return out
}
