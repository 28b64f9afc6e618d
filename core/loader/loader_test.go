package loader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func prompt(text string) generate.Prompt { return generate.Prompt{IDs: ids(text)} }

func ids(text string) []int32 {
	var out []int32
	for _, c := range text {
		out = append(out, c)
	}
	return out
}

func drop(generate.Delta) error { return nil }

func TestDefaultContextShrinksUntilThePlanFits(t *testing.T) {
	f := newFake()
	m := openFake(t, f, func(h *Host) { h.Budget = 1_000_000 + 3_000_000 })
	require.EqualValues(t, 2816, m.Facts().GetContextLength(), "the largest multiple of 256 that fits 3000")
	require.Len(t, m.Planned().Notes, 1, "a choice of the host's own is said")
	require.Contains(t, m.Planned().Notes[0], "4096")
}

// The figure of a refusal is the largest context that is admitted: one token more is not, whatever else shrinks with it.
func TestARefusalNamesTheLargestContextThatIsAdmitted(t *testing.T) {
	for name, cost := range map[string]func(n uint64) uint64{
		"a line":          func(n uint64) uint64 { return 1_000_000 + 1000*n },
		"steps of 256":    func(n uint64) uint64 { return 1_000_000 + 1000*((n+255)/256*256) },
		"chunks too":      func(n uint64) uint64 { return 1_000_000 + 1000*n + 5000*min(n, 256) },
		"grows with both": func(n uint64) uint64 { return 900_000 + 700*n + 8*n*min(n, 512)/16 },
		"nothing fits":    func(n uint64) uint64 { return 2_000_000 + n },
		"one token fits":  func(n uint64) uint64 { return 1_500_000 + 1_000_000*(n-1) },
	} {
		t.Run(name, func(t *testing.T) {
			f, plans := newFake(), 0
			f.plan = func(req *cladev1.PlanRequest) (*cladev1.Plan, error) {
				plans++
				n := req.Model.Composition.GetContext()
				return &cladev1.Plan{GraphEntry: "llama", Device: "cpu-test", Context: n, BytesPerToken: 1000, TotalBytes: cost(uint64(n))}, nil
			}
			h := hostOf(t, f)
			h.Budget = 1_500_000
			d, err := h.Decide(tinyModel(t))
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			w := Wishes{}
			w.Context = 4096
			p, err := d.Plan(t.Context(), w)
			require.NoError(t, err)
			defer p.Stop()
			refused(t, p.Admission, contract.MemoryAdmission, 4, "needs", "the budget is 1.4 MiB")
			want := uint64(0)
			for n := uint64(1); n <= 4096 && cost(n) <= h.Budget; n++ {
				want = n
			}
			if want == 0 {
				require.NotContains(t, p.Admission.Error(), "--context")
			} else {
				require.ErrorContains(t, p.Admission, fmt.Sprintf("(--context %d)", want))
			}
			require.Less(t, plans, 20)
		})
	}
}

