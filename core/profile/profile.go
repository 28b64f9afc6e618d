// Package profile picks the profile that a model is opened with: that of the exact artifact if there is one, else its
// family's for the artifact's format.
//
// Invariants: an exact artifact whose config or graph is not what its profile declares is an error, never a quieter
// choice; two exact profiles of one artifact are an error; the profile's loader and loop are the record's own and its
// required capabilities are all declared. Not for: opening anything (core/loader).
package profile

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Exact is a profile that claims one artifact.
type Exact struct {
	ID                  string
	ArtifactFingerprint string
	ConfigFingerprint   string
	Graph               string
	Fidelity            family.Fidelity
	Loader              artifact.Format
	Capabilities        []string
}

// specializationArtifact is the one only an exact profile has.
const specializationArtifact = "artifact"

// Input of a resolution.
type Input struct {
	Record *family.Record
	Format artifact.Format
	// ConfigFingerprint and ArtifactFingerprint identify the model; the latter is empty when its path says nothing.
	ConfigFingerprint   string
	ArtifactFingerprint string
	// Capabilities are all that the engine and the known families declare.
	Capabilities []string
	Exact        []Exact
}

// Resolve picks the profile.
func Resolve(in Input) (*cladev1.Profile, error) {
	exact, err := exactOf(in)
	if err != nil {
		return nil, err
	}
	own, err := in.Record.ProfileFor(in.Format)
	if err != nil {
		return nil, err
	}
	p := &cladev1.Profile{
		Id: own.ID, Fidelity: string(own.Fidelity), Specialization: string(own.Specialization), Loader: own.Loader,
		Loop: string(own.Loop), RequiredCapabilities: own.Capabilities, ConfigFingerprint: &in.ConfigFingerprint,
	}
	if in.ArtifactFingerprint != "" {
		p.ArtifactFingerprint = proto.String(in.ArtifactFingerprint)
	}
	if exact != nil {
		p.Id, p.Fidelity, p.Specialization, p.ExactArtifact = exact.ID, string(exact.Fidelity), specializationArtifact, true
		p.RequiredCapabilities = exact.Capabilities
	}
	for _, c := range p.RequiredCapabilities {
		if !slices.Contains(in.Capabilities, c) {
			return nil, contract.Errorf(contract.UnsupportedModelLoad, p.Id, "needs the capability %q, which nothing here declares", c)
		}
	}
	return p, nil
}

// exactOf finds the profile that claims the artifact, and holds it to what it declares.
func exactOf(in Input) (*Exact, error) {
	if in.ArtifactFingerprint == "" {
		return nil, nil
	}
	var found *Exact
	for i := range in.Exact {
		e := &in.Exact[i]
		if e.ArtifactFingerprint != in.ArtifactFingerprint {
			continue
		}
		if found != nil {
			return nil, contract.Errorf(contract.Internal, e.ID, "%s claims the same artifact %s", found.ID, e.ArtifactFingerprint)
		}
		found = e
	}
	switch {
	case found == nil:
		return nil, nil
	case found.ConfigFingerprint != in.ConfigFingerprint:
		return nil, contract.Errorf(contract.UnsupportedModelLoad, found.ID, "declares config %s for %s, the model has %s",
			found.ConfigFingerprint, in.ArtifactFingerprint, in.ConfigFingerprint)
	case found.Graph != in.Record.Graph:
		return nil, contract.Errorf(contract.UnsupportedModelLoad, found.ID, "declares graph %s, the model's config is of %s", found.Graph, in.Record.Graph)
	case found.Loader != in.Format:
		return nil, contract.Errorf(contract.UnsupportedModelLoad, found.ID, "declares loader %s, the model is %s", found.Loader, in.Format)
	}
	return found, nil
}
