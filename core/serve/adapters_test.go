package serve

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
)

// lawyer is a fake with adapters law and sql.
func lawyer() *fakeEngine {
	e := newFake("x")
	e.adapters = []Adapter{{ID: "law"}, {ID: "sql"}}
	return e
}

func listed(t *testing.T, url string) (out []openai.Card) {
	t.Helper()
	var list struct{ Data []openai.Card }
	require.NoError(t, json.Unmarshal([]byte(do(t, http.MethodGet, url+"/v1/models", "").body), &list))
	return list.Data
}

// As vLLM: an adapter is listed with its parent, and its name in the place of the model's answers with the model and it.
func TestAnAdapterIsChosenByItsNameInThePlaceOfTheModels(t *testing.T) {
	e := lawyer()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"org/lawyer": e})
	cards := listed(t, url)
	require.Len(t, cards, 3)
	require.Equal(t, []string{"org/lawyer", "law", "sql"}, []string{cards[0].ID, cards[1].ID, cards[2].ID})
	require.Equal(t, []string{"", "org/lawyer", "org/lawyer"}, []string{cards[0].Parent, cards[1].Parent, cards[2].Parent})
	require.Contains(t, do(t, http.MethodGet, url+"/v1/models/law", "").body, `"parent":"org/lawyer"`)

	r := post(t, url, `{"model":"law",`+hello+`}`)
	require.Equal(t, 200, r.status, r.body)
	require.Contains(t, r.body, `"model":"law"`)
	require.Equal(t, "law", *e.settings.Adapter, "an adapter's name is no part of a model's")
	require.Contains(t, post(t, url, `{"model":"sql","stream":true,`+hello+`}`).body, `"model":"sql"`)
	require.Equal(t, "sql", *e.settings.Adapter)
	require.Contains(t, do(t, http.MethodPost, url+"/v1/completions", `{"model":"law","prompt":"x"}`).body, `"model":"law"`)
	require.Contains(t, do(t, http.MethodPost, url+"/v1/messages", `{"model":"sql","max_tokens":1,`+hello+`}`).body, `"model":"sql"`)
	require.Equal(t, "sql", *e.settings.Adapter)
	require.Equal(t, 200, do(t, http.MethodPost, url+"/v1/messages/count_tokens", `{"model":"sql",`+hello+`}`).status)
	require.Contains(t, do(t, http.MethodPost, url+"/v1/embeddings", `{"model":"law","input":"x"}`).body, `"model":"law"`)
	require.Equal(t, "law", *e.embedded.Adapter)
	require.Equal(t, 200, post(t, url, `{"model":"lawyer",`+hello+`}`).status)
	require.Nil(t, e.settings.Adapter, "a model's name says nothing of adapters")
}

func TestUnknownNamesAre404NamingThoseThatExist(t *testing.T) {
	e := lawyer()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"base": e})
	for _, r := range []reply{
		post(t, url, `{"model":"med",`+hello+`}`),
		do(t, http.MethodPost, url+"/v1/messages", `{"model":"med","max_tokens":1,`+hello+`}`),
		do(t, http.MethodPost, url+"/v1/embeddings", `{"model":"med","input":"x"}`),
		do(t, http.MethodGet, url+"/v1/models/med", ""),
	} {
		require.Equal(t, 404, r.status, r.body)
		require.Contains(t, r.Error.Message, "med: no such model is served; there are base; adapters: law, sql;")
	}
	e.words, e.err = nil, contract.Errorf(contract.NotFound, "med", "no adapter of this name is loaded; there are law, sql")
	for _, body := range []string{`{"lora":"med",` + hello + `}`, `{"stream":true,"lora":"med",` + hello + `}`} {
		r := post(t, url, body)
		require.Equal(t, 404, r.status, "a stream has not begun")
		require.Equal(t, "not_found", r.Error.Code)
		require.Contains(t, r.Error.Message, "there are law, sql")
	}
}

