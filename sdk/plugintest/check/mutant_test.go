//go:build unix

package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/echo"
)

// mutant serves the echo family with an error that sdk/plugin would not let a family make.
type mutant struct {
	*plugin.Server
	fault string
}

// Errors of a server.
const (
	earlyOutput   = "early output"
	lateOutput    = "late output"
	noExit        = "no exit"
	orphan        = "orphan"
	deafToUnknown = "deaf to unknown fields"
	ignoredOption = "ignored priority"
	ignoredPath   = "ignored option of the composition"
	openTwice     = "open twice"
	anyPlan       = "any plan"
	noFinish      = "no finish"
	afterFinish   = "after finish"
	largeMessage  = "large message"
	silence       = "silence"
	plainErrors   = "plain errors"
	extraRPC      = "extra RPC"
	dies          = "dies"
	otherName     = "other name"
)

var serverFaults = []string{
	earlyOutput, lateOutput, noExit, orphan, deafToUnknown, ignoredOption, ignoredPath, openTwice, anyPlan, noFinish, afterFinish,
	largeMessage, silence, plainErrors, extraRPC, dies, otherName,
}

func serveMutant(fault string) {
	if fault == earlyOutput {
		fmt.Println("loading the runtime ...")
	}
	s, err := plugin.NewServer(echo.Family(echo.Version))
	if err != nil {
		panic(err)
	}
	if fault != orphan && os.Getenv(contract.EnvLiveness) != "" {
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(1) }()
	}
	signal.Ignore(os.Interrupt)
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: contract.Handshake(), Logger: hclog.NewNullLogger(), GRPCServer: goplugin.DefaultGRPCServer,
		VersionedPlugins: map[int]goplugin.PluginSet{contract.Major: {contract.DispenseName: mutantPlugin{server: &mutant{Server: s, fault: fault}}}},
	})
}

type mutantPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	server *mutant
}

func (p mutantPlugin) GRPCServer(_ *goplugin.GRPCBroker, g *grpc.Server) error {
	cladev1.RegisterPluginServiceServer(g, p.server)
	return nil
}

func (p mutantPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no client")
}

func (m *mutant) Describe(ctx context.Context, r *cladev1.DescribeRequest) (*cladev1.DescribeResponse, error) {
	if m.fault == lateOutput {
		_, _ = syscall.Write(1, []byte("MLX error: what a C library prints\n"))
	}
	d, err := m.Server.Describe(ctx, r)
	if m.fault == otherName {
		d.Name = "other"
	}
	return d, err
}

func (m *mutant) Stats(ctx context.Context, r *cladev1.StatsRequest) (*cladev1.StatsResponse, error) {
	if m.fault == deafToUnknown {
		r.ProtoReflect().SetUnknown(nil)
	}
	return m.Server.Stats(ctx, r)
}

func (m *mutant) Plan(ctx context.Context, r *cladev1.PlanRequest) (*cladev1.PlanResponse, error) {
	if m.fault == ignoredPath {
		r.Model.Composition.Kernels = nil
	}
	p, err := m.Server.Plan(ctx, r)
	if m.fault == plainErrors && err != nil {
		err = errors.New("something is wrong")
	}
	return p, err
}

func (m *mutant) Open(r *cladev1.OpenRequest, s grpc.ServerStreamingServer[cladev1.OpenResponse]) error {
	switch m.fault {
	case anyPlan:
		p, err := m.Server.Plan(s.Context(), &cladev1.PlanRequest{Model: r.Model})
		if err != nil {
			return err
		}
		r.Plan = p.Plan
	case openTwice:
		if err := m.Server.Open(r, s); contract.KindOf(contract.FromStatus(err)) != contract.Busy {
			return err
		}
		return s.Send(&cladev1.OpenResponse{Event: &cladev1.OpenResponse_Opened{Opened: &cladev1.ModelFacts{}}})
	}
	return m.Server.Open(r, s)
}

