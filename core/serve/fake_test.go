package serve

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// soon is how long a loaded machine may take for what happens at once.
const soon = 20 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEngine answers with the given words and records what reached it.
type fakeEngine struct {
	mu       sync.Mutex
	state    string
	down     chan struct{}
	readyErr error
	restarts atomic.Int32
	closed   atomic.Bool
	stuck    atomic.Bool
	closes   atomic.Int32
	closeErr error
	threads  atomic.Int32
	bytes    uint64
	asked    atomic.Bool
	drafts   bool // it says that it speculated

	words        []string
	err          error         // returned after the words
	hold         chan struct{} // when set, generation waits here after the first word
	cancels      atomic.Int32
	settings     generate.Settings
	messages     []map[string]any
	kwargs       map[string]any
	conversation chat.Conversation
	choices      []*uint32
	prompt       generate.Prompt
	adapters     []Adapter
	loadErr      error
	loads        func(Adapter) error // when set, decides what can be loaded
	unloading    chan struct{}       // when set, unloading waits here
	deltas       []generate.Delta    // emitted in the place of words, when set
	embedded     generate.EmbedRequest
}

func newFake(words ...string) *fakeEngine {
	return &fakeEngine{state: "ready", down: make(chan struct{}), words: words}
}

func (f *fakeEngine) Card() openai.Card {
	return openai.Card{Device: "cpu-test", Family: "llama", Plugin: "universal 0.1.0"}
}

func (f *fakeEngine) State() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

func (f *fakeEngine) Down() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

func (f *fakeEngine) die(restart error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, f.readyErr = "dead", restart
	close(f.down)
}

func (f *fakeEngine) Ready(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.restarts.Add(1)
	if f.readyErr != nil {
		return f.readyErr
	}
	f.state, f.down = "ready", make(chan struct{})
	return nil
}

func (f *fakeEngine) Close(context.Context) error {
	f.closed.Store(true)
	f.closes.Add(1)
	return f.closeErr
}

func (f *fakeEngine) Alive(ctx context.Context) error {
	if f.stuck.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
func (f *fakeEngine) Load() (running, waiting int) { return 2, 3 }
func (f *fakeEngine) Stats(context.Context) (*cladev1.StatsResponse, error) {
	return &cladev1.StatsResponse{
		Memory: &cladev1.MemoryStats{RssBytes: 4096, PeakBytes: 8192}, Threads: 2, KvTokens: 1024, KvTokensUsed: 256, Preemptions: 6,
		FailedEvaluations: 1, PromptTokens: 900, PrefixCachedTokens: 100, PrefillNs: 2e9, GeneratedTokens: 200, DecodeNs: 4e9,
	}, nil
}

func (f *fakeEngine) Adapters() []Adapter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.adapters)
}

func (f *fakeEngine) LoadAdapter(_ context.Context, a Adapter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loadErr != nil {
		return f.loadErr
	}
	if f.loads != nil {
		if err := f.loads(a); err != nil {
			return err
		}
	}
	f.adapters = append(f.adapters, a)
	return nil
}

func (f *fakeEngine) UnloadAdapter(_ context.Context, id string) error {
	f.mu.Lock()
	f.adapters = slices.DeleteFunc(f.adapters, func(a Adapter) bool { return a.ID == id })
	f.mu.Unlock()
	if f.unloading != nil {
		<-f.unloading
	}
	return nil
}

func (f *fakeEngine) Plain() admin.Model   { return f }
func (f *fakeEngine) PlannedBytes() uint64 { return f.bytes }
func (f *fakeEngine) Pid() int             { return 1 }
func (f *fakeEngine) HasTemplate() bool    { return true }
func (f *fakeEngine) Encode(text string, _ bool) ([]int32, error) {
	return make([]int32, len(text)), nil
}

// Embed answers (its number, half of it).
func (f *fakeEngine) Embed(_ context.Context, q generate.EmbedRequest) (generate.Embeddings, error) {
	f.embedded = q
	var out generate.Embeddings
	for i := range q.Inputs {
		out.Vectors = append(out.Vectors, []float32{float32(i), float32(i) / 2})
		out.Tokens += 3
	}
	return out, f.err
}

func (f *fakeEngine) Tune(_ context.Context, threads int) error {
	f.threads.Store(int32(threads))
	return nil
}

func (f *fakeEngine) Prompt(c chat.Conversation) (generate.Prompt, error) {
	f.messages, f.kwargs, f.conversation = c.Messages, c.Kwargs, c
	f.asked.Store(true)
	if strings.Contains(c.Messages[0]["content"].(string), "too long") {
		return generate.Prompt{}, contract.Errorf(contract.ContextTooLong, "prompt", "has 5000 tokens, the context is 4096")
	}
	return generate.Prompt{IDs: []int32{1, 2, 3}, Reply: true, Tools: c.Tools}, nil
}

func (f *fakeEngine) Generate(ctx context.Context, p generate.Prompt, s generate.Settings, emit func(generate.Delta) error) (generate.Result, error) {
	f.mu.Lock()
	f.settings, f.prompt = s, p
	f.choices = append(f.choices, s.Choice)
	f.mu.Unlock()
	r := generate.Result{Finish: generate.FinishStop, Provenance: generate.Provenance{Plugin: "universal", Device: "cpu-test"}}
	for _, d := range f.deltas {
		if err := emit(d); err != nil {
			return r, err
		}
		r.Text, r.Reasoning, r.Calls = r.Text+d.Text, r.Reasoning+d.Reasoning, append(r.Calls, d.Calls...)
	}
	if len(r.Calls) > 0 {
		r.Finish = generate.FinishToolCalls
	}
	for i, w := range f.words {
		d := generate.Delta{Text: w, IDs: []int32{int32(i)}}
		if s.Logprobs != nil {
			d.Logprobs = []generate.TokenLogprobs{{
				TokenLogprob: generate.TokenLogprob{ID: int32(i), Text: w, Bytes: []byte(w), Logprob: -0.5},
				Top:          []generate.TokenLogprob{{ID: int32(i), Text: w, Bytes: []byte(w), Logprob: -0.5}},
			}}
		}
		if err := emit(d); err != nil {
			f.cancels.Add(1)
			return r, err
		}
		r.Text += w
		if f.hold != nil && i == 0 {
			select {
			case <-f.hold:
			case <-ctx.Done():
				f.cancels.Add(1)
				return r, contract.Errorf(contract.KindOf(context.Cause(ctx)), "request", "cancelled")
			}
		}
	}
	r.Usage = generate.Usage{PromptTokens: uint32(len(p.IDs)), GeneratedTokens: uint32(len(f.words))}
	if f.drafts {
		r.Usage.Speculation = &generate.Speculation{Rounds: 2, Drafted: 6, Accepted: 4, TargetCalls: 3}
	}
	return r, f.err
}

func serveFake(t *testing.T, o Options, engines map[string]*fakeEngine) (*Server, string) {
	t.Helper()
	var models []Served
	for name, e := range engines {
		models = append(models, Served{Name: name, Open: func(context.Context) (Engine, error) { return e, nil }})
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = -1
	}
	s, err := New(o, models)
	require.NoError(t, err)
	require.NoError(t, s.registry.openAll(t.Context()))
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		h.Close()
		s.registry.close(context.Background())
	})
	return s, h.URL
}
