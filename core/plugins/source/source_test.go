package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/source/registrytest"
	"github.com/clademl/clade/sdk/contract"
)

func TestMain(m *testing.M) {
	pause = 5 * time.Millisecond
	os.Exit(m.Run())
}

// published is a folder with an index that names one archive of a megabyte.
func published(t *testing.T) (dir string, a index.Archive, content []byte) {
	t.Helper()
	dir = t.TempDir()
	content = make([]byte, 1<<20)
	noise := rand.NewChaCha8([32]byte{1})
	_, _ = noise.Read(content)
	sum := sha256.Sum256(content)
	a = index.Archive{OS: "linux", Arch: "amd64", Variant: "cpu", URLs: []string{"archives/a.tar.gz"}, Size: 1 << 20, Unpacked: 1, SHA256: hex.EncodeToString(sum[:])}
	public, private, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	x := &index.Index{
		Schema: 1, Name: "example.org", Serial: 1, Created: time.Now().UTC(), Expires: time.Now().Add(time.Hour).UTC(), Keys: []string{public.String()},
		Plugins: map[string]*index.Plugin{}, Runtimes: []index.Runtime{{MLX: "1", MLXC: "1", Archive: a}},
	}
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "archives"), 0o755))
	for name, data := range map[string][]byte{index.File: raw, index.Signature: index.Sign(private, raw, x), a.URLs[0]: content} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir, a, content
}

// brings says that a source has the index and the archive, from the start and from the middle.
func brings(t *testing.T, location, dir string, a index.Archive, content []byte) {
	t.Helper()
	s, err := Open(location, Options{})
	require.NoError(t, err)
	raw, signature, err := s.Index(t.Context())
	require.NoError(t, err)
	for name, got := range map[string][]byte{index.File: raw, index.Signature: signature} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, begun := range []int{0, 300_000} {
		part := filepath.Join(t.TempDir(), "part")
		require.NoError(t, os.WriteFile(part, content[:begun], 0o600))
		first := int64(-1)
		require.NoError(t, Download(t.Context(), s, a, part, func(done int64) {
			if first < 0 {
				first = done
			}
		}))
		got, err := os.ReadFile(part)
		require.NoError(t, err)
		require.Equal(t, content, got)
		require.Greater(t, first, int64(begun), "the download began anew")
	}
}

func TestAFolderAndAWebServerBringTheSame(t *testing.T) {
	dir, a, content := published(t)
	brings(t, dir, dir, a, content)
	brings(t, "file://"+dir, dir, a, content)
	server := httptest.NewServer(http.StripPrefix("/deep/", http.FileServer(http.Dir(dir))))
	defer server.Close()
	brings(t, server.URL+"/deep", dir, a, content)
	brings(t, server.URL+"/deep/"+index.File, dir, a, content)
}

// Registries: one in memory, and Debian's docker-registry where it is installed.
func TestARegistryBringsWhatWasPushed(t *testing.T) {
	dir, a, content := published(t)
	addresses := []string{registrytest.New(t)}
	if debian, ok := registrytest.Debian(t); ok {
		addresses = append(addresses, debian)
	}
	for _, address := range addresses {
		location := "oci://" + address + "/team/plugins"
		require.NoError(t, Push(t.Context(), dir, location, Options{}))
		require.NoError(t, Push(t.Context(), dir, location, Options{}), "what is there is not pushed again")
		brings(t, location, dir, a, content)
		brings(t, location+":index-v1", dir, a, content)
		s, err := Open("oci://"+address+"/team/nothing", Options{})
		require.NoError(t, err)
		_, _, err = s.Index(t.Context())
		require.Equal(t, contract.NotFound, contract.KindOf(err), err)
		require.NotContains(t, err.Error(), "\n")
	}
}

// An index from elsewhere may name a registry's archive.
func TestAnArchiveMayLieInARegistry(t *testing.T) {
	dir, a, content := published(t)
	address := registrytest.New(t)
	require.NoError(t, Push(t.Context(), dir, "oci://"+address+"/p", Options{}))
	a.URLs = []string{"oci://" + address + "/p@sha256:" + a.SHA256}
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	part := filepath.Join(t.TempDir(), "part")
	require.NoError(t, Download(t.Context(), s, a, part, nil))
	got, err := os.ReadFile(part)
	require.NoError(t, err)
	require.Equal(t, content, got)
}

// flaky serves a folder and spoils the first answers to archives.
func flaky(t *testing.T, dir string, spoil func(n int32, w http.ResponseWriter, q *http.Request) bool) string {
	t.Helper()
	var n atomic.Int32
	files := http.FileServer(http.Dir(dir))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if filepath.Dir(q.URL.Path) == "/archives" && spoil(n.Add(1), w, q) {
			return
		}
		files.ServeHTTP(w, q)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestADownloadGoesOnAfterALostConnection(t *testing.T) {
	dir, a, content := published(t)
	var ranges atomic.Int32
	at := flaky(t, dir, func(n int32, w http.ResponseWriter, q *http.Request) bool {
		if q.Header.Get("Range") != "" {
			ranges.Add(1)
		}
		if n > 2 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(a.Size))
		if q.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		_, _ = w.Write(content[:400_000])
		panic(http.ErrAbortHandler)
	})
	s, err := Open(at, Options{})
	require.NoError(t, err)
	part := filepath.Join(t.TempDir(), "part")
	require.NoError(t, Download(t.Context(), s, a, part, nil))
	got, err := os.ReadFile(part)
	require.NoError(t, err)
	require.Equal(t, content, got)
	require.Equal(t, int32(2), ranges.Load())
}

