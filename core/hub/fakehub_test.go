package hub

import (
	"crypto/sha1" //nolint:gosec // git's
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const commit1 = "0123456789abcdef0123456789abcdef01234567"

// fakeHub is one repository, org/name, behind the hub's API; its fields are faults.
type fakeHub struct {
	*httptest.Server
	files map[string]string // contents; those over 100 bytes are large files

	mu         sync.Mutex
	hits       map[string]int
	ranges     []string
	tokens     map[string]string // by host
	cut        int               // bytes after which a file's connection breaks, for the first breaks requests
	breaks     int
	noRange    bool
	busyFirst  int // answers 503 so often
	stallAfter int // bytes after which a file's connection brings nothing more, once
	lie        map[string]string
	listing    string // instead of the true one
	status     int
	elsewhere  *httptest.Server // where large files are redirected to
}

func newFakeHub(t *testing.T, files map[string]string) *fakeHub {
	t.Helper()
	h := &fakeHub{files: files, hits: map[string]int{}, tokens: map[string]string{}, lie: map[string]string{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *fakeHub) remote() *Remote {
	return &Remote{Endpoint: h.URL, Pause: time.Millisecond, Stall: 200 * time.Millisecond}
}

func (h *fakeHub) count(path string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hits[path]
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.hits[r.URL.Path]++
	h.tokens[r.Host] = r.Header.Get("Authorization")
	busy := h.busyFirst > 0
	if busy {
		h.busyFirst--
	}
	h.mu.Unlock()
	switch {
	case busy:
		w.Header().Set("Retry-After", "0")
		http.Error(w, "try later", http.StatusServiceUnavailable)
	case h.status != 0:
		http.Error(w, "no", h.status)
	case strings.HasPrefix(r.URL.Path, "/api/models/org/name/revision/"):
		_, _ = w.Write([]byte(h.list()))
	case strings.HasPrefix(r.URL.Path, "/org/name/resolve/"+commit1+"/"):
		name := strings.TrimPrefix(r.URL.Path, "/org/name/resolve/"+commit1+"/")
		if h.elsewhere != nil && len(h.files[name]) > 100 {
			http.Redirect(w, r, h.elsewhere.URL+"/"+name, http.StatusFound)
			return
		}
		h.file(w, r, name)
	default:
		http.NotFound(w, r)
	}
}

func (h *fakeHub) list() string {
	if h.listing != "" {
		return h.listing
	}
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type sibling struct {
		Name   string `json:"rfilename"`
		Size   int    `json:"size"`
		BlobID string `json:"blobId"`
		LFS    *lfs   `json:"lfs,omitempty"`
	}
	var out []sibling
	for name, content := range h.files {
		git := sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(content), content))) //nolint:gosec // git's
		s := sibling{Name: name, Size: len(content), BlobID: hex.EncodeToString(git[:])}
		if len(content) > 100 {
			sum := sha256.Sum256([]byte(content))
			s.LFS = &lfs{hex.EncodeToString(sum[:]), len(content)}
		}
		out = append(out, s)
	}
	data, err := json.Marshal(map[string]any{"sha": commit1, "siblings": out})
	if err != nil {
		panic(err)
	}
	return string(data)
}

func (h *fakeHub) file(w http.ResponseWriter, r *http.Request, name string) {
	content, ok := h.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h.mu.Lock()
	if wrong, ok := h.lie[name]; ok {
		content = wrong
	}
	begin := 0
	if v := r.Header.Get("Range"); v != "" {
		h.ranges = append(h.ranges, name+" "+v)
		if !h.noRange {
			begin, _ = strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(v, "bytes="), "-"))
		}
	}
	body := content[begin:]
	breaks, stall := false, false
	if h.cut > 0 && h.breaks > 0 && len(body) > h.cut {
		h.breaks--
		breaks = true
	}
	if h.stallAfter > 0 && len(body) > h.stallAfter {
		stall, body = true, body[:h.stallAfter]
		h.stallAfter = 0
	}
	h.mu.Unlock()
	w.Header().Set("Content-Length", strconv.Itoa(len(content)-begin))
	if begin > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin, len(content)-1, len(content)))
		w.WriteHeader(http.StatusPartialContent)
	}
	if breaks {
		_, _ = w.Write([]byte(body[:h.cut]))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write([]byte(body))
	if stall {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// modelFiles is a repository with everything that a real one has.
func modelFiles() map[string]string {
	return map[string]string{
		"config.json": `{"model_type": "llama"}`, "tokenizer.json": strings.Repeat("t", 5000), "README.md": "# hi", ".gitattributes": "x",
		"model-00001-of-00002.safetensors": strings.Repeat("a", 40_000), "model-00002-of-00002.safetensors": strings.Repeat("b", 30_000),
		"pytorch_model.bin": strings.Repeat("p", 1000), "original/consolidated.safetensors": strings.Repeat("o", 1000), "sub/extra.json": "{}",
	}
}

func prepared(t *testing.T, s Store, h *fakeHub, name string) *Pull {
	t.Helper()
	ref, err := ParseReference(name)
	require.NoError(t, err)
	p, err := s.Prepare(t.Context(), h.remote(), ref, "main")
	require.NoError(t, err)
	return p
}
