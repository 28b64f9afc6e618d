package serve

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/sdk/contract"
)

// published runs a server with a state file in dir.
func published(t *testing.T, dir string, o Options, engine *fakeEngine) (client *admin.Client, url string) {
	t.Helper()
	addr := make(chan net.Addr, 1)
	o.Listening, o.StateDir, o.KeepAlive, o.DrainTimeout = func(a net.Addr) { addr <- a }, dir, time.Hour, time.Minute
	s, err := New(o, []Served{{Name: "tiny", Key: "k", Open: func(context.Context) (Engine, error) { return engine, nil }}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	url = "http://" + (<-addr).String()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	states, err := admin.List(dir)
	require.NoError(t, err)
	require.NotEmpty(t, states)
	client = admin.Dial(states[len(states)-1])
	t.Cleanup(client.Close)
	return client, url
}

func TestTheCommandLineFindsAServerAndOnlyWithItsToken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "serve")
	c, url := published(t, dir, Options{APIKey: "secret"}, newFake("x"))
	require.Equal(t, url, c.State.URL)
	list, err := c.Running(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "tiny", list[0].Model)
	require.Equal(t, "ready", list[0].State)
	require.InDelta(t, 3600, *list[0].ExpiresIn, 60)

	for _, key := range []string{"", "Bearer secret", "Bearer " + c.State.Token + "x"} {
		r := do(t, http.MethodGet, url+admin.Prefix+"models", "", func(r *http.Request) { r.Header.Set("Authorization", key) })
		require.Equal(t, 401, r.status, key)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	info, err := entries[0].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestAServerWithoutAStateFileHasNoAdminSide(t *testing.T) {
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": newFake("x")})
	for _, key := range []string{"", "Bearer "} {
		require.Equal(t, 401, do(t, http.MethodGet, url+admin.Prefix+"models", "", func(r *http.Request) { r.Header.Set("Authorization", key) }).status)
	}
}

func TestABorrowedModelAnswersAsItsOwnWould(t *testing.T) {
	engine := newFake("Par", "is")
	c, _ := published(t, t.TempDir(), Options{}, engine)
	_, err := c.Borrow(t.Context(), "another key")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	m, err := c.Borrow(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, m.HasTemplate())
	ids, err := m.Prompt(chat.Conversation{Messages: []map[string]any{{"role": "user", "content": "hi"}}, Tools: json.RawMessage(`[]`)})
	require.NoError(t, err)
	require.Equal(t, generate.Prompt{IDs: []int32{1, 2, 3}, Reply: true, Tools: json.RawMessage(`[]`)}, ids)
	var text strings.Builder
	r, err := m.Generate(t.Context(), ids, generate.Settings{Temperature: new(0.5), Logprobs: new(uint32(1)), LogitBias: map[int32]float64{7: 1.5}}, func(d generate.Delta) error {
		require.Len(t, d.Logprobs, 1)
		text.WriteString(d.Text)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "Paris", text.String())
	require.Equal(t, "Paris", r.Text)
	require.Equal(t, "cpu-test", r.Provenance.Device)
	require.InDelta(t, 0.5, *engine.settings.Temperature, 0)
	require.Equal(t, map[int32]float64{7: 1.5}, engine.settings.LogitBias)
	_, err = m.Prompt(chat.Conversation{Messages: []map[string]any{{"role": "user", "content": "too long"}}})
	require.Equal(t, contract.ContextTooLong, contract.KindOf(err), "a Kind crosses")
	require.ErrorContains(t, err, "5000 tokens")
	engine.err = contract.Errorf(contract.PluginCrashed, "universal", "died").WithNext("try again")
	_, err = m.Generate(t.Context(), ids, generate.Settings{}, func(generate.Delta) error { return nil })
	require.Equal(t, contract.PluginCrashed, contract.KindOf(err))
	require.Equal(t, "universal: died; try again", err.Error())
}

func TestStopOverTheWireUnloadsAndCloses(t *testing.T) {
	engine := newFake("x")
	c, _ := published(t, t.TempDir(), Options{}, engine)
	name, open, err := c.Stop(t.Context(), "tin")
	require.NoError(t, err)
	require.Equal(t, "tiny", name)
	require.True(t, open)
	require.True(t, engine.closed.Load())
	_, open, err = c.Stop(t.Context(), "tiny")
	require.NoError(t, err)
	require.False(t, open)
	_, _, err = c.Stop(t.Context(), "other")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	_, err = c.Borrow(t.Context(), "k")
	require.Equal(t, contract.NotFound, contract.KindOf(err), "an unloaded model is not opened for a borrower")
}
