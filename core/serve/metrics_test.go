package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/serve/trace"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // a test
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestMetricsCountRequestsUnderVLLMsNames(t *testing.T) {
	e := newFake("a", "b", "c")
	e.drafts = true
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"m": e})
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model": "m", "messages": [{"role": "user", "content": "hi"}], "speculative.n_max": 3}`)) //nolint:noctx // a test
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(answer), `"completion_tokens_details":{"accepted_prediction_tokens":4,"rejected_prediction_tokens":2}`)
	require.NoError(t, resp.Body.Close())
	status, body := get(t, url+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, line := range []string{
		`vllm:num_requests_running{model_name="m"} 2`, `vllm:num_requests_waiting{model_name="m"} 3`,
		`vllm:prompt_tokens_total{model_name="m"} 3`, `vllm:generation_tokens_total{model_name="m"} 3`,
		`vllm:request_success_total{model_name="m",finished_reason="stop"} 1`,
		`vllm:time_to_first_token_seconds_count{model_name="m"} 1`, `vllm:inter_token_latency_seconds_count{model_name="m"} 2`,
		`vllm:time_to_first_token_seconds_bucket{model_name="m",le="+Inf"} 1`, `vllm:e2e_request_latency_seconds_count{model_name="m"} 1`,
		`vllm:spec_decode_num_drafts_total{model_name="m"} 2`, `vllm:spec_decode_num_draft_tokens_total{model_name="m"} 6`,
		`vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 4`,
		`vllm:request_queue_time_seconds_count{model_name="m"} 1`, `vllm:request_prompt_tokens_sum{model_name="m"} 3`,
		`vllm:kv_cache_usage_perc{model_name="m"} 0.25`, `vllm:num_preemptions_total{model_name="m"} 6`,
		`clade:prefill_tokens_per_second{model_name="m"} 400`, `clade:decode_tokens_per_second{model_name="m"} 50`,
		`clade:failed_evaluations{model_name="m"} 1`, `clade:peak_bytes{model_name="m"} 8192`,
		`clade:resident_bytes{model_name="m"} 4096`, `clade:up{model_name="m"} 1`, "go_goroutines",
	} {
		require.Contains(t, body, line)
	}
}

// What a request did reaches the collector that OTEL_ variables name, under the caller's trace; texts do not.
func TestARequestIsTracedUnderItsCallersTrace(t *testing.T) {
	bodies := make(chan string, 4)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- r.URL.Path + " " + r.Header.Get("X-Key") + " " + string(body)
	}))
	defer collector.Close()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_EXPORTER_OTLP_HEADERS": "X-Key=a%20b"}
	tracer, err := trace.FromEnv(func(k string) string { return env[k] }, "1.2.3")
	require.NoError(t, err)
	_, url := serveFake(t, Options{Tracer: tracer}, map[string]*fakeEngine{"m": newFake("secret", "b", "c")})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions",
		strings.NewReader(`{"model": "m", "messages": [{"role": "user", "content": "secret"}]}`))
	require.NoError(t, err)
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	_, scraped := get(t, url+"/metrics")
	require.Contains(t, scraped, "clade:trace_spans_dropped_total 0")
	tracer.Close()
	got := <-bodies
	require.True(t, strings.HasPrefix(got, "/v1/traces a b {"), got)
	for _, part := range []string{
		`"traceId":"0af7651916cd43dd8448eb211c80319c"`, `"parentSpanId":"b7ad6b7169203331"`, `"name":"generate m"`,
		`{"key":"gen_ai.usage.output_tokens","value":{"intValue":"3"}}`, `{"key":"service.name","value":{"stringValue":"clade"}}`,
		`{"key":"service.version","value":{"stringValue":"1.2.3"}}`,
	} {
		require.Contains(t, got, part)
	}
	require.NotContains(t, got, "secret")
}

func TestMetricsCountTheSpansThatACollectorDoesNotTake(t *testing.T) {
	collector := httptest.NewServer(http.NotFoundHandler())
	defer collector.Close()
	tracer, err := trace.FromEnv(func(k string) string { return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL}[k] }, "1.2.3")
	require.NoError(t, err)
	_, url := serveFake(t, Options{Tracer: tracer}, map[string]*fakeEngine{"m": newFake("a")})
	require.Equal(t, 200, post(t, url, `{`+hello+`}`).status)
	tracer.Close()
	_, scraped := get(t, url+"/metrics")
	require.Contains(t, scraped, "clade:trace_spans_dropped_total 1")
	_, plain := serveFake(t, Options{}, map[string]*fakeEngine{"m": newFake("a")})
	_, scraped = get(t, plain+"/metrics")
	require.NotContains(t, scraped, "clade:trace_spans", "no collector, no count")
}

func TestHealthFailsWithinTwoSecondsOfAStuckEngine(t *testing.T) {
	e := newFake("a")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"m": e})
	status, _ := get(t, url+"/health")
	require.Equal(t, http.StatusOK, status)
	e.stuck.Store(true)
	begun := time.Now()
	status, body := get(t, url+"/health")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Less(t, time.Since(begun), 2*time.Second)
	require.Contains(t, body, "deadline exceeded")
}
