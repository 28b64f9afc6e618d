// Package trace sends what requests did to an OpenTelemetry collector, where the standard OTEL_ variables name one.
//
// A request is a span of OTLP with its queue, prefill and decode as children, under the parent that a traceparent header names. Texts
// are never sent, counts and times are. Without a collector there is no Tracer and nothing is measured that was not before.
//
// Invariants: no request waits for a collector; what it does not take in time is dropped and counted; a variable that is set and not
// honoured is refused. Spans leave as OTLP's JSON over HTTP, which every collector takes where it takes protobuf: the SDK's exporters
// bring megabytes for the same bytes (docs/dependencies.md). Not for: metrics (/metrics has them), logs.
package trace

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// settings are what the environment says.
type settings struct {
	endpoint   string
	headers    map[string]string
	timeout    time.Duration
	delay      time.Duration // between two exports
	queue      int           // spans that wait
	attributes map[string]string
	parents    bool // a parent that is not sampled has no child here
}

// FromEnv is the tracer that the variables ask for, read by getenv; nil when they ask for none. version is the program's.
func FromEnv(getenv func(string) string, version string) (*Tracer, error) {
	s, err := read(getenv)
	if err != nil || s == nil {
		return nil, err
	}
	if s.attributes["service.version"] == "" {
		s.attributes["service.version"] = version
	}
	return start(*s), nil
}

func read(getenv func(string) string) (*settings, error) {
	first := func(names ...string) string {
		for _, n := range names {
			if v := getenv("OTEL_" + n); v != "" {
				return v
			}
		}
		return ""
	}
	exporter, endpoint := first("TRACES_EXPORTER"), first("EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := first("EXPORTER_OTLP_ENDPOINT"); endpoint == "" && base != "" {
		endpoint = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	switch {
	case strings.EqualFold(first("SDK_DISABLED"), "true"), exporter == "none", exporter == "" && endpoint == "":
		return nil, nil
	case exporter != "" && exporter != "otlp":
		return nil, refused("TRACES_EXPORTER", exporter, "otlp or none")
	}
	if endpoint == "" {
		endpoint = "http://localhost:4318/v1/traces"
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, refused("EXPORTER_OTLP_ENDPOINT", endpoint, "an http or https URL")
	}
	s := &settings{endpoint: endpoint, attributes: map[string]string{}, parents: true}
	if p := first("EXPORTER_OTLP_TRACES_PROTOCOL", "EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/json" {
		return nil, refused("EXPORTER_OTLP_PROTOCOL", p, "http/json: clade speaks no other")
	}
	if c := first("EXPORTER_OTLP_TRACES_COMPRESSION", "EXPORTER_OTLP_COMPRESSION"); c != "" && c != "none" {
		return nil, refused("EXPORTER_OTLP_COMPRESSION", c, "none")
	}
	switch sampler := first("TRACES_SAMPLER"); sampler {
	case "", "parentbased_always_on":
	case "always_on":
		s.parents = false
	case "always_off":
		return nil, nil
	default:
		return nil, refused("TRACES_SAMPLER", sampler, "parentbased_always_on, always_on or always_off")
	}
	var err error
	if s.headers, err = pairs("EXPORTER_OTLP_HEADERS", first("EXPORTER_OTLP_TRACES_HEADERS", "EXPORTER_OTLP_HEADERS")); err != nil {
		return nil, err
	}
	if s.attributes, err = pairs("RESOURCE_ATTRIBUTES", first("RESOURCE_ATTRIBUTES")); err != nil {
		return nil, err
	}
	if name := first("SERVICE_NAME"); name != "" {
		s.attributes["service.name"] = name
	} else if s.attributes["service.name"] == "" {
		s.attributes["service.name"] = "clade"
	}
	for _, n := range []struct {
		name     string
		standard int
		set      func(int)
	}{
		{"EXPORTER_OTLP_TIMEOUT", 10_000, func(v int) { s.timeout = time.Duration(v) * time.Millisecond }},
		{"BSP_SCHEDULE_DELAY", 5000, func(v int) { s.delay = time.Duration(v) * time.Millisecond }},
		{"BSP_MAX_QUEUE_SIZE", 2048, func(v int) { s.queue = v }},
	} {
		v := n.standard
		if text := first(n.name); text != "" {
			if v, err = strconv.Atoi(text); err != nil || v < 1 {
				return nil, refused(n.name, text, "a number from 1 up")
			}
		}
		n.set(v)
	}
	return s, nil
}

// pairs reads key=value,key=value, values percent-encoded.
func pairs(name, text string) (map[string]string, error) {
	out := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || strings.TrimSpace(key) == "" {
			return nil, refused(name, text, "key=value pairs with commas between")
		}
		out[strings.TrimSpace(key)] = value
	}
	return out, nil
}

func refused(name, value, want string) error {
	return contract.Errorf(contract.InvalidArgument, "OTEL_"+name, "%q is not %s", value, want)
}
