package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// The messages of OTLP 1 in JSON (opentelemetry-proto, trace/v1/trace.proto): ids in hex, 64-bit numbers as strings.
type (
	span struct {
		TraceID      string      `json:"traceId"`
		SpanID       string      `json:"spanId"`
		ParentSpanID string      `json:"parentSpanId,omitempty"`
		Name         string      `json:"name"`
		Kind         int         `json:"kind"`
		Start        string      `json:"startTimeUnixNano"`
		End          string      `json:"endTimeUnixNano"`
		Attributes   []attribute `json:"attributes,omitempty"`
		Status       *status     `json:"status,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string `json:"stringValue,omitempty"`
		Int    *string `json:"intValue,omitempty"`
		Array  *array  `json:"arrayValue,omitempty"`
	}
	array struct {
		Values []value `json:"values"`
	}
)

const (
	kindInternal, kindServer = 1, 2
	statusError              = 2
	// batch is how many spans one message carries at most.
	batch = 512
)

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func text(key, v string) attribute { return attribute{key, value{String: &v}} }

func texts(key, v string) attribute {
	return attribute{key, value{Array: &array{[]value{{String: &v}}}}}
}

func number(key string, n int) attribute {
	v := strconv.Itoa(n)
	return attribute{key, value{Int: &v}}
}

func start(s settings) *Tracer {
	t := &Tracer{settings: s, client: &http.Client{Timeout: s.timeout}, spans: make(chan span, s.queue), stop: make(chan struct{})}
	t.ended.Go(t.run)
	return t
}

// Close sends what waits, for one export's time at most. A nil Tracer has nothing.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	close(t.stop)
	t.ended.Wait()
	t.client.CloseIdleConnections()
}

// run exports from time to time, and when a message is full; Close ends it.
func (t *Tracer) run() {
	tick := time.NewTicker(t.settings.delay)
	defer tick.Stop()
	var held []span
	export := func() {
		if len(held) > 0 && t.export(held) != nil {
			t.dropped.Add(uint64(len(held)))
		}
		held = held[:0]
	}
	for {
		select {
		case s := <-t.spans:
			if held = append(held, s); len(held) == batch {
				export()
			}
		case <-tick.C:
			export()
		case <-t.stop:
			for len(t.spans) > 0 && len(held) < batch {
				held = append(held, <-t.spans)
			}
			export()
			return
		}
	}
}

func (t *Tracer) export(spans []span) error {
	type object = map[string]any
	var resource []attribute
	for _, key := range slices.Sorted(maps.Keys(t.settings.attributes)) {
		resource = append(resource, text(key, t.settings.attributes[key]))
	}
	body, err := json.Marshal(object{"resourceSpans": []object{{
		"resource":   object{"attributes": resource},
		"scopeSpans": []object{{"scope": object{"name": "github.com/clademl/clade"}, "spans": spans}},
	}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.settings.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.settings.endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range t.settings.headers {
		req.Header.Set(k, v)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector answers %s", resp.Status)
	}
	return nil
}