func TestPlanOverTheBudgetIsRefusedWithTheNumbers(t *testing.T) {
	f := newFake()
	h := hostOf(t, f)
	h.Budget = 1_500_000
	d, err := h.Decide(tinyModel(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	w := Wishes{}
	w.Context = 1024
	p, err := d.Plan(t.Context(), w)
	require.NoError(t, err, "a plan is shown even when it does not fit")
	_, err = p.Open(t.Context(), nil)
	require.Equal(t, contract.MemoryAdmission, contract.KindOf(err))
	for _, part := range []string{"1.9 MiB", "1.4 MiB", "weights", "kv"} {
		require.ErrorContains(t, err, part)
	}
	starts, stops := f.counts()
	require.Equal(t, starts, stops, "a refused plan leaves no process")
}

func TestGraphIsProposedByKeyAndDisposedByThePlugin(t *testing.T) {
	entry := func(id string, key *cladev1.GraphKey) *cladev1.GraphEntry {
		return &cladev1.GraphEntry{Id: id, Serves: key}
	}
	table := &cladev1.GraphTable{Graph: "g", Entries: []*cladev1.GraphEntry{
		entry("exact", &cladev1.GraphKey{Fingerprint: new("f1"), Device: new("cpu-a")}),
		entry("rows", &cladev1.GraphKey{MaxRows: new(uint32(2)), Kv: []string{"f32"}}),
		entry("generic", nil),
	}}
	desc := &cladev1.DescribeResponse{GraphTables: []*cladev1.GraphTable{table}}
	comp := func(device, kv string, rows uint32) *cladev1.Composition {
		return &cladev1.Composition{Device: &device, Rows: &rows, Kv: &cladev1.KvScheme{Scheme: &cladev1.KvScheme_Plain{Plain: kv}}}
	}
	for _, tt := range []struct {
		fingerprint string
		comp        *cladev1.Composition
		want        string
	}{
		{"f1", comp("cpu-a", "native", 1), "exact"},
		{"f1", comp("cpu-b", "native", 1), "generic"},
		{"f2", comp("cpu-a", "f32", 2), "rows"},
		{"f2", comp("cpu-a", "f32", 3), "generic"},
		{"f2", &cladev1.Composition{}, "generic"},
	} {
		got, err := propose(desc, "g", "", tt.fingerprint, tt.comp)
		require.NoError(t, err)
		require.Equal(t, tt.want, got.entry)
	}
	got, err := propose(desc, "g", "exact", "other", &cladev1.Composition{})
	require.NoError(t, err, "a named graph bypasses the keys")
	require.Equal(t, "exact", got.entry)
	_, err = propose(desc, "g", "warp", "f", &cladev1.Composition{})
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.ErrorContains(t, err, "exact, rows, generic")
	plan := &cladev1.Plan{GraphEntry: "generic", GraphReason: "no such kernel", Kernels: []*cladev1.KernelChoice{{Name: "k", Reason: "missing"}}}
	require.NoError(t, checkDisposition(plan, "exact", false, "auto"))
	require.ErrorContains(t, checkDisposition(plan, "exact", true, "auto"), "no such kernel")
	require.ErrorContains(t, checkDisposition(plan, "generic", true, "require"), "missing")
}

func TestPromptOverTheContextIsRefusedNeverCut(t *testing.T) {
	m := openFake(t, newFake())
	_, err := m.Generate(t.Context(), generate.Prompt{IDs: make([]int32, 4096)}, generate.Settings{}, drop)
	require.Equal(t, contract.ContextTooLong, contract.KindOf(err))
	require.ErrorContains(t, err, "4096 tokens")
	_, err = m.Score(t.Context(), make([]int32, 4097), cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS, nil)
	require.Equal(t, contract.ContextTooLong, contract.KindOf(err))
	_, err = m.Generate(t.Context(), generate.Prompt{}, generate.Settings{}, drop)
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
}

func TestMaxTokensIsWhatTheContextLeaves(t *testing.T) {
	f := newFake()
	f.tokens = ids("a")
	m := openFake(t, f)
	for asked, want := range map[*uint32]uint32{nil: 4093, new(uint32(10)): 10, new(uint32(1 << 30)): 4093} {
		_, err := m.Generate(t.Context(), prompt("abc"), generate.Settings{MaxTokens: asked}, drop)
		require.NoError(t, err)
		require.Equal(t, want, f.lastStart.GetMaxTokens())
	}
}

func TestStopStringCutsTextAndTellsThePlugin(t *testing.T) {
	f := newFake()
	f.tokens = ids("abcdefgh")
	m := openFake(t, f)
	var streamed strings.Builder
	r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{Stop: []string{"de", "zz"}}, func(d generate.Delta) error {
		streamed.WriteString(d.Text)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "abc", r.Text)
	require.Equal(t, "abc", streamed.String())
	require.Equal(t, generate.FinishStop, r.Finish)
	require.Equal(t, "de", r.Stop)
	require.Equal(t, ids("abcde"), r.IDs)
	require.EqualValues(t, 5, r.Usage.GeneratedTokens)
	require.EqualValues(t, 4, f.lastControl.GetStopAt())
}

func TestHeldTextComesWhenTheGenerationEnds(t *testing.T) {
	f := newFake()
	f.tokens = ids("abcd")
	m := openFake(t, f)
	r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{Stop: []string{"dz"}}, drop)
	require.NoError(t, err)
	require.Equal(t, "abcd", r.Text)
	require.Equal(t, generate.FinishLength, r.Finish)
}

func TestCrashedRequestEndsWithTheCauseAndTheNextOneWorks(t *testing.T) {
	f := newFake()
	f.tokens, f.crashAfter = ids("abcd"), 2
	m := openFake(t, f)
	var text strings.Builder
	_, err := m.Generate(t.Context(), prompt("x"), generate.Settings{}, func(d generate.Delta) error { text.WriteString(d.Text); return nil })
	require.Equal(t, contract.PluginCrashed, contract.KindOf(err))
	require.ErrorContains(t, err, "signal 9")
	require.Equal(t, "ab", text.String())
	require.Equal(t, "dead", m.State())
	f.crashAfter = 0
	r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{}, drop)
	require.NoError(t, err)
	require.Equal(t, "abcd", r.Text)
	starts, _ := f.counts()
	require.Equal(t, 2, starts)
}

func TestPluginThatKeepsDyingIsLeftDead(t *testing.T) {
	f := newFake()
	f.tokens, f.crashAfter = ids("abcd"), 1
	m := openFake(t, f)
	m.breaker.Max, m.breaker.First, m.breaker.Most = 3, time.Microsecond, time.Microsecond
	var err error
	for range 10 {
		_, err = m.Generate(t.Context(), prompt("x"), generate.Settings{}, drop)
		require.Equal(t, contract.PluginCrashed, contract.KindOf(err))
	}
	starts, _ := f.counts()
	require.Equal(t, 3, starts, "the circuit opened: %v", err)
}