func TestStacksAreListsOrTexts(t *testing.T) {
	e := lawyer()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"base": e})
	for given, want := range map[string]string{
		`[{"id":"law"},{"id":"sql","scale":0.5}]`: "law+sql:0.5", `[{"scale":-1e-7,"id":"law"}]`: "law:-0.0000001", `[{"id":"law","scale":null}]`: "law",
		`[]`: "none", `"none"`: "none", `"law+sql:0.5"`: "law+sql:0.5",
	} {
		require.Equal(t, 200, post(t, url, `{"lora":`+given+`,`+hello+`}`).status, given)
		require.Equal(t, want, *e.settings.Adapter)
		require.Equal(t, 200, do(t, http.MethodPost, url+"/v1/messages", `{"max_tokens":1,"lora":`+given+`,`+hello+`}`).status, given)
		require.Equal(t, want, *e.settings.Adapter)
		require.Equal(t, 200, do(t, http.MethodPost, url+"/v1/embeddings", `{"input":"x","lora":`+given+`}`).status, given)
		require.Equal(t, want, *e.embedded.Adapter)
	}
	require.Equal(t, 200, post(t, url, `{"lora":null,`+hello+`}`).status)
	require.Nil(t, e.settings.Adapter)
	for given, param := range map[string]string{
		`1`: "lora", `"a b"`: "lora", `""`: "lora", `"law+law"`: "lora", `[{"id":"law"},{"id":"law"}]`: "lora",
		`[{"id":0,"scale":1}]`: "lora[0].id", `[{}]`: "lora[0].id", `[{"id":"none"}]`: "lora[0].id", `[{"id":"law","scale":"x"}]`: "lora[0].scale",
		`[{"id":"law","scale":1e9}]`: "lora[0].scale", `[{"id":"law","x":1}]`: "lora[0].x", `["law"]`: "lora[0]", `[{"id":"law","id":"sql"}]`: "id",
	} {
		r := post(t, url, `{"lora":`+given+`,`+hello+`}`)
		require.Equal(t, 400, r.status, given)
		require.Equal(t, param, *r.Error.Param, given)
		require.Equal(t, 400, do(t, http.MethodPost, url+"/v1/messages", `{"max_tokens":1,"lora":`+given+`,`+hello+`}`).status, given)
	}
	for _, r := range []reply{
		post(t, url, `{"model":"law","lora":"none",`+hello+`}`),
		post(t, url, `{"model":"law","stream":true,"lora":[],`+hello+`}`),
		do(t, http.MethodPost, url+"/v1/embeddings", `{"model":"law","input":"x","lora":"sql"}`),
	} {
		require.Equal(t, 400, r.status)
		require.Equal(t, "lora: the model's name chooses adapter law already; name the model itself beside lora", r.Error.Message)
	}
}

func TestAnAdapterThatTwoModelsHaveNeedsTheModelsName(t *testing.T) {
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"one": lawyer(), "two": lawyer()})
	r := post(t, url, `{"model":"law",`+hello+`}`)
	require.Equal(t, 400, r.status)
	require.Contains(t, r.Error.Message, "have an adapter law; name the model, and the adapter in lora")
	require.Equal(t, 200, post(t, url, `{"model":"two","lora":"law",`+hello+`}`).status)
}

const (
	loadPath   = "/v1/load_lora_adapter"
	unloadPath = "/v1/unload_lora_adapter"
)

func TestClientsLoadNothingUnlessTheServerSaysFromWhere(t *testing.T) {
	e := lawyer()
	_, url := serveFake(t, Options{APIKey: "k"}, map[string]*fakeEngine{"base": e})
	key := func(r *http.Request) { r.Header.Set("Authorization", "Bearer k") }
	for _, path := range []string{loadPath, unloadPath} {
		require.Equal(t, 401, do(t, http.MethodPost, url+path, `{"lora_name":"law"}`).status)
		r := do(t, http.MethodPost, url+path, `{"lora_name":"law","lora_path":"/etc"}`, key)
		require.Equal(t, 403, r.status)
		require.Equal(t, "adapters_not_allowed", r.Error.Code)
		require.Contains(t, r.Error.Message, "--adapter-dir")
	}
	require.Len(t, e.Adapters(), 2)
}

