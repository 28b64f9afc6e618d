package loader

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// modelDir holds the one model of all tests here; they only read it.
var modelDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clade-loader-")
	if err != nil {
		panic(err)
	}
	modelDir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// fakePlugin stands for every process of one plugin.
type fakePlugin struct {
	mu        sync.Mutex
	starts    int
	stops     int
	processes []*fakeProcess

	options    []string
	table      *cladev1.GraphTable
	kernels    []*cladev1.Kernel
	inspect    func(*cladev1.InspectRequest) (*cladev1.InspectResponse, error)
	plan       func(*cladev1.PlanRequest) (*cladev1.Plan, error)
	startErr   error
	openErr    error
	facts      func(*cladev1.ModelFacts)
	tokens     []int32 // what a generation emits
	crashAfter int     // emitted tokens after which the process dies; 0: never
	// crash is asked before each event of a stream: an error is how its process dies.
	crash       func(prompt []int32, sent int) error
	hold        chan struct{}
	lastStart   *cladev1.GenerateStart
	lastControl *cladev1.Control
	adapted     []string // requests for adapters, each behind how many processes were started
	digest      string   // of adapters that are loaded now
	killed      bool     // the process dies of the next adapter
}

type fakeProcess struct {
	plugin *fakePlugin
	done   chan struct{}
	once   sync.Once
	cause  error
	loaded []*cladev1.AdapterInfo
}

func (f *fakePlugin) start(context.Context, supervise.Spec) (Process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts++
	if f.startErr != nil {
		return nil, f.startErr
	}
	p := &fakeProcess{plugin: f, done: make(chan struct{})}
	f.processes = append(f.processes, p)
	return p, nil
}

func (f *fakePlugin) counts() (starts, stops int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts, f.stops
}

func (p *fakeProcess) die(cause error) {
	p.once.Do(func() { p.cause = cause; close(p.done) })
}

func (p *fakeProcess) Describe(context.Context) (*cladev1.DescribeResponse, error) {
	d := &cladev1.DescribeResponse{Name: "universal", Version: "0.1.0", GraphTables: []*cladev1.GraphTable{p.plugin.table}, Kernels: p.plugin.kernels}
	for _, o := range p.plugin.options {
		d.Options = append(d.Options, &cladev1.Option{Path: o})
	}
	return d, nil
}

func (p *fakeProcess) Inspect(_ context.Context, req *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
	return p.plugin.inspect(req)
}

func (p *fakeProcess) Plan(_ context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error) {
	return p.plugin.plan(proto.Clone(req).(*cladev1.PlanRequest))
}

func (p *fakeProcess) Open(_ context.Context, req *cladev1.OpenRequest, on func(*cladev1.OpenResponse)) (*cladev1.ModelFacts, error) {
	if p.plugin.openErr != nil {
		return nil, p.plugin.openErr
	}
	on(&cladev1.OpenResponse{Event: &cladev1.OpenResponse_Load{Load: &cladev1.LoadProgress{Phase: "weights"}}})
	facts := &cladev1.ModelFacts{GraphEntry: req.Plan.GraphEntry, ContextLength: req.Plan.Context, VocabSize: 256}
	if p.plugin.facts != nil {
		p.plugin.facts(facts)
	}
	return facts, nil
}

func (p *fakeProcess) Generate(ctx context.Context, start *cladev1.GenerateStart, ids []int32) (Stream, error) {
	p.plugin.mu.Lock()
	p.plugin.lastStart = start
	p.plugin.mu.Unlock()
	s := &fakeStream{p: p, ctx: ctx, prompt: ids}
	if start.GeneratedPrefix != nil {
		s.prompt = ids[:start.GetGeneratedPrefix()]
		s.sent = len(ids) - len(s.prompt)
		if !slices.Equal(ids[len(s.prompt):], p.plugin.tokens[:s.sent]) {
			return nil, contract.Errorf(contract.Internal, "fake", "resumed behind %v", ids)
		}
	}
	s.first = s.sent
	return s, nil
}

func (p *fakeProcess) Score(context.Context, *cladev1.ScoreStart, []int32, func(*cladev1.ScoreFrame) error) (*cladev1.Usage, error) {
	return &cladev1.Usage{}, nil
}

// Embed answers the ids.
func (p *fakeProcess) Embed(_ context.Context, _ *cladev1.EmbedStart, ids []int32) (*cladev1.EmbedResponse, error) {
	out := &cladev1.EmbedResponse{Usage: &cladev1.Usage{PromptTokens: uint32(len(ids))}}
	for _, id := range ids {
		out.Values = append(out.Values, float32(id))
	}
	return out, nil
}
func (p *fakeProcess) Stats(context.Context) (*cladev1.StatsResponse, error) { return nil, nil }
func (p *fakeProcess) Tune(_ context.Context, n uint32) (uint32, error)      { return n, nil }
func (p *fakeProcess) Adapters(_ context.Context, req *cladev1.AdaptersRequest) (*cladev1.AdaptersResponse, error) {
	f := p.plugin
	f.mu.Lock()
	defer f.mu.Unlock()
	f.adapted = append(f.adapted, fmt.Sprintf("%d %s", f.starts, protojson.MarshalOptions{}.Format(req)))
	switch a := req.GetAction().(type) {
	case *cladev1.AdaptersRequest_Load:
		if f.killed {
			f.killed = false
			p.die(errKilled)
			return nil, errKilled
		}
		digest := f.digest
		p.loaded = append(p.loaded, &cladev1.AdapterInfo{Id: a.Load.GetId(), Path: a.Load.GetPath(), Digest: digest})
	case *cladev1.AdaptersRequest_Unload:
		p.loaded = slices.DeleteFunc(p.loaded, func(i *cladev1.AdapterInfo) bool { return i.GetId() == a.Unload.GetId() })
	}
	return &cladev1.AdaptersResponse{Adapters: p.loaded}, nil
}
func (p *fakeProcess) Stalled() time.Duration { return 0 }
func (p *fakeProcess) Done() <-chan struct{}  { return p.done }
func (p *fakeProcess) Err() error             { return p.cause }
func (p *fakeProcess) Pid() int               { return 1 }

