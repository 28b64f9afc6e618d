package artifact

import (
	"path/filepath"

	"github.com/clademl/clade/sdk/contract"
)

// corrupt is an ArtifactCorrupt about a part (a tensor, a field, "header") of a file.
func corrupt(file, part, format string, args ...any) *contract.Error {
	return contract.Errorf(contract.ArtifactCorrupt, subject(file, part), format, args...)
}

func subject(file, part string) string {
	file = filepath.Base(file)
	if part == "" {
		return file
	}
	return file + ": " + clip(part)
}

// nameShown bounds how much of a hostile name an error repeats.
const nameShown = 160

func clip(s string) string {
	if len(s) <= nameShown {
		return s
	}
	return s[:nameShown] + "..."
}
