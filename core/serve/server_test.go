package serve

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

type reply struct {
	status int
	body   string
	header http.Header
	Error  struct {
		Message, Type, Code string
		Param               *string
	}
}

func post(t *testing.T, url, body string, edit ...func(*http.Request)) reply {
	t.Helper()
	return do(t, http.MethodPost, url+"/v1/chat/completions", body, edit...)
}

func do(t *testing.T, method, url, body string, edit ...func(*http.Request)) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, e := range edit {
		e(r)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	out := reply{status: res.StatusCode, body: string(data), header: res.Header}
	_ = json.Unmarshal(data, &out)
	return out
}

const hello = `"messages":[{"role":"user","content":"hi"}]`

func TestNoFieldIsIgnored(t *testing.T) {
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": newFake("x")})
	tests := []struct{ body, param string }{
		{`{"n":0,` + hello + `}`, "n"},
		{`{"n":17,` + hello + `}`, "n"},
		{`{"num_ctx":1,` + hello + `}`, "num_ctx"},
		{`{"response_format":{"type":"xml"},` + hello + `}`, "response_format.type"},
		{`{"tools":[{"type":"function"}],` + hello + `}`, "tools[0].function"},
		{`{"tools":[{"type":"web_search"}],` + hello + `}`, "tools[0].type"},
		{`{"tools":[{"type":"function","function":{"name":"f","strict":1}}],` + hello + `}`, "tools[0].function.strict"},
		{`{"tools":[{"type":"function","function":{"name":"f","parameters":[]}}],` + hello + `}`, "tools[0].function.parameters"},
		{`{"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}],` + hello + `}`, "tools"},
		{`{"tool_choice":"required",` + hello + `}`, "tool_choice"},
		{`{"tool_choice":{"type":"function","function":{"name":"g"}},"tools":[{"type":"function","function":{"name":"f"}}],` + hello + `}`, "tool_choice"},
		{`{"tool_choice":"sometimes",` + hello + `}`, "tool_choice"},
		{`{"parallel_tool_calls":1,` + hello + `}`, "parallel_tool_calls"},
		{`{"reasoning_effort":3,` + hello + `}`, "reasoning_effort"},
		{`{"messages":[{"role":"user","content":"x","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}`, "messages[0].tool_calls"},
		{`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}]}`, "messages[0].tool_calls[0].function"},
		{`{"messages":[{"role":"assistant","content":null}]}`, "messages[0].content"},
		{`{"store":true,` + hello + `}`, "store"},
		{`{"service_tier":"priority",` + hello + `}`, "service_tier"},
		{`{"stream_options":{"include_usage":true},` + hello + `}`, "stream_options"},
		{`{"stream":true,"stream_options":{"x":true},` + hello + `}`, "stream_options.x"},
		{`{"top_logprobs":3,` + hello + `}`, "top_logprobs"},
		{`{"logprobs":true,"top_logprobs":21,` + hello + `}`, "top_logprobs"},
		{`{"temperature":"warm",` + hello + `}`, "temperature"},
		{`{"temperature":-1,` + hello + `}`, "temperature"},
		{`{"max_tokens":0,` + hello + `}`, "max_tokens"},
		{`{"max_tokens":-5,` + hello + `}`, "max_tokens"},
		{`{"max_tokens":1.5,` + hello + `}`, "max_tokens"},
		{`{"logit_bias":{"x":1},` + hello + `}`, "logit_bias"},
		{`{"logit_bias":{"5":101},` + hello + `}`, "logit_bias"},
		{`{"stop":[""],` + hello + `}`, "stop"},
		{`{"seed":"a",` + hello + `}`, "seed"},
		{`{"temperature":1,"temperature":0,` + hello + `}`, "temperature"},
		{`{"messages":[]}`, "messages"},
		{`{}`, "messages"},
		{`{"messages":[{"role":"user"}]}`, "messages[0].content"},
		{`{"messages":[{"role":"tool","content":"x"}]}`, "messages[0].tool_call_id"},
		{`{"messages":[{"role":"alien","content":"x"}]}`, "messages[0].role"},
		{`{"messages":[{"role":"user","content":"x","cache_control":{}}]}`, "messages[0].cache_control"},
		{`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, "messages[0].content[0].type"},
		{`{"messages":[{"role":"user","content":[{"type":"text","text":"a","x":1}]}]}`, "messages[0].content[0].x"},
		{`[]`, "body"},
		{`{`, "body"},
		{`{` + hello + `} x`, "body"},
	}
	for _, tt := range tests {
		t.Run(tt.body, func(t *testing.T) {
			r := post(t, url, tt.body)
			require.Equal(t, http.StatusBadRequest, r.status, r.body)
			require.NotNil(t, r.Error.Param, r.body)
			require.Equal(t, tt.param, *r.Error.Param)
			require.Equal(t, "invalid_request_error", r.Error.Type)
		})
	}
}

func TestFieldsThatAskForNothingAreAccepted(t *testing.T) {
	engine := newFake("x")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	r := post(t, url, `{"user":"u","metadata":{"a":"b"},"store":false,"service_tier":"auto","n":1,"tools":[],"tool_choice":"none",
		"response_format":{"type":"text"},"temperature":null,`+
		`"max_tokens":9,"max_completion_tokens":5,"chat_template_kwargs":{"enable_thinking":false},
		"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":"c","refusal":null,"tool_calls":null}]}`)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.EqualValues(t, 5, *engine.settings.MaxTokens, "max_completion_tokens beats max_tokens")
	require.Nil(t, engine.settings.Temperature)
	require.Equal(t, "ab", engine.messages[0]["content"])
	require.Equal(t, "system", engine.messages[0]["role"])
	require.Equal(t, map[string]any{"enable_thinking": false}, engine.kwargs)
	require.Equal(t, http.StatusBadRequest, post(t, url, `{"foo":null,`+hello+`}`).status, "null does not make an unknown field known")
}

func TestPromptOverTheContextIs400WithLimitAndCount(t *testing.T) {
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": newFake("x")})
	r := post(t, url, `{"messages":[{"role":"user","content":"too long"}]}`)
	require.Equal(t, http.StatusBadRequest, r.status)
	require.Equal(t, "context_length_exceeded", r.Error.Code)
	require.Contains(t, r.Error.Message, "5000")
	require.Contains(t, r.Error.Message, "4096")
}

func TestModelIsNamedOrTheOnlyOne(t *testing.T) {
	_, one := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": newFake("x")})
	require.Equal(t, http.StatusOK, post(t, one, `{`+hello+`}`).status)
	r := post(t, one, `{"model":"gpt-4o",`+hello+`}`)
	require.Equal(t, http.StatusNotFound, r.status)
	require.Equal(t, "model_not_found", r.Error.Code)
	_, two := serveFake(t, Options{}, map[string]*fakeEngine{"org/tiny": newFake("x"), "org/huge": newFake("y")})
	require.Equal(t, http.StatusBadRequest, post(t, two, `{`+hello+`}`).status)
	require.Contains(t, post(t, two, `{"model":"huge",`+hello+`}`).body, `"model":"org/huge"`)
	require.Equal(t, http.StatusOK, do(t, http.MethodGet, two+"/v1/models/org/tiny", "").status)
	require.Equal(t, http.StatusNotFound, do(t, http.MethodGet, two+"/v1/models/org/none", "").status)
}

func TestKeyHostOriginAndSizeAreGuarded(t *testing.T) {
	_, url := serveFake(t, Options{APIKey: "secret", AllowedHosts: []string{"box.example"}, MaxRequestBytes: 100}, map[string]*fakeEngine{"tiny": newFake("x")})
	bearer := func(key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) }
	}
	host := func(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }
	body := `{` + hello + `}`
	require.Equal(t, 401, post(t, url, body).status)
	require.Equal(t, 401, post(t, url, body, bearer("secret2")).status)
	require.Equal(t, 200, post(t, url, body, bearer("secret")).status)
	require.Equal(t, 200, post(t, url, body, func(r *http.Request) { r.Header.Set("X-Api-Key", "secret") }).status)
	require.Equal(t, 200, do(t, http.MethodGet, url+"/health", "").status, "health needs no key")
	require.Equal(t, 403, post(t, url, body, bearer("secret"), host("rebound.attacker.example")).status)
	require.Equal(t, 200, post(t, url, body, bearer("secret"), host("BOX.example:8080")).status)
	require.Equal(t, 200, post(t, url, body, bearer("secret"), host("localhost:1")).status)
	require.Equal(t, 403, post(t, url, body, bearer("secret"), func(r *http.Request) { r.Header.Set("Origin", "https://attacker.example") }).status)
	r := post(t, url, `{"user":"`+strings.Repeat("x", 200)+`",`+hello+`}`, bearer("secret"))
	require.Equal(t, 413, r.status)
	r = do(t, http.MethodGet, url+"/v1/chat/completions", "", bearer("secret"))
	require.Equal(t, 405, r.status)
	require.Equal(t, "POST", r.header.Get("Allow"))
	require.Equal(t, "method_not_allowed", r.Error.Code)
	require.Equal(t, "not_found", do(t, http.MethodPost, url+"/v1/nothing", "", bearer("secret")).Error.Code)
}

func TestReachableAddressNeedsAKeyOrTheFlagThatSaysSo(t *testing.T) {
	models := []Served{{Name: "m"}}
	for _, host := range []string{"0.0.0.0", "::", "192.168.1.2", "example.org"} {
		_, err := New(Options{Host: host}, models)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), host)
		_, err = New(Options{Host: host, APIKey: "k"}, models)
		require.NoError(t, err)
		_, err = New(Options{Host: host, InsecureNoAuth: true}, models)
		require.NoError(t, err)
	}
	for _, host := range []string{"", "127.0.0.1", "::1", "localhost", "127.8.8.8"} {
		_, err := New(Options{Host: host}, models)
		require.NoError(t, err, host)
	}
}

func TestHealthFailsWhileAnEngineIsDeadAndRecovers(t *testing.T) {
	engine := newFake("x")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	require.Equal(t, 200, do(t, http.MethodGet, url+"/health", "").status)
	engine.die(contract.Errorf(contract.PluginCrashed, "universal", "cannot start"))
	require.Eventually(t, func() bool { return do(t, http.MethodGet, url+"/health", "").status == 503 }, soon, 10*time.Millisecond)
	require.Eventually(t, func() bool { return engine.restarts.Load() > 0 }, soon, 10*time.Millisecond)
	require.Contains(t, do(t, http.MethodGet, url+"/health", "").body, "cannot start")
	engine.mu.Lock()
	engine.readyErr = nil
	engine.mu.Unlock()
	require.Eventually(t, func() bool { return do(t, http.MethodGet, url+"/health", "").status == 200 }, soon, 20*time.Millisecond)
}

func TestClientThatLeavesCancelsItsRequest(t *testing.T) {
	engine := newFake("a", "b")
	engine.hold = make(chan struct{})
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"stream":true,`+hello+`}`))
	require.NoError(t, err)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	require.NoError(t, err)
	_, err = res.Body.Read(make([]byte, 10))
	require.NoError(t, err)
	cancel()
	_ = res.Body.Close()
	require.Eventually(t, func() bool { return engine.cancels.Load() == 1 }, soon, 5*time.Millisecond)
}