func (m *mutant) Embed(grpc.ClientStreamingServer[cladev1.EmbedRequest, cladev1.EmbedResponse]) error {
	if m.fault == extraRPC {
		return contract.ToStatus(contract.Errorf(contract.UnsupportedOption, "Embed", "later"))
	}
	return contract.ToStatus(errors.ErrUnsupported)
}

func (m *mutant) Shutdown(ctx context.Context, r *cladev1.ShutdownRequest) (*cladev1.ShutdownResponse, error) {
	resp, err := m.Server.Shutdown(ctx, r)
	if err == nil && m.fault != noExit {
		time.AfterFunc(50*time.Millisecond, func() { os.Exit(0) })
	}
	return resp, err
}

// stream changes what a Generate stream carries.
type stream struct {
	grpc.BidiStreamingServer[cladev1.GenerateRequest, cladev1.GenerateResponse]
	fault string
	steps int
}

func (m *mutant) Generate(s grpc.BidiStreamingServer[cladev1.GenerateRequest, cladev1.GenerateResponse]) error {
	return m.Server.Generate(&stream{BidiStreamingServer: s, fault: m.fault})
}

func (s *stream) Recv() (*cladev1.GenerateRequest, error) {
	r, err := s.BidiStreamingServer.Recv()
	if err == nil && s.fault == ignoredOption && r.GetStart() != nil {
		r.GetStart().Priority = nil
	}
	return r, err
}

func (s *stream) Send(r *cladev1.GenerateResponse) error {
	switch {
	case r.GetStep() != nil:
		s.steps++
	case s.fault == noFinish && r.GetFinish() != nil, s.fault == silence && r.GetProgress() != nil:
		return nil
	}
	switch {
	case s.fault == dies && s.steps == 3:
		_, _ = syscall.Write(2, []byte("libc++abi: terminating due to an uncaught exception\n"))
		os.Exit(134)
	case s.fault == silence && s.steps == 2:
		time.Sleep(1200 * time.Millisecond)
	case s.fault == largeMessage && r.GetFinish() != nil:
		r.GetFinish().Provenance.Notes = []string{strings.Repeat("x", contract.MessageBudget+1)}
	case s.fault == afterFinish && r.GetFinish() != nil:
		if err := s.BidiStreamingServer.Send(proto.Clone(r).(*cladev1.GenerateResponse)); err != nil {
			return err
		}
	}
	return s.BidiStreamingServer.Send(r)
}

