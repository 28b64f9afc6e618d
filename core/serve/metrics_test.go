package serve

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		`clade:resident_bytes{model_name="m"} 4096`, `clade:up{model_name="m"} 1`, "go_goroutines",
	} {
		require.Contains(t, body, line)
	}
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