// runServer starts a server that listens, and returns its address, its end and what stops it.
func runServer(t *testing.T, o Options, engine *fakeEngine) (url string, stop context.CancelFunc, ended chan error) {
	t.Helper()
	addr := make(chan net.Addr, 1)
	o.Listening = func(a net.Addr) { addr <- a }
	if o.KeepAlive == 0 {
		o.KeepAlive = -1
	}
	s, err := New(o, []Served{{Name: "tiny", Open: func(context.Context) (Engine, error) { return engine, nil }}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return "http://" + (<-addr).String(), cancel, ended
}

func TestDrainFinishesRunningRequestsAndRefusesNewOnes(t *testing.T) {
	engine := newFake("a", "b")
	engine.hold = make(chan struct{})
	url, stop, ended := runServer(t, Options{DrainTimeout: 10 * time.Second}, engine)
	answered := make(chan reply, 1)
	go func() { answered <- post(t, url, `{`+hello+`}`) }()
	require.Eventually(t, func() bool { return engine.asked.Load() }, soon, time.Millisecond)
	stop()
	require.Eventually(t, func() bool { return do(t, http.MethodGet, url+"/health", "").status == 503 }, soon, 5*time.Millisecond)
	require.Equal(t, 503, post(t, url, `{`+hello+`}`).status)
	close(engine.hold)
	r := <-answered
	require.Equal(t, 200, r.status, r.body)
	require.Contains(t, r.body, `"content":"ab"`)
	require.NoError(t, <-ended)
	require.True(t, engine.closed.Load())
}

func TestDrainTimeoutEndsWhatStillRuns(t *testing.T) {
	engine := newFake("a", "b")
	engine.hold = make(chan struct{})
	url, stop, ended := runServer(t, Options{DrainTimeout: 50 * time.Millisecond}, engine)
	answered := make(chan reply, 1)
	go func() { answered <- post(t, url, `{"stream":true,`+hello+`}`) }()
	require.Eventually(t, func() bool { return engine.asked.Load() }, soon, time.Millisecond)
	time.Sleep(20 * time.Millisecond)
	stop()
	require.Contains(t, (<-answered).body, `"code":"unavailable"`)
	require.Equal(t, contract.Unavailable, contract.KindOf(<-ended))
}

func TestStreamOutlivesTheTimeThatABodyGets(t *testing.T) {
	engine := newFake("a", "b")
	engine.hold = make(chan struct{})
	s, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	s.bodyTime = 300 * time.Millisecond // a loaded machine may not read at once
	answered := make(chan reply, 1)
	go func() { answered <- post(t, url, `{"stream":true,`+hello+`}`) }()
	require.Eventually(t, engine.asked.Load, soon, time.Millisecond)
	time.Sleep(2 * s.bodyTime)
	close(engine.hold)
	require.Contains(t, (<-answered).body, "[DONE]")
}

func TestBodyThatNeverEndsIsGivenUp(t *testing.T) {
	s, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": newFake("x")})
	s.bodyTime = 50 * time.Millisecond
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "400 Bad Request")
}
