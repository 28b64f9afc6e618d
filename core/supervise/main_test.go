//go:build linux || darwin

package supervise

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// soon is how long a loaded machine may take for what happens at once.
const soon = 20 * time.Second

// The test binary is also the plugin (envPlugin names how it behaves) and the host that is killed (envHost).
const (
	envPlugin = "CLADE_TEST_PLUGIN"
	envHost   = "CLADE_TEST_HOST"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(envPlugin); mode != "" {
		actPlugin(mode)
		return
	}
	if mode := os.Getenv(envHost); mode != "" {
		actHost(mode)
		return
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// actHost starts a good plugin, says its pid and waits to be killed.
func actHost(mode string) {
	exe, _ := os.Executable()
	mode, quiet := strings.CutSuffix(mode, ", liveness off")
	env := []string{envPlugin + "=" + mode}
	if quiet {
		env = append(env, contract.EnvLiveness+"=")
	}
	p, err := Start(context.Background(), Spec{Path: exe, Env: env})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(p.Pid())
	time.Sleep(time.Minute)
}

//go:embed testdata/plugin.yaml
var echoManifest []byte

const million = 1 << 20

// actPlugin is the plugin's main in each way that a plugin may go wrong.
func actPlugin(mode string) {
	switch mode {
	case "good":
	case "garbage on stdout":
		fmt.Println("MLX error: \x1b[31mno device\xff at fast.cpp:1")
		time.Sleep(time.Minute)
	case "1 MB on stdout":
		_, _ = os.Stdout.WriteString(strings.Repeat("x", million))
		time.Sleep(time.Minute)
	case "1 MB line on stderr":
		_, _ = os.Stderr.WriteString(strings.Repeat("y", million) + "\nafter it\n")
	case "1 MB on stderr without end":
		_, _ = os.Stderr.WriteString(strings.Repeat("y", million))
	case "json with a number on stderr":
		fmt.Fprintln(os.Stderr, `{"@message":1}`)
		fmt.Fprintln(os.Stderr, `{"@level":[],"@timestamp":{}}`)
	case "never handshakes":
		fmt.Fprintln(os.Stderr, "loading a very large table")
		time.Sleep(time.Minute)
	case "exits at once":
		fmt.Fprintln(os.Stderr, "no such licence")
		os.Exit(3)
	case "exits without a word":
		os.Exit(0)
	case "panics":
		panic("boom at start")
	case "aborts":
		fmt.Fprintln(os.Stderr, "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc")
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		time.Sleep(time.Minute)
	case "grandchild holds the pipes and it exits":
		startGrandchild(false)
		os.Exit(4)
	case "escaped grandchild holds the pipes and it exits":
		startGrandchild(true)
		os.Exit(4)
	case "good without parent-death signal":
		clearParentDeathSignal()
	case "good with grandchild":
		startGrandchild(false)
	case "other contract":
		serveContract(2)
	case "deaf":
		serveDeaf()
	case "listens elsewhere":
		fmt.Printf("1|1|unix|/tmp/elsewhere.sock|grpc|%s\n", strings.Repeat("A", 80))
		time.Sleep(time.Minute)
	case "no certificate":
		fmt.Printf("1|1|unix|%s/s|grpc|\n", os.Getenv("PLUGIN_UNIX_SOCKET_DIR"))
		time.Sleep(time.Minute)
	}
	plugin.Main(plugin.Family{
		Manifest: echoManifest, Backend: echo{},
		Options: []*cladev1.Option{{Path: "device"}, {Path: "max_tokens"}},
	})
}

func startGrandchild(escape bool) {
	c := exec.Command("sleep", "60")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if escape {
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "grandchild %d\n", c.Process.Pid)
}

func serveContract(version int) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  contract.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{version: {contract.DispenseName: emptyPlugin{}}},
		GRPCServer:       func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
	})
	os.Exit(0)
}

// emptyPlugin serves no service of ours.
type emptyPlugin struct{ dialedPlugin }

func (emptyPlugin) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error { return nil }

