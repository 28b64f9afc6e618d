package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// hubOf serves a folder as the model org/tiny, with a cache of its own to pull it into.
func hubOf(t *testing.T, dir string) {
	t.Helper()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	var siblings []map[string]any
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		sum := sha256.Sum256(data)
		siblings = append(siblings, map[string]any{"rfilename": e.Name(), "lfs": map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(data)}})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/models/org/tiny/revision/main", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": siblings})
	})
	mux.Handle("GET /org/tiny/resolve/"+commit+"/", http.StripPrefix("/org/tiny/resolve/"+commit+"/", http.FileServer(http.Dir(dir))))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HF_HUB_OFFLINE", "")
}

func tinyLlama(t *testing.T) string {
	t.Helper()
	dir, err := tiny.Llama("llama-f32")[0].Write(t.TempDir())
	require.NoError(t, err)
	return dir
}

func TestAModelIsPulledListedAndRemoved(t *testing.T) {
	hubOf(t, tinyLlama(t))
	code, out, errs := run(t, "", "pull", "org/tiny")
	require.Zero(t, code, errs)
	require.Equal(t, "org/tiny\n", out)
	code, out, errs = run(t, "", "list", "--json")
	require.Zero(t, code, errs)
	var models []localModel
	require.NoError(t, json.Unmarshal([]byte(out), &models))
	require.Len(t, models, 1)
	require.Equal(t, "org/tiny", models[0].ID)
	require.Equal(t, "safetensors", models[0].Format)
	require.Positive(t, models[0].Bytes)

	code, _, errs = run(t, "", "rm", "tiny")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "only with --yes")
	code, out, errs = run(t, "", "rm", "tiny", "--yes")
	require.Zero(t, code, errs)
	require.Contains(t, out, "org/tiny: ")
	code, out, _ = run(t, "", "list", "--json")
	require.Zero(t, code)
	require.JSONEq(t, "[]", out)
}

func TestAModelThatNoFamilyTakesIsRefusedBeforeItsWeightsCome(t *testing.T) {
	dir := tinyLlama(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type": "nobody_knows"}`), 0o600))
	hubOf(t, dir)
	code, _, errs := run(t, "", "pull", "org/tiny")
	require.Equal(t, 3, code)
	require.Contains(t, errs, "nobody_knows")
	code, _, errs = run(t, "", "pull", "org/tiny", "--force")
	require.Zero(t, code, errs)
}

func TestAHubModelThatIsNotHereIsOfferedOnATerminalOnly(t *testing.T) {
	hubOf(t, tinyLlama(t))
	code, _, errs := run(t, "", "show", "org/tiny")
	require.Equal(t, 5, code)
	require.Contains(t, errs, "`clade pull org/tiny` brings it")

	ask := func(answer string) (int, string) {
		home := t.TempDir()
		t.Setenv("HOME", home)
		var o, e bytes.Buffer
		code := Main(context.Background(), "", []string{"show", "org/tiny"}, Streams{In: strings.NewReader(answer), Out: &o, Err: &e, InTerminal: true, ErrTerminal: true})
		return code, e.String()
	}
	code, errs = ask("n\n")
	require.Equal(t, 5, code)
	require.Contains(t, errs, "Download ")
	require.Contains(t, errs, "was not downloaded")
	code, errs = ask("y\n")
	require.Zero(t, code, errs)
}

func TestAPullOfflineSaysSo(t *testing.T) {
	hubOf(t, tinyLlama(t))
	code, _, errs := run(t, "", "pull", "org/tiny", "--offline")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "offline")
	code, _, errs = run(t, "", "pull", "tiny")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "write ORG/NAME")
}
