package trace

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m["OTEL_"+pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

func TestNothingIsTracedUnlessACollectorIsNamed(t *testing.T) {
	for _, e := range []func(string) string{
		env(), env("SERVICE_NAME", "x"), env("TRACES_EXPORTER", "none", "EXPORTER_OTLP_ENDPOINT", "http://h:1"),
		env("SDK_DISABLED", "true", "TRACES_EXPORTER", "otlp"), env("TRACES_EXPORTER", "otlp", "TRACES_SAMPLER", "always_off"),
	} {
		tracer, err := FromEnv(e, "1")
		require.NoError(t, err)
		require.Nil(t, tracer)
	}
	var none *Tracer
	none.Record(context.Background(), Request{})
	none.Close()
	require.Zero(t, none.Dropped())
}

func TestVariablesThatAreNotHonouredAreRefused(t *testing.T) {
	for _, pairs := range [][]string{
		{"TRACES_EXPORTER", "zipkin"},
		{"EXPORTER_OTLP_ENDPOINT", "collector:4317"},
		{"EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"EXPORTER_OTLP_COMPRESSION", "gzip"},
		{"TRACES_SAMPLER", "traceidratio"},
		{"EXPORTER_OTLP_HEADERS", "nothing"},
		{"EXPORTER_OTLP_TIMEOUT", "10s"},
		{"BSP_MAX_QUEUE_SIZE", "0"},
	} {
		_, err := FromEnv(env(append([]string{"TRACES_EXPORTER", "otlp"}, pairs...)...), "1")
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), "%v", pairs)
		require.ErrorContains(t, err, "OTEL_"+pairs[0])
	}
}

func TestAParentIsReadAsTheTraceContextSays(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for text, want := range map[string]bool{
		"00-" + trace + "-" + span + "-01": true, "00-" + trace + "-" + span + "-00": true, "01-" + trace + "-" + span + "-01-more": true,
		"": false, "00-" + trace + "-" + span: false, "ff-" + trace + "-" + span + "-01": false, "00-" + trace + "-" + span + "-01-more": false,
		"00-00000000000000000000000000000000-" + span + "-01": false, "00-" + trace + "-0000000000000000-01": false,
		"00-0AF7651916CD43DD8448EB211C80319C-" + span + "-01": false, "00-" + trace[1:] + "g-" + span + "-01": false,
	} {
		_, ok := readParent(text)
		require.Equal(t, want, ok, text)
	}
}

func FuzzReadParent(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("---")
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := readParent(text); ok {
			require.Len(t, p.trace, 32)
			require.Len(t, p.span, 16)
		}
	})
}

func TestARequestsPartsAreChildrenOneAfterAnother(t *testing.T) {
	bodies := make(chan []byte, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- body
	}))
	defer collector.Close()
	tracer, err := FromEnv(env("EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/mine"), "1")
	require.NoError(t, err)
	begin := time.Unix(100, 0)
	tracer.Record(context.Background(), Request{Model: "m", Begin: begin, End: begin.Add(9), Queue: 1, Prefill: 2, Decode: 3, Error: "Busy"})
	unsampled := context.WithValue(context.Background(), parentKey{}, parent{trace: "t", span: "s"})
	tracer.Record(unsampled, Request{Model: "other"})
	tracer.Close()
	var got struct {
		ResourceSpans []struct{ ScopeSpans []struct{ Spans []span } }
	}
	require.NoError(t, json.Unmarshal(<-bodies, &got))
	spans := got.ResourceSpans[0].ScopeSpans[0].Spans
	require.Len(t, spans, 4, "a parent that is not sampled has no child")
	require.Equal(t, statusError, spans[0].Status.Code)
	at := []string{"100000000000", "100000000001", "100000000003", "100000000006"}
	for i, name := range []string{"queue", "prefill", "decode"} {
		child := spans[1+i]
		require.Equal(t, name, child.Name)
		require.Equal(t, spans[0].SpanID, child.ParentSpanID)
		require.Equal(t, spans[0].TraceID, child.TraceID)
		require.Equal(t, at[i], child.Start)
		require.Equal(t, at[i+1], child.End)
	}
}

// A collector that does not answer holds up nobody: what it does not take is dropped and counted.
func TestADeadCollectorHoldsUpNobody(t *testing.T) {
	hold := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer collector.Close()
	tracer, err := FromEnv(env("EXPORTER_OTLP_ENDPOINT", collector.URL, "BSP_MAX_QUEUE_SIZE", "8", "BSP_SCHEDULE_DELAY", "1", "EXPORTER_OTLP_TIMEOUT", "200"), "1")
	require.NoError(t, err)
	begun := time.Now()
	for range 200 {
		tracer.Record(context.Background(), Request{Model: "m"})
		time.Sleep(100 * time.Microsecond)
	}
	require.Less(t, time.Since(begun), 5*time.Second)
	require.Positive(t, tracer.Dropped())
	tracer.Close()
	close(hold)
}
