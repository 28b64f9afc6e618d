package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/sdk/contract"
)

// aServer of this user answers every request with err, nil for a success, and counts.
func aServer(t *testing.T, dir string, pid int, err *contract.Error) *int {
	t.Helper()
	asked := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if err == nil {
			_, _ = w.Write([]byte("{}"))
			return
		}
		w.WriteHeader(err.Kind.HTTPStatus())
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"kind": err.Kind, "subject": err.Subject, "message": err.Message}})
	}))
	t.Cleanup(h.Close)
	remove, failed := admin.Publish(dir, admin.State{Pid: pid, URL: h.URL, Token: "t", Started: time.Now()})
	require.NoError(t, failed)
	t.Cleanup(remove)
	return &asked
}

// Which server a name belongs to the servers say: the first that has the model decides, also when it refuses.
func TestAnAdapterGoesToTheServerThatHasItsModel(t *testing.T) {
	load := func(model string) error {
		return onServer("law", model, func(c *admin.Client) error { return c.LoadAdapter(t.Context(), model, admin.Adapter{ID: "law"}) })
	}
	here := func(answers ...*contract.Error) (out []*int) {
		t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
		dir, err := admin.Dir()
		require.NoError(t, err)
		for i, a := range answers {
			out = append(out, aServer(t, dir, 1000+i, a))
		}
		return out
	}
	other := contract.Errorf(contract.NotFound, "m", "no such model is served")
	damaged := contract.Errorf(contract.ArtifactCorrupt, "law", "is torn")
	gone := contract.Errorf(contract.NotFound, "/law", "no such file")

	here()
	require.ErrorContains(t, load("m"), "law: no server is running")
	asked := here(other, nil)
	require.NoError(t, load("m"))
	require.Equal(t, 2, *asked[0]+*asked[1])
	here(other, damaged)
	require.ErrorContains(t, load("m"), "is torn")
	here(gone, other)
	require.ErrorContains(t, load("m"), "/law: no such file")
	here(other, other)
	require.ErrorContains(t, load("m"), "m: no running server serves it; `clade ps`")
	here(other)
	require.ErrorContains(t, load("m"), "m: no such model is served")
	here(other, contract.Errorf(contract.NotFound, "law", "no adapter of this name is loaded"))
	require.ErrorContains(t, load("m"), "law: no adapter of this name")
}