func TestClientsLoadAndUnloadAsWithVLLM(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	real, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	for _, folder := range []string{"med", "other"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "out")))
	for folder, target := range map[string]string{"leak": filepath.Join(elsewhere, "secret"), "turn": "adapters.safetensors", "cache": "../blob"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
		require.NoError(t, os.Symlink(target, filepath.Join(dir, folder, "adapters.safetensors")))
	}
	for _, file := range []string{filepath.Join(elsewhere, "secret"), filepath.Join(dir, "blob")} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	e := newFake("x")
	_, url := serveFake(t, Options{AdapterDir: dir}, map[string]*fakeEngine{"base": e})
	ask := func(path, body string) reply { return do(t, http.MethodPost, url+path, body) }

	r := ask(loadPath, `{"lora_name":"med","lora_path":"med"}`)
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, "Success: LoRA adapter 'med' added successfully.", r.body)
	require.Equal(t, []Adapter{{ID: "med", Path: filepath.Join(real, "med")}}, e.Adapters())
	require.Equal(t, 200, ask(loadPath, `{"lora_name":"half","lora_path":"`+filepath.Join(dir, "other")+`","scale":0.5,"model":"base","load_inplace":false}`).status)
	require.InDelta(t, 0.5, *e.Adapters()[1].Scale, 0)
	require.Equal(t, 200, ask(loadPath, `{"lora_name":"cache","lora_path":"cache"}`).status, "links within are a hub cache's")
	require.Equal(t, 200, ask(unloadPath, `{"lora_name":"cache"}`).status)
	require.Len(t, listed(t, url), 3)
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		`{"lora_name":"med","lora_path":"other"}`:                                    {400, "med: base has an adapter of this name already; unload it, or choose another name"},
		`{"lora_name":"base","lora_path":"med"}`:                                     {400, "base: is the name of a served model"},
		`{"lora_path":"med"}`:                                                        {400, "lora_name: is missing"},
		`{"lora_name":"x"}`:                                                          {400, "lora_path: is missing"},
		`{"lora_name":"x","lora_path":"nowhere"}`:                                    {404, `lora_path: "nowhere" is no folder inside serve.adapter_dir`},
		`{"lora_name":"x","lora_path":".."}`:                                         {404, `lora_path: ".." is no folder`},
		`{"lora_name":"x","lora_path":"med/../../` + filepath.Base(elsewhere) + `"}`: {404, "is no folder inside"},
		`{"lora_name":"x","lora_path":"` + elsewhere + `"}`:                          {404, "is no folder inside"},
		`{"lora_name":"x","lora_path":"out"}`:                                        {404, "is no folder inside"},
		`{"lora_name":"x","lora_path":"file"}`:                                       {404, "is no folder inside"},
		`{"lora_name":"x","lora_path":"med","model":"nobody"}`:                       {404, "no such model is served; there are base; adapters: med, half"},
		`{"lora_name":"x","lora_path":"med","load_inplace":true}`:                    {400, "load_inplace"},
		`{"lora_name":"x","lora_path":"med","lora_int_id":3}`:                        {400, "lora_int_id"},
		`{"lora_name":"x","lora_path":"med"} x`:                                      {400, "something follows"},
		`{"lora_name":"x","lora_path":"leak"}`:                                       {404, `lora_path: "leak": adapters.safetensors is a link to no file inside serve.adapter_dir`},
		`{"lora_name":"x","lora_path":"turn"}`:                                       {404, "is a link to no file inside"},
		`{"lora_name":"x+y","lora_path":"med"}`:                                      {400, `lora_name: "x+y" is no id`},
		`{"lora_name":"x/../y","lora_path":"med"}`:                                   {400, `lora_name: "x/../y" is no id`},
		`{"lora_name":"none","lora_path":"med"}`:                                     {400, `lora_name: "none" is no id`},
		`{"lora_name":"x","lora_path":5}`:                                            {400, "lora_path: is a JSON number, want a text"},
		`{"lora_name":"x","lora_path":"med","scale":"1"}`:                            {400, "scale: is a JSON string, want a number"},
		`[]`: {400, "body: is not a JSON object"},
		``:   {400, "body: is not a JSON object"},
	} {
		r := ask(loadPath, body)
		require.Equal(t, want.status, r.status, "%s: %s", body, r.body)
		require.Contains(t, r.Error.Message, want.says, body)
		require.Equal(t, "invalid_request_error", r.Error.Type)
	}
	e.loadErr = contract.Errorf(contract.ArtifactCorrupt, "adapters.safetensors: model.layers.0.q", "value 3 is not finite")
	r = ask(loadPath, `{"lora_name":"bad","lora_path":"other"}`)
	require.Equal(t, 422, r.status)
	require.Contains(t, r.Error.Message, "model.layers.0.q: value 3 is not finite")
	require.Len(t, listed(t, url), 3, "a refused adapter leaves everything as it was")

	r = ask(unloadPath, `{"lora_name":"med"}`)
	require.Equal(t, 200, r.status)
	require.Equal(t, "Success: LoRA adapter 'med' removed successfully.", r.body)
	require.Equal(t, 404, ask(unloadPath, `{"lora_name":"med"}`).status)
	require.Equal(t, 400, ask(unloadPath, `{}`).status)
	require.Equal(t, 400, ask(unloadPath, `{"lora_name":"half","scale":1}`).status)
	require.Len(t, listed(t, url), 2)
}