func TestConcurrentRequestsStartADeadPluginOnce(t *testing.T) {
	f := newFake()
	f.tokens = ids("ab")
	m := openFake(t, f)
	f.processes[0].die(errCrash)
	results := make(chan error, 8)
	for range cap(results) {
		go func() {
			_, err := m.Generate(context.Background(), prompt("x"), generate.Settings{}, drop)
			results <- err
		}()
	}
	for range cap(results) {
		require.NoError(t, <-results)
	}
	starts, _ := f.counts()
	require.Equal(t, 2, starts)
}

func TestFailedOpenReleasesTheProcess(t *testing.T) {
	for name, edit := range map[string]func(*fakePlugin){
		"refused":         func(f *fakePlugin) { f.openErr = contract.Errorf(contract.OutOfMemory, "weights", "no memory") },
		"other graph":     func(f *fakePlugin) { f.facts = func(m *cladev1.ModelFacts) { m.GraphEntry = "other" } },
		"other tokenizer": func(f *fakePlugin) { f.facts = func(m *cladev1.ModelFacts) { m.TokenizerDigest = "dead" } },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			edit(f)
			d, err := hostOf(t, f).Decide(tinyModel(t))
			require.NoError(t, err)
			p, err := d.Plan(t.Context(), Wishes{})
			require.NoError(t, err)
			_, err = p.Open(t.Context(), nil)
			require.Error(t, err)
			starts, stops := f.counts()
			require.Equal(t, starts, stops)
			require.NoError(t, d.Close(), "the caller still owns the decision")
		})
	}
}

func TestCancelledRequestSaysWhy(t *testing.T) {
	f := newFake()
	f.tokens, f.hold = ids("ab"), make(chan struct{})
	m := openFake(t, f)
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(contract.Errorf(contract.Unavailable, "server", "stopping"))
	_, err := m.Generate(ctx, prompt("x"), generate.Settings{}, drop)
	require.Equal(t, contract.Unavailable, contract.KindOf(err), "%v", err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = m.Generate(ctx, prompt("x"), generate.Settings{}, drop)
	require.Equal(t, contract.Cancelled, contract.KindOf(err))
}

func TestEmitErrorEndsTheRequest(t *testing.T) {
	f := newFake()
	f.tokens = ids("abcd")
	m := openFake(t, f)
	gone := errors.New("the client went away")
	_, err := m.Generate(t.Context(), prompt("x"), generate.Settings{}, func(generate.Delta) error { return gone })
	require.ErrorIs(t, err, gone)
	_, err = m.Generate(t.Context(), prompt("x"), generate.Settings{}, drop)
	require.NoError(t, err, "its row is free again")
}

func TestFullQueueIsBusy(t *testing.T) {
	f := newFake()
	f.tokens, f.hold = ids("a"), make(chan struct{})
	m := openFake(t, f)
	m.queue = make(chan struct{}, 2)
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := m.Generate(ctx, prompt("x"), generate.Settings{}, drop)
			results <- err
		}()
	}
	require.Eventually(t, func() bool { return len(m.queue) == 2 }, 20*time.Second, time.Millisecond)
	_, err := m.Generate(ctx, prompt("x"), generate.Settings{}, drop)
	require.Equal(t, contract.Busy, contract.KindOf(err))
	cancel()
	for range 2 {
		require.Equal(t, contract.Cancelled, contract.KindOf(<-results))
	}
}

func TestRefusedDefaultIsGivenUpAndAWishIsNot(t *testing.T) {
	f := newFake()
	plan := f.plan
	f.plan = func(req *cladev1.PlanRequest) (*cladev1.Plan, error) {
		if req.Model.Composition.GetDeterministic() {
			return nil, contract.Errorf(contract.UnsupportedOption, "deterministic", "no such proof")
		}
		return plan(req)
	}
	m := openFake(t, f)
	require.False(t, m.Planned().Composition.Proto.GetDeterministic())
	d, err := hostOf(t, f).Decide(tinyModel(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	w := Wishes{}
	w.Deterministic = "true"
	_, err = d.Plan(t.Context(), w)
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
}

func TestMissingPluginLeavesAllElseDecided(t *testing.T) {
	h := hostOf(t, newFake())
	h.Find = func(string) (Plugin, error) {
		return Plugin{}, contract.Errorf(contract.PluginMissing, "universal", "is not installed")
	}
	d, err := h.Decide(tinyModel(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	require.Equal(t, "universal-dense", d.Profile.GetId())
	_, err = d.Plan(t.Context(), Wishes{})
	require.Equal(t, contract.PluginMissing, contract.KindOf(err))
}
