package plugin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func ptr[T any](v T) *T { return &v }

func TestDescribeNeedsNeitherRuntimeNorModel(t *testing.T) {
	f := &fake{load: func(string) error { return errors.New("must not be called") }}
	_, c := serveFake(t, f)
	d, err := c.Describe(t.Context(), &cladev1.DescribeRequest{})
	require.NoError(t, err)
	require.Equal(t, "echo", d.Name)
	require.Nil(t, d.Runtime)
	require.Equal(t, backendRPCs, d.Rpcs)
	require.Zero(t, f.loads.Load())
	s, err := c.Stats(t.Context(), &cladev1.StatsRequest{})
	require.NoError(t, err)
	require.NotZero(t, s.UptimeNs)
}

func TestAnAnnouncedFamilyNamesTheVersionThatBringsIt(t *testing.T) {
	_, c := serveFake(t, nil)
	_, err := c.Plan(t.Context(), &cladev1.PlanRequest{Model: spec()})
	kindIs(t, err, contract.UnsupportedModel, "announces", "0.3.0")
	_, err = openModel(t.Context(), c, spec(), &cladev1.Plan{})
	kindIs(t, err, contract.UnsupportedModel, "0.3.0")
	_, err = c.Tune(t.Context(), &cladev1.TuneRequest{Threads: ptr(uint32(1))})
	kindIs(t, err, contract.UnsupportedOption, "0.3.0")
	_, err = c.Inspect(t.Context(), &cladev1.InspectRequest{})
	kindIs(t, err, contract.UnsupportedModel, "0.3.0")

	_, c = serveFake(t, &fake{})
	_, err = c.Plan(t.Context(), &cladev1.PlanRequest{Model: spec(func(m *cladev1.ModelSpec) { m.Graph = "example.org/later" })})
	kindIs(t, err, contract.UnsupportedModel, "example.org/later", "0.3.0")
}

func TestTheRuntimeIsLoadedOnceAndItsFailureIsRemembered(t *testing.T) {
	f := &fake{load: func(dir string) error {
		return contract.Errorf(contract.PluginMismatch, dir, "no libmlx.so")
	}}
	_, c := serveFake(t, f)
	for range 2 {
		_, err := c.Plan(t.Context(), &cladev1.PlanRequest{Model: spec()})
		kindIs(t, err, contract.PluginMismatch, "/runtime", "libmlx.so")
	}
	require.EqualValues(t, 1, f.loads.Load())

	_, c = serveFake(t, &fake{})
	t.Setenv(contract.EnvRuntime, "")
	_, err := c.Plan(t.Context(), &cladev1.PlanRequest{Model: spec()})
	kindIs(t, err, contract.PluginMismatch, contract.EnvRuntime)
}