// As with vLLM a folder that holds no adapter is 404 and one that is not computed 400; what is damaged is 422, as a damaged model is.
func TestARefusedAdaptersStatusSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for folder, files := range map[string]map[string]string{
		"empty": nil,
		"dora":  {lora.ConfigFile: `{"peft_type":"LORA","r":2,"lora_alpha":1,"use_dora":true}`, lora.PEFTWeights: ""},
		"torn":  {lora.ConfigFile: `{"peft_type":"LORA","r":2,"lora_alpha":1}`, lora.PEFTWeights: "torn"},
	} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, folder, name), []byte(text), 0o600))
		}
	}
	e := newFake("x")
	e.loads = func(a Adapter) error {
		_, err := lora.Open(a.Path)
		return err
	}
	_, url := serveFake(t, Options{AdapterDir: dir}, map[string]*fakeEngine{"base": e})
	for folder, want := range map[string]struct {
		status int
		says   string
	}{"empty": {404, lora.ConfigFile}, "dora": {400, "use_dora"}, "torn": {422, lora.PEFTWeights}} {
		r := do(t, http.MethodPost, url+loadPath, `{"lora_name":"x","lora_path":"`+folder+`"}`)
		require.Equal(t, want.status, r.status, r.body)
		require.Contains(t, r.Error.Message, want.says)
	}
	require.Empty(t, e.Adapters())
}

// A plugin that is killed while it opens a model, or loads an adapter, is followed by another: clients are told to ask again, and
// the next time it works.
func TestWhatAKilledPluginWasOpeningIsToBeAskedForAgain(t *testing.T) {
	killed := contract.Errorf(contract.PluginCrashed, "universal", "the plugin's process was killed from outside (SIGKILL)")
	e, openings := newFake("x"), 0
	s, err := New(Options{KeepAlive: -1}, []Served{{Name: "base", Open: func(context.Context) (Engine, error) {
		if openings++; openings <= 2 {
			return nil, killed
		}
		return e, nil
	}}})
	require.NoError(t, err)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() { h.Close(); s.registry.close(context.Background()) })
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		r := do(t, http.MethodPost, h.URL+path, `{"max_tokens":1,`+hello+`}`)
		require.Equal(t, http.StatusServiceUnavailable, r.status, r.body)
		require.Equal(t, "1", r.header.Get("Retry-After"))
		require.Contains(t, r.Error.Message, "base: cannot be opened now: universal: the plugin's process was killed from outside (SIGKILL); try again")
	}
	require.Equal(t, 200, do(t, http.MethodPost, h.URL+"/v1/messages", `{"max_tokens":1,`+hello+`}`).status)
}

