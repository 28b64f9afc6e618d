package hub

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func none(Progress) {}

func TestAPulledModelLiesInTheStandardCacheLayout(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	var last Progress
	var mu sync.Mutex
	m, err := prepared(t, s, h, "org/name").Run(t.Context(), func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		if p.Done > last.Done {
			last = p
		}
	})
	require.NoError(t, err)
	require.Equal(t, last.Total, last.Done)
	folder := filepath.Join(s.HFCache, "models--org--name")
	require.Equal(t, Model{ID: "org/name", Path: filepath.Join(folder, "snapshots", commit1), Source: SourceHF}, m)
	ref, err := os.ReadFile(filepath.Join(folder, "refs", "main"))
	require.NoError(t, err)
	require.Equal(t, commit1, string(ref))
	for name, content := range h.files {
		data, err := os.ReadFile(filepath.Join(m.Path, name))
		if strings.HasSuffix(name, ".bin") || strings.HasPrefix(name, "original/") || strings.HasSuffix(name, ".md") || strings.HasPrefix(name, ".") {
			require.Error(t, err, "%s is of no use to us", name)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, content, string(data))
		target, err := os.Readlink(filepath.Join(m.Path, name))
		require.NoError(t, err)
		require.Contains(t, target, "../../blobs/")
	}
	found, err := s.Resolve("name")
	require.NoError(t, err)
	require.Equal(t, m, found)

	before := h.count("/org/name/resolve/" + commit1 + "/config.json")
	_, err = prepared(t, s, h, "org/name").Run(t.Context(), none)
	require.NoError(t, err)
	require.Equal(t, before, h.count("/org/name/resolve/"+commit1+"/config.json"), "nothing is brought twice")
}

func TestABrokenDownloadGoesOnWhereItEnded(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	h.cut, h.breaks = 7_000, 12
	m, err := prepared(t, s, h, "org/name").Run(t.Context(), none)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(m.Path, "model-00001-of-00002.safetensors"))
	require.NoError(t, err)
	require.Equal(t, h.files["model-00001-of-00002.safetensors"], string(data))
	require.NotEmpty(t, h.ranges)
}

func TestAnInterruptedPullIsContinuedByTheNext(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	h.cut, h.breaks = 10_000, 1_000
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	_, err := prepared(t, s, h, "org/name").Run(ctx, func(p Progress) {
		if p.Done > 20_000 {
			once.Do(cancel)
		}
	})
	require.Equal(t, contract.Cancelled, contract.KindOf(err))
	list, err := s.List()
	require.NoError(t, err)
	require.Empty(t, list, "half a model is none")
	h.mu.Lock()
	h.breaks, h.ranges = 0, nil
	h.mu.Unlock()
	_, err = prepared(t, s, h, "org/name").Run(t.Context(), none)
	require.NoError(t, err)
	require.NotEmpty(t, h.ranges, "what had come was kept")
}

func TestPartialBytesOfAnotherFileAreNotBelieved(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	p := prepared(t, s, h, "org/name")
	blobs := filepath.Join(s.HFCache, "models--org--name", "blobs")
	require.NoError(t, os.MkdirAll(blobs, 0o755))
	for _, f := range p.Files {
		require.NoError(t, os.WriteFile(filepath.Join(blobs, f.etag()+incomplete), []byte("garbage"), 0o644))
	}
	m, err := p.Run(t.Context(), none)
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(m.Path, "tokenizer.json"))
	require.NoError(t, err)
	require.Equal(t, h.files["tokenizer.json"], string(data))
}

func TestAHubThatIgnoresRangesIsStillContinued(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	h.cut, h.breaks, h.noRange = 20_000, 2, true
	_, err := prepared(t, s, h, "org/name").Run(t.Context(), none)
	require.NoError(t, err)
}

func TestAStalledConnectionIsGivenUpAndTriedAgain(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	h.stallAfter = 10_000
	begun := time.Now()
	_, err := prepared(t, s, h, "org/name").Run(t.Context(), none)
	require.NoError(t, err)
	require.Less(t, time.Since(begun), 10*time.Second)
}

func TestABusyHubIsAskedAgain(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	h.busyFirst = 3
	_, err := prepared(t, s, h, "org/name").Run(t.Context(), none)
	require.NoError(t, err)
	h.busyFirst = 100
	ref, _ := ParseReference("org/name")
	_, err = s.Prepare(t.Context(), h.remote(), ref, "main")
	require.Equal(t, contract.Unavailable, contract.KindOf(err))
	require.ErrorContains(t, err, "the hub answers 503")
	require.ErrorContains(t, err, "run the same command again")
}

func TestChangedBytesAreRefusedAndNothingIsKept(t *testing.T) {
	for _, name := range []string{"config.json", "tokenizer.json"} {
		h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
		h.lie[name] = strings.Repeat("z", len(h.files[name]))
		_, err := prepared(t, s, h, "org/name").Run(t.Context(), none)
		require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
		require.ErrorContains(t, err, "org/name/"+name)
		require.ErrorContains(t, err, "has digest")
		list, err := s.List()
		require.NoError(t, err)
		require.Empty(t, list)
	}
}

