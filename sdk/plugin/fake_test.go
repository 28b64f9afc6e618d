package plugin

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

//go:embed testdata/plugin.yaml
var fakeManifest []byte

// fake is a Backend and Model whose calls a test fills in.
type fake struct {
	load     func(dir string) error
	plan     func(*cladev1.PlanRequest) (*cladev1.Plan, error)
	open     func(ctx context.Context) error
	generate func(ctx context.Context, job *GenerateJob, emit func(*cladev1.GenerateResponse) error) error
	facts    *cladev1.ModelFacts
	loads    atomic.Int32
	closed   atomic.Int32
	counts   atomic.Uint64
}

func (f *fake) LoadRuntime(dir string) (*cladev1.Runtime, []*cladev1.Device, error) {
	f.loads.Add(1)
	if f.load != nil {
		return nil, nil, f.load(dir)
	}
	return &cladev1.Runtime{Dir: dir}, []*cladev1.Device{{Id: "cpu"}}, nil
}

func (f *fake) Inspect(context.Context, *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
	panic("no inspection")
}

func (f *fake) Plan(_ context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error) {
	if f.plan != nil {
		return f.plan(req)
	}
	return &cladev1.Plan{TotalBytes: 7}, nil
}

func (f *fake) Open(ctx context.Context, _ *cladev1.OpenRequest, report func(*cladev1.OpenResponse)) (Model, error) {
	report(&cladev1.OpenResponse{Event: &cladev1.OpenResponse_Load{Load: &cladev1.LoadProgress{Phase: "weights"}}})
	if f.open != nil {
		if err := f.open(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fake) Facts() *cladev1.ModelFacts {
	if f.facts != nil {
		return f.facts
	}
	return &cladev1.ModelFacts{ContextLength: 8}
}

func (f *fake) Generate(ctx context.Context, job *GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
	return f.generate(ctx, job, emit)
}

func (f *fake) Score(_ context.Context, job *ScoreJob, emit func(*cladev1.ScoreResponse) error) error {
	for i, id := range job.IDs {
		for _, fr := range FrameRow(uint32(i), []float32{float32(id)}) {
			if err := emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Frame{Frame: fr}}); err != nil {
				return err
			}
		}
	}
	return emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Done{Done: &cladev1.Usage{}}})
}

func (f *fake) Stats() *cladev1.StatsResponse                    { return &cladev1.StatsResponse{Evaluations: 3} }
func (f *fake) Tune(_ context.Context, n uint32) (uint32, error) { return n, nil }
func (f *fake) Close() error                                     { f.closed.Add(1); return nil }
func (f *fake) Progress() (uint64, uint64)                       { return f.counts.Add(1), 0 }

// finish is a Generate that says only that it is done.
func finish(_ context.Context, _ *GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
	return emit(done())
}

func done() *cladev1.GenerateResponse {
	return &cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Finish{Finish: &cladev1.Finish{}}}
}

func step(ids ...int32) *cladev1.GenerateResponse {
	return &cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: &cladev1.TokenStep{Ids: ids}}}
}

// serveFake serves a Family on a connection in memory.
func serveFake(t *testing.T, backend Backend, options ...string) (*Server, cladev1.PluginServiceClient) {
	t.Helper()
	t.Setenv(contract.EnvRuntime, "/runtime")
	f := Family{Manifest: fakeManifest, Backend: backend}
	for _, o := range append([]string{"device"}, options...) {
		f.Options = append(f.Options, &cladev1.Option{Path: o})
	}
	s, err := NewServer(f)
	require.NoError(t, err)
	lis := bufconn.Listen(1 << 16)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(contract.MaxMessage))
	s.Register(g)
	go func() { _ = g.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return lis.Dial() }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(); g.Stop() })
	return s, cladev1.NewPluginServiceClient(conn)
}

