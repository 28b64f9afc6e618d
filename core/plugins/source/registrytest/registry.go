// Package registrytest is an OCI registry in memory, for tests of sources: enough of the distribution protocol to push an
// artifact and pull it, with ranges. Not for: anything that lasts.
package registrytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// New starts a registry that ends with the test and gives its address, such as 127.0.0.1:5000.
func New(t testing.TB) string {
	t.Helper()
	r := &registry{blobs: map[string][]byte{}, manifests: map[string]manifest{}}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// Debian starts Debian's docker-registry if it is installed, and says whether it is; tools/not-run names the tests without it.
func Debian(t testing.TB) (address string, ok bool) {
	t.Helper()
	exe, err := exec.LookPath("docker-registry")
	if err != nil {
		return "", false
	}
	dir := t.TempDir()
	probe := httptest.NewServer(nil) // a free port
	address = strings.TrimPrefix(probe.URL, "http://")
	probe.Close()
	file := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %s}\n", dir, address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "serve", file)
	cmd.Env = []string{"OTEL_TRACES_EXPORTER=none"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 200 {
		if resp, err := http.Get("http://" + address + "/v2/"); err == nil {
			_ = resp.Body.Close()
			return address, true
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("docker-registry does not answer")
	return "", false
}

type manifest struct {
	media string
	data  []byte
}

type registry struct {
	mu        sync.Mutex
	blobs     map[string][]byte
	manifests map[string]manifest // by repository and tag or digest
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := strings.TrimPrefix(q.URL.Path, "/v2/")
	switch {
	case path == "":
	case strings.Contains(path, "/blobs/uploads/"):
		r.upload(w, q)
	case strings.Contains(path, "/blobs/"):
		data, ok := r.blobs[last(path)]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Docker-Content-Digest", last(path))
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
	case strings.Contains(path, "/manifests/"):
		r.manifest(w, q, path)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func last(path string) string { return path[strings.LastIndex(path, "/")+1:] }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (r *registry) upload(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodPost {
		w.Header().Set("Location", q.URL.Path+"one")
		w.WriteHeader(http.StatusAccepted)
		return
	}
	data, err := io.ReadAll(q.Body)
	if want := q.URL.Query().Get("digest"); err != nil || q.Method != http.MethodPut || digest(data) != want {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.blobs[digest(data)] = data
	w.Header().Set("Docker-Content-Digest", digest(data))
	w.WriteHeader(http.StatusCreated)
}

func (r *registry) manifest(w http.ResponseWriter, q *http.Request, path string) {
	if q.Method == http.MethodPut {
		data, err := io.ReadAll(q.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		m := manifest{q.Header.Get("Content-Type"), data}
		r.manifests[path], r.manifests[strings.TrimSuffix(path, last(path))+digest(data)] = m, m
		w.Header().Set("Docker-Content-Digest", digest(data))
		w.WriteHeader(http.StatusCreated)
		return
	}
	m, ok := r.manifests[path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", m.media)
	w.Header().Set("Docker-Content-Digest", digest(m.data))
	w.Header().Set("Content-Length", fmt.Sprint(len(m.data)))
	if q.Method == http.MethodGet {
		_, _ = w.Write(m.data)
	}
}