func TestTheTokenStaysWithTheHub(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	other := newFakeHub(t, h.files)
	other.Config.Handler = other
	h.elsewhere = httptest.NewServer(httpFile{other})
	t.Cleanup(h.elsewhere.Close)
	r := h.remote()
	r.Token = "hf_secret"
	ref, _ := ParseReference("org/name")
	// The redirect goes to another port of the same address, which Go counts as the same host; a name makes it another.
	r.Endpoint = strings.Replace(h.URL, "127.0.0.1", "localhost", 1)
	p, err := s.Prepare(t.Context(), r, ref, "main")
	require.NoError(t, err)
	_, err = p.Run(t.Context(), none)
	require.NoError(t, err)
	require.Equal(t, "Bearer hf_secret", h.tokens[strings.TrimPrefix(r.Endpoint, "http://")])
	require.Equal(t, "", other.tokens[strings.TrimPrefix(h.elsewhere.URL, "http://")])
	require.NotEmpty(t, other.tokens)
}

func TestATokenIsNotSentInTheClear(t *testing.T) {
	t.Setenv("HF_ENDPOINT", "http://hub.example")
	t.Setenv("HF_TOKEN", "hf_secret")
	_, err := RemoteFromEnv()
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.ErrorContains(t, err, "not encrypted")
	require.NotContains(t, err.Error(), "hf_secret")
}

func TestTheTokenFileOfTheHubsToolsIsRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN"} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_HOME", dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("hf_file\n"), 0o600))
	r, err := RemoteFromEnv()
	require.NoError(t, err)
	require.Equal(t, "hf_file", r.Token)
	require.Equal(t, DefaultEndpoint, r.Endpoint)
}

func TestOfflineAsksNobody(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	r := h.remote()
	r.Offline = true
	ref, _ := ParseReference("org/name")
	_, err := s.Prepare(t.Context(), r, ref, "main")
	require.Equal(t, contract.Unavailable, contract.KindOf(err))
	require.ErrorContains(t, err, "offline")
	require.Empty(t, h.hits)
}

func TestTheHubsRefusalsSayWhatToDo(t *testing.T) {
	for status, want := range map[int]string{401: "set HF_TOKEN", 403: "set HF_TOKEN", 404: "no such model", 418: "answers 418"} {
		h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
		h.status = status
		ref, _ := ParseReference("org/name")
		_, err := s.Prepare(t.Context(), h.remote(), ref, "main")
		require.ErrorContains(t, err, want)
	}
}

func TestTwoPullsAtOnceBringEachFileOnce(t *testing.T) {
	h, s := newFakeHub(t, modelFiles()), Store{HFCache: t.TempDir()}
	var wg sync.WaitGroup
	for range 2 {
		p := prepared(t, s, h, "org/name")
		wg.Go(func() {
			_, err := p.Run(context.Background(), none)
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.Equal(t, 1, h.count("/org/name/resolve/"+commit1+"/tokenizer.json"))
}

func TestListingsThatLieAreRefused(t *testing.T) {
	file := func(fields string) string { return `{"sha": "` + commit1 + `", "siblings": [{` + fields + `}]}` }
	good := `"size": 3, "blobId": "` + commit1 + `"`
	for _, tt := range []struct{ name, listing, want string }{
		{"no JSON", `<html>`, "listing"},
		{"no commit", `{"sha": "../../x", "siblings": []}`, "is not a commit"},
		{"a path out", file(`"rfilename": "../../x.json", ` + good), "is not a file name"},
		{"an absolute path", file(`"rfilename": "/etc/x.json", ` + good), "is not a file name"},
		{"a backslash", file(`"rfilename": "a\\..\\x.json", ` + good), "is not a file name"},
		{"a control character", file(`"rfilename": "a\u0001.json", ` + good), "is not a file name"},
		{"no size", file(`"rfilename": "a.json", "blobId": "` + commit1 + `"`), "has no size"},
		{"a negative size", file(`"rfilename": "a.json", "size": -1, "blobId": "` + commit1 + `"`), "has no size"},
		{"a digest that is a path", file(`"rfilename": "a.json", "size": 3, "blobId": "../../../../../../../../../../etc/passwd00"`), "has no digest"},
		{"twice", `{"sha": "` + commit1 + `", "siblings": [{"rfilename": "a.json", ` + good + `}, {"rfilename": "a.json", ` + good + `}]}`, "twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readListing("org/name", "main", []byte(tt.listing))
			require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"sha": "` + commit1 + `", "siblings": [{"rfilename": "a/b.json", "size": 3, "blobId": "` + commit1 + `"}]}`))
	f.Add([]byte(`{"sha": "x", "siblings": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		repo, err := readListing("org/name", "main", data)
		if err != nil {
			return
		}
		for _, file := range repo.Files {
			require.True(t, filepath.IsLocal(filepath.FromSlash(file.Path)))
			require.GreaterOrEqual(t, file.Size, int64(0))
		}
	})
}

// httpFile serves a fake hub's files by their bare names, as a storage server would.
type httpFile struct{ *fakeHub }

func (f httpFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.tokens[r.Host] = r.Header.Get("Authorization")
	f.mu.Unlock()
	f.file(w, r, strings.TrimPrefix(r.URL.Path, "/"))
}
