package family

import (
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// AssertProfile holds a resolved profile to the record that it is said to be of. The plugin calls it again on what the host
// sends, so that a host with another record, or none, is refused. A record is nil when an implementation stands in for a
// family that the plugin does not have; then only what the profile says of itself is held.
//
// Errors: UnsupportedModelLoad for a loader or a loop that the record does not have, PluginMismatch for the rest.
func AssertProfile(p *cladev1.Profile, r *Record) error {
	broken := func(format string, args ...any) error {
		return contract.Errorf(contract.PluginMismatch, p.GetId(), format, args...)
	}
	if _, err := CellOf(p.GetId(), p.GetLoader(), p.GetLoop()); err != nil {
		return err
	}
	exact := p.GetExactArtifact()
	switch {
	case exact != (p.GetSpecialization() == string(ForArtifact)):
		return broken("an exact artifact and specialization %s contradict each other", ForArtifact)
	case exact && (p.GetArtifactFingerprint() == "" || p.GetConfigFingerprint() == ""):
		return broken("an exact artifact needs both fingerprints")
	case p.GetId() == "" && !p.GetFromCaller():
		return broken("has no id")
	case r == nil:
		return nil
	}
	want, err := r.ProfileFor(artifact.Format(p.GetLoader()))
	if err != nil {
		return err
	}
	if p.GetLoop() != string(want.Loop) {
		return contract.Errorf(contract.UnsupportedModelLoad, p.GetId(), "%s runs the loop %s, not %q", r.Graph, want.Loop, p.GetLoop())
	}
	if p.GetFromCaller() && p.GetId() == "" {
		return nil // their own plugin and graph: nothing more is claimed
	}
	for _, need := range want.Capabilities {
		if !slices.Contains(p.GetRequiredCapabilities(), need) {
			return broken("does not require %s, which loader, loop or graph need", need)
		}
	}
	if exact || p.GetFromCaller() {
		return nil
	}
	switch {
	case p.GetId() != want.ID:
		return broken("%s with loader %s has profile %s", r.Graph, p.GetLoader(), want.ID)
	case p.GetFidelity() != string(want.Fidelity):
		return broken("%s is held to %s, not %s", want.ID, want.Fidelity, p.GetFidelity())
	case p.GetSpecialization() != string(want.Specialization):
		return broken("%s is %s, not %s", want.ID, want.Specialization, p.GetSpecialization())
	}
	return nil
}