// serveDeaf shakes hands properly and then accepts nothing.
func serveDeaf() {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, _ := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	path := filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "deaf")
	l, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	defer func() { _ = l.Close() }()
	fmt.Printf("1|1|unix|%s|grpc|%s\n", path, base64.RawStdEncoding.EncodeToString(der))
	time.Sleep(time.Minute)
}

// echo is the test plugin's Backend and Model: Generate answers its prompt, or misbehaves as the request id says.
type echo struct{}

func (echo) LoadRuntime(string) (*cladev1.Runtime, []*cladev1.Device, error) {
	return &cladev1.Runtime{}, nil, nil
}

func (echo) Inspect(context.Context, *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
	return &cladev1.InspectResponse{}, nil
}

func (echo) Plan(_ context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error) {
	return &cladev1.Plan{GraphEntry: req.Model.GraphEntry, TotalBytes: 7}, nil
}

func (echo) Open(_ context.Context, _ *cladev1.OpenRequest, report func(*cladev1.OpenResponse)) (plugin.Model, error) {
	report(&cladev1.OpenResponse{Event: &cladev1.OpenResponse_Load{Load: &cladev1.LoadProgress{Phase: "weights"}}})
	return echo{}, nil
}

func (echo) Facts() *cladev1.ModelFacts {
	return &cladev1.ModelFacts{Family: "echo", Graph: "example.org/echo"}
}

func (echo) Generate(ctx context.Context, job *plugin.GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
	step := func(id int32) error {
		return emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: &cladev1.TokenStep{Ids: []int32{id}}}})
	}
	if err := step(-1); err != nil {
		return err
	}
	time.Sleep(20 * time.Millisecond) // so that the first step has left
	switch job.Start.RequestId {
	case "panic":
		panic("bad row\nsecond line")
	case "crash":
		go func() { panic("device lost") }()
		<-ctx.Done()
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-ctx.Done()
	case "c output":
		_, _ = syscall.Write(1, []byte("printf from C on descriptor 1\n"))
		fmt.Println("go output after serve")
	case "last words":
		fmt.Fprintln(os.Stderr, "fatal error: said through os.Stderr")
		os.Exit(9)
	case "wait":
		<-ctx.Done()
		return ctx.Err()
	case "until told":
		c := <-job.Control
		_ = step(int32(c.GetStopAt()))
	}
	for _, id := range job.IDs {
		if err := step(id); err != nil {
			return err
		}
	}
	return emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Finish{Finish: &cladev1.Finish{
		Reason: cladev1.FinishReason_FINISH_REASON_STOP,
		Usage:  &cladev1.Usage{PromptTokens: uint32(len(job.IDs))},
	}}})
}

func (echo) Score(_ context.Context, job *plugin.ScoreJob, emit func(*cladev1.ScoreResponse) error) error {
	for i, id := range job.IDs {
		for _, f := range plugin.FrameRow(uint32(i), []float32{float32(id)}) {
			if err := emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Frame{Frame: f}}); err != nil {
				return err
			}
		}
	}
	return emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Done{Done: &cladev1.Usage{}}})
}

// Embed answers the ids. With the id 9 first it never does.
func (echo) Embed(ctx context.Context, job *plugin.EmbedJob) (*cladev1.EmbedResponse, error) {
	if len(job.IDs) > 0 && job.IDs[0] == 9 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r := &cladev1.EmbedResponse{Usage: &cladev1.Usage{}}
	for _, id := range job.IDs {
		r.Values = append(r.Values, float32(id))
	}
	return r, nil
}

func (echo) Stats() *cladev1.StatsResponse                          { return &cladev1.StatsResponse{} }
func (echo) Tune(_ context.Context, threads uint32) (uint32, error) { return threads, nil }
func (echo) Close() error                                           { return nil }

// firstLine reads one line of a killed-host test's child.
func firstLine(r io.Reader) string {
	s := bufio.NewScanner(r)
	s.Scan()
	return s.Text()
}