// mutants are errors and what the suite says of them: the check that fails, and words of its reason.
var mutants = []struct {
	fault, check, says string
}{
	{string(echo.WrongMask), "batch", "request 0 of 7 at once answers otherwise than alone: token"},
	{string(echo.LeakedSlot), "cancel", "nothing but heartbeats came for 3s"},
	{string(echo.LateCancel), "cancel", "a cancelled request ended after"},
	{string(echo.LyingPlan), "plan-reality", "bytes are active after opening, the plan has"},
	{string(echo.DriftingPlan), "plan", "two plans of one request differ"},
	{string(echo.ReadingPlan), "plan-headers", "a plan read"},
	{string(echo.LooseValues), "plan-values", "composition.dtype no-such-thing is accepted"},
	{string(echo.BlindOpen), "bad-artifacts", "a model with a tensor under another name is accepted"},
	{string(echo.RashDraft), "speculation", "answers otherwise with drafts"},
	{string(echo.StaleCache), "prefix-cache", "cached tokens answers otherwise than cold"},
	{string(echo.ForgetfulResume), "resume", "a sampled request resumed behind token 1 of 12: token 0 is"},
	{string(echo.IgnoredStop), "stops", "it is not to be emitted, and STOP is due"},
	{string(echo.IgnoredBias), "logit-bias", "that id alone is due"},
	{string(echo.IgnoredSeed), "sampling", "the same sampling.seed at temperature 1.5: token"},
	{string(echo.IgnoredWindow), "penalties", "in a window of 1 with ids"},
	{string(echo.IgnoredMinTokens), "stops", "sampling.min_tokens"},
	{string(echo.IgnoredMaxTokens), "generate", "max_tokens 12: 13 tokens came"},
	{string(echo.IgnoredBudget), "open-once", "composition.memory_budget_bytes 1 is accepted"},
	{string(echo.IgnoredConstraint), "constraints", "is not one that the grammar allows"},
	{string(echo.ForgetfulConstraint), "constraints", "constraint.choice, resumed behind its first token"},
	{string(echo.ChunkBorder), "composition", "composition.prefill_chunk 7: token 0 is"},
	{string(echo.WrongLogprobs), "logprobs", "none is above 0"},
	{string(echo.WrongUsage), "generate", "usage states 13 generated tokens, 12 came"},
	{string(echo.UncheckedIDs), "prompt-limits", "a prompt of the id -1 is accepted"},
	{string(echo.EndlessContext), "prompt-limits", "as many ids as the context has is accepted"},
	{string(echo.GrowingMemory), "memory-returns", "active memory grew from"},
	{string(echo.IgnoredAdapter), "adapters-choose", "the adapter does nothing"},
	{string(echo.BlindChoice), "adapters-choose", "none-such\" is accepted"},
	{string(echo.SharedCache), "adapters-choose", "beside requests with others answers otherwise than alone: token"},
	{string(echo.HalfAdapter), "adapters-whole", "an adapter with a value that is no number is accepted"},
	{string(echo.TwiceLoaded), "adapters-load", "a second adapter of one name is accepted"},
	{string(echo.EagerUnload), "adapters-unload", "it returned while the request still ran"},
	{string(echo.LostAdapter), "adapters-unload", "a request whose adapter was unloaded: token"},
	{string(echo.ShiftedScore), "score", "Score and Generate are not of one model"},

	{earlyOutput, "handshake", `its first line of output is "loading the runtime ..."`},
	{lateOutput, "outputs", "descriptor 1 is to become a copy of 2"},
	{noExit, "drain", "the process lives on 1s after Shutdown"},
	{orphan, "liveness", "an orphan would hold the model's memory"},
	{deafToUnknown, "unknown-fields", "field 2047 of StatsRequest is accepted"},
	{ignoredOption, "options-refused", "priority is not declared and is accepted"},
	{ignoredPath, "plan-options", "composition.kernels is not declared and is accepted"},
	{plainErrors, "plan-decision", "a request with another graph is refused as internal"},
	{openTwice, "open-once", "a second Open in one process is accepted"},
	{anyPlan, "open-once", "another plan than it makes is accepted"},
	{noFinish, "generate", "the stream ended without a finish event"},
	{afterFinish, "generate", "a message came behind the finish event"},
	{largeMessage, "generate", "a message of 10"},
	{silence, "heartbeat", "progress is due once a second"},
	{extraRPC, "undeclared-rpcs", "Embed is not declared and answers"},
	{dies, "generate", "its last words: libc++abi: terminating due to an uncaught exception"},
	{otherName, "describe", "it is other 0.1.0, its manifest is of echo 0.1.0"},
}

func TestASeededErrorFailsTheSuiteWithATextThatSaysWhatIsWrong(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.fault, func(t *testing.T) {
			t.Parallel()
			o := options(t, m.fault, echo.Shape{StepMicros: 300})
			o.Only = []string{m.check}
			if m.check == "heartbeat" {
				o.Only = append(o.Only, "generate")
			}
			patience := usual
			patience.exit, patience.cancel, patience.beat, patience.stall = time.Second, time.Second, time.Second, 3*time.Second
			o.limits = &patience
			if m.fault == string(echo.LateCancel) {
				require.NoError(t, echo.WriteModel(o.Model, echo.Shape{StepMicros: 4000}))
			}
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			i := slices.IndexFunc(r.Results, func(x Result) bool { return x.Name == m.check })
			require.Equal(t, Failed, r.Results[i].Status, r.Results[i].Reason)
			require.Contains(t, r.Results[i].Reason, m.says)
			require.False(t, r.OK())
		})
	}
}