func TestThePluginAssertsAgainWhatTheHostDecided(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*cladev1.ModelSpec)
		kind    contract.Kind
		mention string
	}{
		"another graph":    {func(m *cladev1.ModelSpec) { m.Graph = "llama" }, contract.PluginMismatch, "has no family with this graph"},
		"another loader":   {func(m *cladev1.ModelSpec) { m.Profile.Loader = "gguf" }, contract.PluginMismatch, "has loader gguf for an artifact that is safetensors"},
		"a loader not its": {func(m *cladev1.ModelSpec) { m.Profile.Loader, m.Artifacts[0].Format = "colibri", "colibri" }, contract.UnsupportedModelLoad, "opens safetensors, gguf, not colibri"},
		"another loop":     {func(m *cladev1.ModelSpec) { m.Profile.Loop = "diffusion" }, contract.UnsupportedModelLoad, "runs the loop autoregressive"},
		"another profile":  {func(m *cladev1.ModelSpec) { m.Profile.Id = "other" }, contract.PluginMismatch, "has profile echo-resident"},
		"another format": {func(m *cladev1.ModelSpec) {
			m.Profile.Loader, m.Profile.Id, m.Artifacts[0].Format, m.Profile.RequiredCapabilities[2] = "gguf", "echo-resident-gguf", "gguf", "gguf"
		}, contract.PluginMismatch, "the artifact is safetensors, the host says gguf"},
		"no profile":         {func(m *cladev1.ModelSpec) { m.Profile = nil }, contract.InvalidArgument, "are needed"},
		"two fingerprints":   {func(m *cladev1.ModelSpec) { m.ConfigFingerprint = "0" }, contract.PluginMismatch, "is of config"},
		"another config":     {func(m *cladev1.ModelSpec) { m.ConfigFingerprint, *m.Profile.ConfigFingerprint = "0", "0" }, contract.PluginMismatch, "the host says 0"},
		"another reading":    {func(m *cladev1.ModelSpec) { m.ParsedConfigJson = `{"model_type":"other"}` }, contract.PluginMismatch, "read the config otherwise"},
		"exact without both": {func(m *cladev1.ModelSpec) { m.Profile.ExactArtifact, m.Profile.Specialization = true, "artifact" }, contract.PluginMismatch, "needs both fingerprints"},
		"an implementation":  {func(m *cladev1.ModelSpec) { m.Implementation = ptr("fast") }, contract.UnsupportedModelLoad, "registers no implementation fast; refusing to fall back"},
		"no files":           {func(m *cladev1.ModelSpec) { m.Artifacts[0].Path = "/none" }, contract.NotFound, "/none"},
	} {
		t.Run(name, func(t *testing.T) {
			_, cl := serveFake(t, &fake{})
			_, err := openModel(t.Context(), cl, spec(c.change), &cladev1.Plan{TotalBytes: 7})
			kindIs(t, err, c.kind, c.mention)
		})
	}
	for name, change := range map[string]func(*cladev1.ModelSpec){
		"an exact artifact": func(m *cladev1.ModelSpec) {
			m.Profile.Id, m.Profile.ExactArtifact, m.Profile.Specialization, m.Profile.ArtifactFingerprint = "this-very-file", true, "artifact", ptr("hf:o/n@1")
		},
		"a caller's own profile": func(m *cladev1.ModelSpec) { m.Profile.Id, m.Profile.FromCaller = "mine", true },
		"a caller's own graph": func(m *cladev1.ModelSpec) {
			m.Profile = &cladev1.Profile{Loader: "safetensors", Loop: "autoregressive", FromCaller: true}
		},
	} {
		_, cl := serveFake(t, &fake{})
		_, err := openModel(t.Context(), cl, spec(change), &cladev1.Plan{TotalBytes: 7})
		require.NoError(t, err, name)
	}
}