func TestAServerThatIgnoresRangesIsReadFromTheStart(t *testing.T) {
	dir, a, content := published(t)
	at := flaky(t, dir, func(_ int32, w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write(content)
		return true
	})
	s, err := Open(at, Options{})
	require.NoError(t, err)
	part := filepath.Join(t.TempDir(), "part")
	require.NoError(t, os.WriteFile(part, content[:1000], 0o600))
	require.NoError(t, Download(t.Context(), s, a, part, nil))
}

// What an earlier, broken transfer left does not make a sound archive look spoiled.
func TestASpoiledPartIsDownloadedAgain(t *testing.T) {
	dir, a, content := published(t)
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	part := filepath.Join(t.TempDir(), "part")
	require.NoError(t, os.WriteFile(part, make([]byte, 5000), 0o600))
	require.NoError(t, Download(t.Context(), s, a, part, nil))
	got, err := os.ReadFile(part)
	require.NoError(t, err)
	require.Equal(t, content, got)
}

func TestAServerThatSendsNothingIsGivenUp(t *testing.T) {
	defer func(d time.Duration) { stall = d }(stall)
	stall = 50 * time.Millisecond
	dir, a, _ := published(t)
	at := flaky(t, dir, func(_ int32, w http.ResponseWriter, q *http.Request) bool {
		w.Header().Set("Content-Length", fmt.Sprint(a.Size))
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
		return true
	})
	s, err := Open(at, Options{})
	require.NoError(t, err)
	err = Download(t.Context(), s, a, filepath.Join(t.TempDir(), "part"), nil)
	require.Equal(t, contract.Unavailable, contract.KindOf(err))
	require.ErrorContains(t, err, "sends nothing")
}

func TestAStoppedDownloadKeepsItsPart(t *testing.T) {
	dir, a, content := published(t)
	ctx, cancel := context.WithCancel(t.Context())
	at := flaky(t, dir, func(_ int32, w http.ResponseWriter, q *http.Request) bool {
		w.Header().Set("Content-Length", fmt.Sprint(a.Size))
		_, _ = w.Write(content[:500_000])
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
		return true
	})
	s, err := Open(at, Options{})
	require.NoError(t, err)
	part := filepath.Join(t.TempDir(), "part")
	err = Download(ctx, s, a, part, func(done int64) {
		if done == 500_000 {
			cancel()
		}
	})
	require.Equal(t, contract.Cancelled, contract.KindOf(err))
	info, err := os.Stat(part)
	require.NoError(t, err)
	require.Equal(t, int64(500_000), info.Size())
}

func TestTheNextURLIsTriedWhenOneFails(t *testing.T) {
	dir, a, _ := published(t)
	a.URLs = []string{"archives/gone.tar.gz", "https://" + "127.0.0.1:1/a.tar.gz", a.URLs[0]}
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, Download(t.Context(), s, a, filepath.Join(t.TempDir(), "part"), nil))
	a.URLs = a.URLs[:2]
	err = Download(t.Context(), s, a, filepath.Join(t.TempDir(), "part"), nil)
	require.Equal(t, contract.NotFound, contract.KindOf(err), "the first url's error is told: %v", err)
}

func TestDownloadsGoThroughTheProxyOfTheEnvironment(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	transport, ok := defaultClient.Transport.(*http.Transport)
	require.True(t, ok)
	require.NotNil(t, transport.Proxy, "proxies of the environment are not taken")
	u, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	s, err := Open("https://plugins.example.org/x", Options{Client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u)}}})
	require.NoError(t, err)
	_, _, err = s.Index(t.Context())
	require.Equal(t, contract.Unavailable, contract.KindOf(err))
	require.Positive(t, asked.Load())
}

func TestLocationsThatCannotBeSourcesAreRefused(t *testing.T) {
	for location, says := range map[string]string{
		"": "no location", "ftp://x/y": "no such kind of source", "http://example.org/x": "http is for this machine only",
		"file://other/x": "not a file", "oci://": "", "https://": "is not a url", filepath.Join(t.TempDir(), "none"): "no such folder or bundle",
		"source_test.go": "is no bundle",
	} {
		_, err := Open(location, Options{})
		require.Error(t, err, location)
		require.ErrorContains(t, err, says)
		var e *contract.Error
		require.True(t, errors.As(err, &e), location)
	}
}

func TestAnIndexWithoutEndIsNotRead(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, rand.NewChaCha8([32]byte{}), index.MaxBytes+10)
	}))
	defer s.Close()
	web, err := Open(s.URL, Options{})
	require.NoError(t, err)
	_, _, err = web.Index(t.Context())
	require.Equal(t, contract.PluginUntrusted, contract.KindOf(err))
	require.ErrorContains(t, err, "is larger than")
}
