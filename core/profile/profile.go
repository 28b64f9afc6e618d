// Package profile picks the profile that a model is opened with: the one a person gives, else that of the exact artifact,
// else its family's for the artifact's format; and the implementation that goes with it.
//
// Invariants: an exact artifact whose config or graph is not what its profile declares is an error, never a quieter
// choice; two exact profiles of one artifact are an error; the profile's loader and loop are the record's own and its
// required capabilities are all declared; an implementation that is missing or does not fit is refused before weights are
// opened. Not for: reading profiles (sdk/family), collecting them (core/family), opening anything (core/loader).
package profile

import (
	"io"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Input of a resolution.
type Input struct {
	Record *family.Record
	Format artifact.Format
	// ConfigFingerprint and ArtifactFingerprint identify the model; the latter is empty when nothing says it.
	ConfigFingerprint   string
	ArtifactFingerprint string
	// Families hold the profiles of exact artifacts, the implementations, and the capabilities that are declared.
	Families *corefamily.List
	// Given is a profile that a person chose; it outranks the others.
	Given *family.Profile
	// Implementation is one that a person named; it outranks the profile's.
	Implementation string
}

// Resolved is a profile, and the implementation it runs with; nil for the family's own graphs.
type Resolved struct {
	Profile        *cladev1.Profile
	Implementation *corefamily.ImplementationEntry
}

// Load reads a profile file.
func Load(path string) (*family.Profile, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	p, err := family.ParseProfile(data)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, path, "not a profile: %w", err)
	}
	return p, nil
}

// maxFile bounds a profile's file, in bytes: it has ten short lines.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, path, "cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, contract.Errorf(contract.NotFound, path, "cannot be read: %w", err)
	case len(data) > maxFile:
		return nil, contract.Errorf(contract.InvalidArgument, path, "not a profile: is larger than %d bytes", maxFile)
	}
	return data, nil
}

// Resolve picks the profile. Errors are UnsupportedModelLoad with the profile's id.
func Resolve(in Input) (*Resolved, error) {
	special := in.Given
	if special == nil {
		var err error
		if special, err = in.exact(); err != nil {
			return nil, err
		}
	}
	out := &Resolved{}
	wanted := in.Implementation
	if special == nil {
		own, err := in.Record.ProfileFor(in.Format)
		if err != nil {
			return nil, err
		}
		out.Profile = &cladev1.Profile{
			Id: own.ID, Fidelity: string(own.Fidelity), Specialization: string(own.Specialization), Loader: own.Loader,
			Loop: string(own.Loop), RequiredCapabilities: own.Capabilities,
		}
	} else {
		if err := in.holds(special); err != nil {
			return nil, err
		}
		out.Profile = &cladev1.Profile{
			Id: special.ID, Fidelity: string(special.Fidelity), Specialization: string(special.Specialization), Loader: special.Loader,
			Loop: string(special.Loop), RequiredCapabilities: special.Capabilities(in.Record), ExactArtifact: special.Exact(),
			FromCaller: in.Given != nil,
		}
		if wanted == "" {
			wanted = special.Implementation
		}
	}
	out.Profile.ConfigFingerprint = &in.ConfigFingerprint
	if in.ArtifactFingerprint != "" {
		out.Profile.ArtifactFingerprint = proto.String(in.ArtifactFingerprint)
	}
	for _, c := range out.Profile.RequiredCapabilities {
		if !slices.Contains(in.Families.Capabilities(), c) {
			return nil, contract.Errorf(contract.UnsupportedModelLoad, out.Profile.Id, "needs the capability %q, which nothing here declares", c)
		}
	}
	var err error
	out.Implementation, err = in.implementation(wanted, out.Profile)
	return out, err
}

// exact finds the one known profile that claims the artifact.
func (in *Input) exact() (*family.Profile, error) {
	if in.ArtifactFingerprint == "" {
		return nil, nil
	}
	var found *family.Profile
	for _, e := range in.Families.Profiles() {
		if e.Artifact != in.ArtifactFingerprint {
			continue
		}
		if found != nil {
			return nil, contract.Errorf(contract.UnsupportedModelLoad, e.ID, "%s claims the same artifact %s", found.ID, e.Artifact)
		}
		found = e.Profile
	}
	return found, nil
}

// holds compares what a profile declares with the model.
func (in *Input) holds(p *family.Profile) error {
	refuse := func(format string, args ...any) *contract.Error {
		return contract.Errorf(contract.UnsupportedModelLoad, p.ID, format, args...)
	}
	switch {
	case p.Graph != in.Record.Graph:
		return refuse("declares graph %s, the model's config is of %s", p.Graph, in.Record.Graph)
	case p.Loader != string(in.Format):
		return refuse("declares loader %s, the model is %s", p.Loader, in.Format)
	case p.Exact() && in.ArtifactFingerprint == "":
		return refuse("is of the artifact %s; what this one is cannot be told from its path", p.Artifact).
			WithNext("say so with --artifact-fingerprint")
	case p.Exact() && p.Artifact != in.ArtifactFingerprint:
		return refuse("is of the artifact %s, this one is %s", p.Artifact, in.ArtifactFingerprint)
	case p.Exact() && p.Config != in.ConfigFingerprint:
		return refuse("declares config %s for %s, the model has %s", p.Config, in.ArtifactFingerprint, in.ConfigFingerprint)
	}
	if err := p.CheckFor(in.Record); err != nil {
		return refuse("%w", err)
	}
	return nil
}

// implementation finds the one asked for and holds it to the model and to the cell of the loader matrix.
func (in *Input) implementation(id string, p *cladev1.Profile) (*corefamily.ImplementationEntry, error) {
	if id == "" {
		return nil, nil
	}
	cell, err := family.CellOf(p.Id, p.Loader, p.Loop)
	if err != nil {
		return nil, err
	}
	if err := cell.ForImplementation(p.Id, id); err != nil {
		return nil, err
	}
	impl, ok := in.Families.Implementation(id)
	if !ok {
		return nil, contract.Errorf(contract.UnsupportedModelLoad, p.Id, "implementation %s is not registered by any plugin; refusing to fall back", id).
			WithNext("install the plugin that has it, or leave it out")
	}
	if err := impl.Fits(in.Record.Graph, p.Loader, p.Loop, in.ArtifactFingerprint); err != nil {
		return nil, contract.Errorf(contract.UnsupportedModelLoad, p.Id, "implementation %s does not fit: %w; refusing to fall back", id, err)
	}
	return &impl, nil
}