func (p *fakeProcess) State() supervise.State {
	select {
	case <-p.done:
		return supervise.Dead
	default:
		return supervise.Ready
	}
}

func (p *fakeProcess) Stop(context.Context) error {
	p.plugin.mu.Lock()
	p.plugin.stops++
	p.plugin.mu.Unlock()
	p.die(nil)
	return nil
}

type fakeStream struct {
	p        *fakeProcess
	ctx      context.Context
	prompt   []int32
	first    int // tokens that an earlier process had sent
	sent     int
	finished bool
	stopAt   *uint32
}

var errCrash = contract.Errorf(contract.PluginCrashed, "universal", "killed by signal 9")

func (s *fakeStream) Recv() (*cladev1.GenerateResponse, error) {
	f := s.p.plugin
	if f.crash != nil {
		if err := f.crash(s.prompt, s.sent); err != nil {
			s.p.die(err)
		}
	}
	switch {
	case s.ctx.Err() != nil:
		return nil, contract.Errorf(contract.Cancelled, "universal", "%w", context.Cause(s.ctx))
	case s.finished:
		return nil, io.EOF
	case s.p.State() == supervise.Dead:
		return nil, s.p.cause
	case f.crashAfter > 0 && s.sent-s.first == f.crashAfter:
		s.p.die(errCrash)
		return nil, errCrash
	case s.sent < len(f.tokens) && (s.stopAt == nil || s.sent <= int(*s.stopAt)):
		if f.hold != nil {
			select {
			case <-f.hold:
			case <-s.ctx.Done():
				return nil, contract.Errorf(contract.Cancelled, "universal", "%w", context.Cause(s.ctx))
			}
		}
		s.sent++
		return &cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: &cladev1.TokenStep{Ids: f.tokens[s.sent-1 : s.sent]}}}, nil
	}
	s.finished = true
	return &cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Finish{Finish: &cladev1.Finish{
		Reason: cladev1.FinishReason_FINISH_REASON_LENGTH, Usage: &cladev1.Usage{GeneratedTokens: uint32(s.sent)},
	}}}, nil
}

func (s *fakeStream) Control(c *cladev1.Control) error {
	s.p.plugin.mu.Lock()
	defer s.p.plugin.mu.Unlock()
	s.p.plugin.lastControl, s.stopAt = c, new(c.GetStopAt())
	return nil
}

func (s *fakeStream) Close() {}

// newFake is a plugin that honours everything and plans as the composition says.
func newFake() *fakePlugin {
	f := &fakePlugin{
		options: []string{"context", "dtype", "device", "kv.plain", "rows", "deterministic", "threads", "sampling.temperature", "sampling.seed"},
		table:   &cladev1.GraphTable{Graph: "universal-dense", Entries: []*cladev1.GraphEntry{{Id: "llama"}}},
	}
	f.plan = func(req *cladev1.PlanRequest) (*cladev1.Plan, error) {
		n := uint64(req.Model.Composition.GetContext())
		return &cladev1.Plan{
			GraphEntry: req.Model.GraphEntry, Context: uint32(n), BytesPerToken: 1000, TotalBytes: 1_000_000 + 1000*n, Device: "cpu-test", Dtype: "float32",
			Lines: []*cladev1.MemoryLine{{Name: "weights", Bytes: 1_000_000}, {Name: "kv", Bytes: 1000 * n}},
		}, nil
	}
	return f
}

// tinyModel is the tiny dense llama with a byte tokenizer and a context of 4096.
func tinyModel(t *testing.T) hub.Model {
	t.Helper()
	path, err := writeTiny()
	require.NoError(t, err)
	return hub.Model{ID: "tiny", Path: path}
}

var writeTiny = sync.OnceValues(func() (string, error) {
	c := tiny.Llama("llama-f32")[0]
	c.Config["max_position_embeddings"] = 4096
	dir, err := c.Write(modelDir)
	if err != nil {
		return "", err
	}
	vocab := map[string]int{}
	for i := range 94 {
		vocab[string(rune('!'+i))] = '!' + i
	}
	data, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": []any{},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600)
})

func hostOf(t *testing.T, f *fakePlugin) *Host {
	t.Helper()
	offers, err := corefamily.Embedded()
	require.NoError(t, err)
	list, problems := corefamily.New(offers)
	require.Empty(t, problems)
	return &Host{
		Families: list, Start: f.start, Budget: 1 << 40,
		Find: func(name string) (Plugin, error) {
			return Plugin{Name: name, Exe: "/x", Verify: func() error { return nil }, Check: func(*cladev1.DescribeResponse) error { return nil }}, nil
		},
	}
}

func openFake(t *testing.T, f *fakePlugin, edit ...func(*Host)) *Model {
	t.Helper()
	h := hostOf(t, f)
	for _, e := range edit {
		e(h)
	}
	d, err := h.Decide(tinyModel(t))
	require.NoError(t, err)
	p, err := d.Plan(t.Context(), Wishes{})
	require.NoError(t, err)
	m, err := p.Open(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close(context.Background())) })
	return m
}
