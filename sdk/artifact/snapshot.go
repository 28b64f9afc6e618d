package artifact

import (
	"regexp"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// snapshot is models--ORG--NAME/snapshots/REV anywhere in a path.
var snapshot = regexp.MustCompile(`(?:^|/)models--([^/]+)/snapshots/([0-9a-fA-F]{40,64})(?:/|$)`)

// SnapshotFingerprint is hf:ORG/NAME@rev for a path in a Hugging Face cache at an immutable revision, else empty: a branch
// name or any other folder says nothing about what it holds. The first "--" splits organisation and name. Only the path is
// read.
func SnapshotFingerprint(path string) string {
	m := snapshot.FindStringSubmatch(strings.ReplaceAll(path, `\`, "/"))
	if m == nil {
		return ""
	}
	org, name, _ := strings.Cut(m[1], "--")
	if org == "" || name == "" {
		return ""
	}
	return "hf:" + org + "/" + name + "@" + strings.ToLower(m[2])
}

// fingerprintForm is a scheme and what it names, without spaces.
var fingerprintForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:\S+$`)

// CheckFingerprint refuses an artifact fingerprint that could not have come from anywhere.
func CheckFingerprint(text string) error {
	if !fingerprintForm.MatchString(text) {
		return contract.Errorf(contract.InvalidArgument, "artifact fingerprint", "%q is not of the form hf:ORG/NAME@revision", text)
	}
	return nil
}
