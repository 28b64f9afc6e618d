package serve

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table of endpoints in the documentation is the routes: none is missing there, and none that it names is gone.
func TestTheDocumentedEndpointsAreTheRoutes(t *testing.T) {
	s, _ := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": newFake("x")})
	data, err := os.ReadFile("../../docs/command-line.md")
	require.NoError(t, err)
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:GET|POST) /[^`]*)` \\|").FindAllSubmatch(data, -1) {
		documented = append(documented, string(row[1]))
	}
	slices.Sort(documented)
	require.Equal(t, slices.Sorted(maps.Keys(s.routes())), documented)
}
