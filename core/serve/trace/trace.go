package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Tracer sends spans in the background. Close ends it.
type Tracer struct {
	settings settings
	client   *http.Client
	spans    chan span
	dropped  atomic.Uint64
	stop     chan struct{}
	ended    sync.WaitGroup
}

// parent is what a traceparent header says.
type parent struct {
	trace, span string
	sampled     bool
}

type parentKey struct{}

// Handler keeps the traceparent of each request for its spans. A nil Tracer changes nothing.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := readParent(r.Header.Get("Traceparent")); ok {
			r = r.WithContext(context.WithValue(r.Context(), parentKey{}, p))
		}
		next.ServeHTTP(w, r)
	})
}

// readParent reads a traceparent of W3C's Trace Context: version, trace, span and flags, in hex.
func readParent(text string) (parent, bool) {
	parts := strings.Split(text, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 ||
		parts[0] == "ff" || (parts[0] == "00" && len(parts) != 4) || strings.ToLower(text) != text {
		return parent{}, false
	}
	for _, p := range parts[:4] {
		if _, err := hex.DecodeString(p); err != nil {
			return parent{}, false
		}
	}
	if strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return parent{}, false
	}
	flags, _ := hex.DecodeString(parts[3])
	return parent{parts[1], parts[2], flags[0]&1 == 1}, true
}

// Request is what a generating request did.
type Request struct {
	Model                  string
	Begin, End             time.Time
	Queue, Prefill, Decode time.Duration
	Prompt, Cached, Tokens int
	Drafted, Accepted      int
	Finish                 string // empty where it failed
	Error                  string
}

// Record sends a request's spans. A nil Tracer does nothing.
func (t *Tracer) Record(ctx context.Context, r Request) {
	if t == nil {
		return
	}
	p, known := ctx.Value(parentKey{}).(parent)
	if known && !p.sampled && t.settings.parents {
		return
	}
	if !known {
		p = parent{trace: random(16)}
	}
	whole := span{
		TraceID: p.trace, SpanID: random(8), ParentSpanID: p.span, Name: "generate " + r.Model, Kind: kindServer,
		Start: nanos(r.Begin), End: nanos(r.End), Attributes: attributesOf(r),
	}
	if r.Error != "" {
		whole.Status = &status{Code: statusError, Message: r.Error}
	}
	t.send(whole)
	at := r.Begin
	for _, part := range []struct {
		name string
		took time.Duration
	}{{"queue", r.Queue}, {"prefill", r.Prefill}, {"decode", r.Decode}} {
		if part.took <= 0 {
			continue
		}
		t.send(span{
			TraceID: p.trace, SpanID: random(8), ParentSpanID: whole.SpanID, Name: part.name, Kind: kindInternal,
			Start: nanos(at), End: nanos(at.Add(part.took)),
		})
		at = at.Add(part.took)
	}
}

// attributesOf are OpenTelemetry's names for generative models where it has one.
func attributesOf(r Request) []attribute {
	out := []attribute{
		text("gen_ai.operation.name", "chat"), text("gen_ai.provider.name", "clade"), text("gen_ai.request.model", r.Model),
		number("gen_ai.usage.input_tokens", r.Prompt), number("gen_ai.usage.output_tokens", r.Tokens),
		number("gen_ai.usage.cache_read.input_tokens", r.Cached),
	}
	if r.Finish != "" {
		out = append(out, texts("gen_ai.response.finish_reasons", r.Finish))
	}
	if r.Drafted > 0 {
		out = append(out, number("clade.drafted_tokens", r.Drafted), number("clade.accepted_tokens", r.Accepted))
	}
	return out
}

// Dropped is how many spans the collector did not take in time.
func (t *Tracer) Dropped() uint64 {
	if t == nil {
		return 0
	}
	return t.dropped.Load()
}

func (t *Tracer) send(s span) {
	select {
	case t.spans <- s:
	default:
		t.dropped.Add(1)
	}
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}
