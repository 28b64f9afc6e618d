package serve

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/core/serve/trace"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Bounds of the histograms, in seconds or tokens: those of vLLM, so that its dashboards fit.
var (
	firstTokenBounds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	betweenBounds    = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	tokenBounds      = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
	requestBounds    = []float64{0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

// scrapeTimeout bounds the asking of one engine while metrics are written.
const scrapeTimeout = 500 * time.Millisecond

// meter counts what the models of one server do, under vLLM's metric names where it has one for the thing.
type meter struct {
	set *metrics.Set
	// verbatim keeps lines of system prompts that change with every request.
	verbatim bool
	tracer   *trace.Tracer // nil: no collector

	served   []*served
	adapters map[string]*adapterLoad // by model

	scraping sync.Mutex                        // held while metrics are written
	stats    map[string]*cladev1.StatsResponse // by model, of this scrape
}

func newMeter() *meter { return &meter{set: metrics.NewSet(), adapters: map[string]*adapterLoad{}} }

// ask asks the model's engine once a scrape; nil when it has none or does not answer, and clade:up says why.
func (m *meter) ask(s *served) *cladev1.StatsResponse {
	if stats, asked := m.stats[s.name]; asked {
		return stats
	}
	var stats *cladev1.StatsResponse
	if e := s.current(); e != nil {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
		defer cancel()
		stats, _ = e.Stats(ctx)
	}
	m.stats[s.name] = stats
	return stats
}

// name is a metric of one model, in the exposition's syntax.
func name(metric, model string, labels ...string) string {
	out := fmt.Sprintf("%s{model_name=%s", metric, strconv.Quote(model))
	for i := 0; i+1 < len(labels); i += 2 {
		out += fmt.Sprintf(",%s=%s", labels[i], strconv.Quote(labels[i+1]))
	}
	return out + "}"
}

// watch makes the gauges of a model, which ask its present engine when they are read.
func (m *meter) watch(s *served) {
	m.served, m.adapters[s.name] = append(m.served, s), newAdapterLoad()
	load := func(pick func(running, waiting int) int) func() float64 {
		return func() float64 {
			e := s.current()
			if e == nil {
				return 0
			}
			return float64(pick(e.Load()))
		}
	}
	m.set.NewGauge(name("vllm:num_requests_running", s.name), load(func(r, _ int) int { return r }))
	m.set.NewGauge(name("vllm:num_requests_waiting", s.name), load(func(_, w int) int { return w }))
	m.set.NewGauge(name("clade:planned_bytes", s.name), func() float64 {
		if e := s.current(); e != nil {
			return float64(e.PlannedBytes())
		}
		return 0
	})
	m.set.NewGauge(name("clade:up", s.name), func() float64 {
		if e := s.current(); e != nil && (e.State() == "ready" || e.State() == "busy") {
			return 1
		}
		return 0
	})
	for metric, read := range map[string]func(*cladev1.StatsResponse) float64{
		"clade:prefix_disk_read_tokens":    func(r *cladev1.StatsResponse) float64 { return float64(r.GetPrefixDiskReadTokens()) },
		"clade:prefix_disk_written_tokens": func(r *cladev1.StatsResponse) float64 { return float64(r.GetPrefixDiskWrittenTokens()) },
		"clade:prefix_disk_failures":       func(r *cladev1.StatsResponse) float64 { return float64(r.GetPrefixDiskFailures()) },
		"clade:prefix_disk_damaged":        func(r *cladev1.StatsResponse) float64 { return float64(r.GetPrefixDiskDamaged()) },
		"clade:spec_decode_parked":         func(r *cladev1.StatsResponse) float64 { return float64(min(1, len(r.GetDraftParked()))) },
		"clade:resident_bytes":             func(r *cladev1.StatsResponse) float64 { return float64(r.GetMemory().GetRssBytes()) },
		"clade:active_bytes":               func(r *cladev1.StatsResponse) float64 { return float64(r.GetMemory().GetActiveBytes()) },
		"clade:peak_bytes":                 func(r *cladev1.StatsResponse) float64 { return float64(r.GetMemory().GetPeakBytes()) },
		"clade:failed_evaluations":         func(r *cladev1.StatsResponse) float64 { return float64(r.GetFailedEvaluations()) },
		"vllm:num_preemptions_total":       func(r *cladev1.StatsResponse) float64 { return float64(r.GetPreemptions()) },
		"vllm:kv_cache_usage_perc":         func(r *cladev1.StatsResponse) float64 { return share(r.GetKvTokensUsed(), r.GetKvTokens()) },
		"clade:prefill_tokens_per_second": func(r *cladev1.StatsResponse) float64 {
			return perSecond(r.GetPromptTokens()-min(r.GetPromptTokens(), r.GetPrefixCachedTokens()), r.GetPrefillNs())
		},
		"clade:decode_tokens_per_second": func(r *cladev1.StatsResponse) float64 { return perSecond(r.GetGeneratedTokens(), r.GetDecodeNs()) },
		"clade:threads":                  func(r *cladev1.StatsResponse) float64 { return float64(r.GetThreads()) },
	} {
		m.set.NewGauge(name(metric, s.name), func() float64 { return read(m.ask(s)) })
	}
}

// share is a part of a whole, from 0 to 1.
func share(part, whole uint64) float64 { return float64(part) / float64(max(whole, 1)) }

// perSecond is a request's rate on average over all that finished; other requests shared its time.
func perSecond(n, ns uint64) float64 {
	if ns == 0 {
		return 0
	}
	return float64(n) / time.Duration(ns).Seconds()
}

// model is m with its requests counted.
func (m *meter) model(name string, e openai.Model) openai.Model { return measured{e, m, name} }

type measured struct {
	openai.Model
	meter *meter
	name  string
}

// Prompt implements openai.Model. What clients put into system prompts that changes with every request is left out, said and counted.
func (m measured) Prompt(c chat.Conversation) (generate.Prompt, error) {
	var names []string
	if !m.meter.verbatim {
		c, names = c.Stable()
	}
	p, err := m.Model.Prompt(c)
	for _, header := range names {
		p.Notes = append(p.Notes, header+": a line of the system prompt that changes with every request was left out (serve.volatile_headers)")
		m.count("clade:volatile_headers_total", 1, "header", header)
	}
	return p, err
}

// Generate implements openai.Model.
func (m measured) Generate(ctx context.Context, p generate.Prompt, request generate.Settings, emit func(generate.Delta) error) (generate.Result, error) {
	begun := time.Now()
	var last time.Time
	started, ended := m.meter.adapters[m.name].begin(request.Adapter)
	defer ended()
	first := m.histogram("vllm:time_to_first_token_seconds", firstTokenBounds)
	between := m.histogram("vllm:inter_token_latency_seconds", betweenBounds)
	result, err := m.Model.Generate(ctx, p, request, func(d generate.Delta) error {
		now := time.Now()
		if n := len(d.IDs); n > 0 {
			if last.IsZero() {
				first.Update(now.Sub(begun).Seconds())
				started()
			} else {
				for range n {
					between.Update(now.Sub(last).Seconds() / float64(n))
				}
			}
			last = now
			m.count("vllm:generation_tokens_total", n)
		}
		return emit(d)
	})
	over := time.Now()
	m.histogram("vllm:e2e_request_latency_seconds", requestBounds).Update(over.Sub(begun).Seconds())
	m.meter.tracer.Record(ctx, traced(m.name, begun, over, result, err))
	if err != nil {
		reason := "error"
		if contract.KindOf(err) == contract.Cancelled {
			reason = "abort"
		}
		m.count("vllm:request_success_total", 1, "finished_reason", reason)
		return result, err
	}
	m.finish(result)
	return result, nil
}

// finish counts what only the end of a request tells.
func (m measured) finish(r generate.Result) {
	m.count("vllm:request_success_total", 1, "finished_reason", r.Finish)
	m.count("vllm:prompt_tokens_total", int(r.Usage.PromptTokens))
	m.count("vllm:prefix_cache_queries_total", int(r.Usage.PromptTokens))
	m.count("vllm:prefix_cache_hits_total", int(r.Usage.CachedTokens))
	m.histogram("vllm:request_queue_time_seconds", requestBounds).Update(r.Usage.Queue.Seconds())
	m.histogram("vllm:request_inference_time_seconds", requestBounds).Update((r.Usage.Prefill + r.Usage.Decode).Seconds())
	m.histogram("vllm:request_prompt_tokens", tokenBounds).Update(float64(r.Usage.PromptTokens))
	m.histogram("vllm:request_generation_tokens", tokenBounds).Update(float64(r.Usage.GeneratedTokens))
	if n := r.Usage.GeneratedTokens; n > 1 {
		m.histogram("vllm:request_time_per_output_token_seconds", betweenBounds).Update(r.Usage.Decode.Seconds() / float64(n-1))
	}
	m.histogram("vllm:request_prefill_time_seconds", requestBounds).Update(r.Usage.Prefill.Seconds())
	m.histogram("vllm:request_decode_time_seconds", requestBounds).Update(r.Usage.Decode.Seconds())
	if drafts := r.Usage.Speculation; drafts != nil {
		m.count("vllm:spec_decode_num_drafts_total", int(drafts.Rounds))
		m.count("vllm:spec_decode_num_draft_tokens_total", int(drafts.Drafted))
		m.count("vllm:spec_decode_num_accepted_tokens_total", int(drafts.Accepted))
	}
	if r.Provenance.Resumed {
		m.count("clade:requests_resumed_total", 1)
	}
}

// traced is a request for its trace.
func traced(model string, begun, ended time.Time, r generate.Result, err error) trace.Request {
	out := trace.Request{
		Model: model, Begin: begun, End: ended, Queue: r.Usage.Queue, Prefill: r.Usage.Prefill, Decode: r.Usage.Decode,
		Prompt: int(r.Usage.PromptTokens), Cached: int(r.Usage.CachedTokens), Tokens: int(r.Usage.GeneratedTokens), Finish: r.Finish,
	}
	if d := r.Usage.Speculation; d != nil {
		out.Drafted, out.Accepted = int(d.Drafted), int(d.Accepted)
	}
	if err != nil {
		out.Finish, out.Error = "", contract.KindOf(err).String() // a message may hold what a person wrote
	}
	return out
}

func (m measured) count(metric string, n int, labels ...string) {
	m.meter.set.GetOrCreateCounter(name(metric, m.name, labels...)).Add(n)
}

func (m measured) histogram(metric string, bounds []float64) *metrics.PrometheusHistogram {
	return m.meter.set.GetOrCreatePrometheusHistogramExt(name(metric, m.name), bounds)
}

func (m *meter) write(w io.Writer) {
	m.scraping.Lock()
	defer m.scraping.Unlock()
	m.stats = map[string]*cladev1.StatsResponse{}
	m.set.WritePrometheus(w)
	for _, s := range m.served {
		m.adapters[s.name].write(w, s.name, len(s.adapters()))
	}
}

// metrics writes everything in the Prometheus text format.
func (r *registry) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var text bytes.Buffer // a slow reader holds no other scrape
	r.meter.write(&text)
	_, _ = text.WriteTo(w)
	metrics.WriteProcessMetrics(w)
}