// The record of another host accepted the model; this plugin's does not.
func TestAModelThatThePluginsOwnRecordDoesNotAcceptIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"other"}`), 0o600))
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, nil))
	_, cl := serveFake(t, &fake{})
	there := spec(func(m *cladev1.ModelSpec) { m.Artifacts[0].Path = dir })
	_, err := openModel(t.Context(), cl, there, &cladev1.Plan{TotalBytes: 7})
	kindIs(t, err, contract.PluginMismatch, "the record does not accept this model: example.org/echo wants model_type echo, this has other")
	there.Profile = &cladev1.Profile{Loader: "safetensors", Loop: "autoregressive", FromCaller: true}
	there.ParsedConfigJson = `{"model_type":"other"}`
	_, cl = serveFake(t, &fake{})
	_, err = openModel(t.Context(), cl, there, &cladev1.Plan{TotalBytes: 7})
	require.NoError(t, err, "a caller who names plugin and graph needs no record's consent")
}

func TestImplementationsInCodeAreThoseOfTheManifest(t *testing.T) {
	manifest := append(append([]byte{}, fakeManifest...), "implementations:\n  - {id: fast, graph: qwen3, loader: safetensors, loop: autoregressive}\n"...)
	_, err := NewServer(Family{Manifest: manifest, Implementations: []*cladev1.Implementation{{Id: "slow", Graph: "qwen3", Loader: "safetensors", Loop: "autoregressive"}}})
	kindIs(t, err, contract.PluginMismatch, "registers other implementations")
	s, err := NewServer(Family{Manifest: manifest})
	require.NoError(t, err)
	d, err := s.Describe(t.Context(), &cladev1.DescribeRequest{})
	require.NoError(t, err)
	require.Len(t, d.Implementations, 1)
	require.Equal(t, "fast", d.Implementations[0].Id)
	stand := spec(func(m *cladev1.ModelSpec) {
		m.Graph, m.Implementation, m.Profile.Id = "qwen3", ptr("fast"), "qwen3-dedicated"
	})
	require.NoError(t, assert(s.manifest, stand), "another family's graph needs no record here")
	stand.Artifacts[0].Format, stand.Profile.Loader = "gguf", "gguf"
	require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(assert(s.manifest, stand)))
}

func TestOpenPlansAgainUnderTheSameBudgetAndRefusesADifference(t *testing.T) {
	f := &fake{plan: func(r *cladev1.PlanRequest) (*cladev1.Plan, error) {
		return &cladev1.Plan{TotalBytes: r.GetBudgetBytes(), Notes: []string{"n"}}, nil
	}}
	_, c := serveFake(t, f)
	p, err := c.Plan(t.Context(), &cladev1.PlanRequest{Model: spec(), BudgetBytes: ptr(uint64(9))})
	require.NoError(t, err)
	changed := &cladev1.Plan{TotalBytes: 9, Notes: []string{"n", "m"}}
	_, err = openModel(t.Context(), c, spec(), changed)
	kindIs(t, err, contract.PluginMismatch, "notes is 1 entries now, 2 entries was admitted")
	_, err = openModel(t.Context(), c, spec(), nil)
	kindIs(t, err, contract.InvalidArgument, "plan")
	events, err := openModel(t.Context(), c, spec(), p.Plan)
	require.NoError(t, err)
	require.NotNil(t, events[0].GetLoad())
	require.NotNil(t, events[len(events)-1].GetOpened())
}

func TestAFailedOrCancelledOpenLeavesRoomForAnother(t *testing.T) {
	fail := true
	f := &fake{generate: finish}
	f.open = func(ctx context.Context) error {
		if fail {
			return contract.Errorf(contract.OutOfMemory, "weights", "no room")
		}
		return nil
	}
	_, c := serveFake(t, f)
	plan := &cladev1.Plan{TotalBytes: 7}
	_, err := openModel(t.Context(), c, spec(), plan)
	kindIs(t, err, contract.OutOfMemory)
	fail = false
	f.facts = nil

	entered := make(chan struct{})
	f.open = func(ctx context.Context) error { close(entered); <-ctx.Done(); return nil }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err = openModel(ctx, c, spec(), plan)
	kindIs(t, err, contract.Cancelled)
	require.Eventually(t, func() bool { return f.closed.Load() == 1 }, time.Second, time.Millisecond, "the model leaked")

	f.open = nil
	require.Eventually(t, func() bool {
		_, err = openModel(t.Context(), c, spec(), plan)
		return err == nil
	}, time.Second, time.Millisecond)
	_, err = openModel(t.Context(), c, spec(), plan)
	kindIs(t, err, contract.Busy)
}

func TestPanicsStayInTheirCall(t *testing.T) {
	f := &fake{generate: func(context.Context, *GenerateJob, func(*cladev1.GenerateResponse) error) error {
		panic("first line\nsecond")
	}}
	_, c := opened(t, f)
	_, err := c.Inspect(t.Context(), &cladev1.InspectRequest{})
	kindIs(t, err, contract.Internal, "no inspection")
	_, err = request(t.Context(), t, c, startMsg(&cladev1.GenerateStart{}), endMsg())
	kindIs(t, err, contract.Internal, "first line")
	require.NotContains(t, err.Error(), "second")
	f.generate = finish
	_, err = request(t.Context(), t, c, startMsg(&cladev1.GenerateStart{}), endMsg())
	require.NoError(t, err)
}

func TestShutdownDrainsThenCancelsThenFrees(t *testing.T) {
	for _, c := range []struct {
		name  string
		drain time.Duration
		kind  contract.Kind
	}{{"a request that ends in time", 5 * time.Second, 0}, {"one that does not", 50 * time.Millisecond, contract.Cancelled}} {
		t.Run(c.name, func(t *testing.T) {
			var exits atomic.Int32
			running := make(chan struct{})
			f := &fake{generate: func(ctx context.Context, _ *GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
				close(running)
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(300 * time.Millisecond):
				}
				return emit(done())
			}}
			s, cl := opened(t, f)
			s.exit = func() { exits.Add(1) }
			ended := make(chan error, 1)
			go func() {
				_, err := request(t.Context(), t, cl, startMsg(&cladev1.GenerateStart{}), endMsg())
				ended <- err
			}()
			<-running
			_, err := cl.Shutdown(t.Context(), &cladev1.ShutdownRequest{DrainNs: ptr(uint64(c.drain))})
			require.NoError(t, err)
			require.EqualValues(t, 1, f.closed.Load())
			require.EqualValues(t, 1, exits.Load())
			if err := <-ended; c.kind == 0 {
				require.NoError(t, err)
			} else {
				kindIs(t, err, c.kind)
			}
			_, err = request(t.Context(), t, cl, startMsg(&cladev1.GenerateStart{}), endMsg())
			kindIs(t, err, contract.Unavailable, "shutting down")
			_, err = openModel(t.Context(), cl, spec(), &cladev1.Plan{TotalBytes: 7})
			kindIs(t, err, contract.Unavailable)
		})
	}
}

func TestTuneAndScoreReachTheModel(t *testing.T) {
	_, c := opened(t, &fake{})
	r, err := c.Tune(t.Context(), &cladev1.TuneRequest{Threads: ptr(uint32(2))})
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Threads)
	_, err = c.Tune(t.Context(), &cladev1.TuneRequest{})
	kindIs(t, err, contract.InvalidArgument, "threads")

	stream, err := c.Score(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&cladev1.ScoreRequest{Message: &cladev1.ScoreRequest_Start{Start: &cladev1.ScoreStart{}}}))
	require.NoError(t, stream.Send(&cladev1.ScoreRequest{Message: &cladev1.ScoreRequest_Ids{Ids: &cladev1.IdsChunk{Ids: []int32{4, 5}}}}))
	require.NoError(t, stream.Send(&cladev1.ScoreRequest{Message: &cladev1.ScoreRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}}))
	all, err := drainStream(stream.Recv)
	require.NoError(t, err)
	require.Equal(t, []float32{5}, all[1].GetFrame().Values)
	require.NotNil(t, all[2].GetDone())
}

func TestARowIsCutIntoFramesUnderTheBudget(t *testing.T) {
	row := make([]float32, 2*frameValues+3)
	for i := range row {
		row[i] = float32(i)
	}
	var got []float32
	for _, f := range FrameRow(4, row) {
		require.EqualValues(t, 4, f.Position)
		require.EqualValues(t, len(got), f.Offset)
		require.LessOrEqual(t, len(f.Values)*4, contract.MessageBudget/2)
		got = append(got, f.Values...)
	}
	require.Equal(t, row, got)
}

func TestATableMustDeclareItsGraphAndEndGeneric(t *testing.T) {
	keyed := &cladev1.GraphEntry{Id: "fast", Serves: &cladev1.GraphKey{Device: ptr("cpu")}}
	generic := &cladev1.GraphEntry{Id: "any"}
	for name, table := range map[string]*cladev1.GraphTable{
		"undeclared graph": {Graph: "llama", Entries: []*cladev1.GraphEntry{generic}},
		"no entry":         {Graph: "example.org/echo"},
		"no generic entry": {Graph: "example.org/echo", Entries: []*cladev1.GraphEntry{keyed}},
		"generic first":    {Graph: "example.org/echo", Entries: []*cladev1.GraphEntry{generic, keyed}},
	} {
		_, err := NewServer(Family{Manifest: fakeManifest, Tables: []*cladev1.GraphTable{table}})
		require.Error(t, err, name)
		kindIs(t, err, contract.PluginMismatch)
	}
	_, err := NewServer(Family{Manifest: fakeManifest, Tables: []*cladev1.GraphTable{
		{Graph: "example.org/echo", Entries: []*cladev1.GraphEntry{keyed, generic}},
	}})
	require.NoError(t, err)
	_, err = NewServer(Family{Manifest: []byte("name: x")})
	kindIs(t, err, contract.PluginMismatch)
}