// echoModel is a model of the family on disk; tests only read it.
var echoModel = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "clade-echo-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), []byte(echoConfig), 0o600)
	}
	if err == nil {
		err = artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), []artifact.NewTensor{{Name: "x", DType: artifact.F32, Shape: []int64{1}, Data: make([]byte, 4)}}, nil)
	}
	if err != nil {
		panic(err)
	}
	return dir
})

const echoConfig = `{"model_type":"echo"}`

// spec is what a host decides of the model.
func spec(change ...func(*cladev1.ModelSpec)) *cladev1.ModelSpec {
	device := "cpu"
	manifest, err := family.ParseManifest(fakeManifest)
	if err != nil {
		panic(err)
	}
	cfg, err := artifact.ParseConfig("config.json", []byte(echoConfig))
	if err != nil {
		panic(err)
	}
	parsed, err := manifest.Families[0].ParseConfig(cfg, artifact.Config{})
	if err != nil {
		panic(err)
	}
	fingerprint, err := parsed.ConfigFingerprint()
	if err != nil {
		panic(err)
	}
	m := &cladev1.ModelSpec{
		Artifacts: []*cladev1.Artifact{{Role: cladev1.Role_ROLE_TARGET, Path: echoModel(), Format: "safetensors"}},
		Graph:     "example.org/echo",
		Profile: &cladev1.Profile{
			Id: "echo-resident", Loader: "safetensors", Loop: "autoregressive", Fidelity: "l3-measured", Specialization: "dedicated",
			RequiredCapabilities: []string{"autoregressive", "chat", "safetensors"}, ConfigFingerprint: &fingerprint,
		},
		Composition: &cladev1.Composition{Device: &device}, ConfigFingerprint: fingerprint, ParsedConfigJson: parsed.JSON(),
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// openModel opens with the plan that the fake makes.
func openModel(ctx context.Context, c cladev1.PluginServiceClient, m *cladev1.ModelSpec, p *cladev1.Plan) ([]*cladev1.OpenResponse, error) {
	stream, err := c.Open(ctx, &cladev1.OpenRequest{Model: m, Plan: p})
	if err != nil {
		return nil, err
	}
	return drainStream(stream.Recv)
}

func opened(t *testing.T, backend *fake, options ...string) (*Server, cladev1.PluginServiceClient) {
	t.Helper()
	s, c := serveFake(t, backend, options...)
	_, err := openModel(t.Context(), c, spec(), &cladev1.Plan{TotalBytes: 7})
	require.NoError(t, err)
	return s, c
}

// drainStream receives to the end; the error is nil at io.EOF, else the contract's.
func drainStream[T any](recv func() (T, error)) (all []T, err error) {
	for {
		m, err := recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, contract.FromStatus(err)
		}
		all = append(all, m)
	}
}

// request sends messages and receives to the end.
func request(ctx context.Context, t *testing.T, c cladev1.PluginServiceClient, messages ...*cladev1.GenerateRequest) ([]*cladev1.GenerateResponse, error) {
	t.Helper()
	stream, err := c.Generate(ctx)
	require.NoError(t, err)
	for _, m := range messages {
		if stream.Send(m) != nil {
			break
		}
	}
	return drainStream(stream.Recv)
}

func startMsg(s *cladev1.GenerateStart) *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Start{Start: s}}
}

func idsMsg(ids ...int32) *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Ids{Ids: &cladev1.IdsChunk{Ids: ids}}}
}

func mediaMsg(m *cladev1.MediaChunk) *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Media{Media: m}}
}

func endMsg() *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}}
}

func controlMsg(c *cladev1.Control) *cladev1.GenerateRequest {
	return &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Control{Control: c}}
}

// withUnknown adds field 77 to m.
func withUnknown[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1))
	return m
}

func kindIs(t *testing.T, err error, kind contract.Kind, parts ...string) {
	t.Helper()
	require.Error(t, err)
	err = contract.FromStatus(err)
	require.Equal(t, kind.String(), contract.KindOf(err).String(), err.Error())
	require.NotContains(t, err.Error(), "\n")
	for _, part := range parts {
		require.Contains(t, err.Error(), part)
	}
}