// What was loaded is there again when the model is opened anew, and listed while it is not; what cannot be loaded then is dropped.
func TestAModelThatIsOpenedAnewHasWhatWasLoaded(t *testing.T) {
	s := newShelf(t, -1, "base")
	require.NoError(t, s.loadAdapter(t.Context(), "", Adapter{ID: "a", Path: "/a"}))
	require.NoError(t, s.loadAdapter(t.Context(), "base", Adapter{ID: "b", Path: "/b"}))
	require.True(t, s.stop(s.find("base"), time.Second))
	require.Len(t, s.List(), 3, "listed while it is closed")
	require.NoError(t, s.unloadAdapter(t.Context(), "", "b"), "and unloaded without opening")
	_, n := s.last("base")
	require.Equal(t, 1, n)
	_, card, release, err := s.Get(t.Context(), "a")
	require.NoError(t, err)
	release()
	require.Equal(t, "a", card.ID)
	e, n := s.last("base")
	require.Equal(t, 2, n)
	require.Equal(t, []Adapter{{ID: "a", Path: "/a"}}, e.Adapters())

	require.True(t, s.stop(s.find("base"), time.Second))
	open := s.find("base").open
	s.find("base").open = func(ctx context.Context) (Engine, error) {
		e, err := open(ctx)
		e.(*fakeEngine).loadErr = contract.Errorf(contract.ArtifactCorrupt, "a", "damaged")
		return e, err
	}
	s.use(t, "base")()
	require.Len(t, s.List(), 1)
	_, _, _, err = s.Get(t.Context(), "a")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
}

func TestAnUpdatedPluginHasWhatWasLoaded(t *testing.T) {
	u := newUpdated(t, true)
	_, release, err := u.lease(t.Context(), u.find("m"))
	require.NoError(t, err)
	release()
	require.NoError(t, u.loadAdapter(t.Context(), "m", Adapter{ID: "a", Path: "/a"}))
	u.version.Store(2)
	require.Eventually(t, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.engines) == 2 && len(u.engines[1].Adapters()) == 1
	}, soon, time.Millisecond)
}

func TestWhatAModelIsOpenedWithStays(t *testing.T) {
	r, err := newRegistry([]Served{{Name: "m", Adapters: []Adapter{{ID: "a"}}, Open: func(context.Context) (Engine, error) { return newFake("x"), nil }}}, -1, 4, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer r.close(context.Background())
	require.Len(t, r.List(), 2, "also before it is opened")
	err = r.unloadAdapter(t.Context(), "", "a")
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.ErrorContains(t, err, "m is opened with it")
	_, err = newRegistry([]Served{{Name: "a", Adapters: []Adapter{{ID: "a"}}}}, -1, 4, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "a is the name of a served model too")
}

func TestTheCommandLineLoadsFromAnyFolder(t *testing.T) {
	e := newFake("x")
	c, _ := published(t, t.TempDir(), Options{}, e)
	require.NoError(t, c.LoadAdapter(t.Context(), "", admin.Adapter{ID: "a", Path: "/anywhere"}))
	list, err := c.Running(t.Context())
	require.NoError(t, err)
	require.Equal(t, []admin.Adapter{{ID: "a", Path: "/anywhere"}}, list[0].Adapters)
	err = c.LoadAdapter(t.Context(), "", admin.Adapter{ID: "a", Path: "/anywhere"})
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.NoError(t, c.UnloadAdapter(t.Context(), "", "a"))
	require.Equal(t, contract.NotFound, contract.KindOf(c.UnloadAdapter(t.Context(), "", "a")))
}

func TestMetricsSayWhichAdaptersRequestsChose(t *testing.T) {
	e := lawyer()
	e.hold = make(chan struct{})
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"m": e})
	done := make(chan reply, 1)
	go func() { done <- post(t, url, `{"lora":"sql+law:0.5",`+hello+`}`) }()
	idle := `vllm:lora_requests_info{model_name="m",max_lora="2",waiting_lora_adapters="",running_lora_adapters=""} `
	running := `vllm:lora_requests_info{model_name="m",max_lora="2",waiting_lora_adapters="",running_lora_adapters="law,sql"} `
	scrape := func() string { return do(t, http.MethodGet, url+"/metrics", "").body }
	require.Eventually(t, func() bool { return strings.Contains(scrape(), running) }, soon, 5*time.Millisecond)
	close(e.hold)
	require.Equal(t, 200, (<-done).status)
	require.Contains(t, scrape(), idle)
}
