package plugintest

import (
	"testing"

	"github.com/clademl/clade/sdk/plugintest/check"
)

// Run checks the plugin and fails t for every check that fails. It returns the report.
func Run(t *testing.T, o check.Options) *check.Report {
	t.Helper()
	r, err := check.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Results {
		t.Run(x.Name, func(t *testing.T) {
			switch x.Status {
			case check.Failed:
				t.Errorf("%s: %s", x.Fact, x.Reason)
			case check.Passed:
			default:
				t.Logf("%s: %s", x.Status, x.Reason)
			}
		})
	}
	return r
}
