package plugin

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Main is the whole main of a plugin. It does not return.
func Main(f Family) {
	s, err := NewServer(f)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(contract.KindOf(err).ExitCode())
	}
	os.Exit(run(s, os.Args[1:]))
}

// run decides between the two questions anyone may ask and serving the host.
func run(s *Server, args []string) int {
	m := s.manifest
	switch strings.Join(args, " ") {
	case "describe":
		return describe(s, false)
	case "describe --json":
		return describe(s, true)
	case "version":
		fmt.Println(m.Name, m.Version)
		return 0
	case "":
		h := contract.Handshake()
		if os.Getenv(h.MagicCookieKey) == h.MagicCookieValue {
			serve(s)
			return 0
		}
		fmt.Fprintf(os.Stderr, "clade-%s %s is a plugin: clade starts it; try `clade run MODEL`, or `describe` or "+
			"`version` here\n", m.Name, m.Version)
		return 1
	}
	fmt.Fprintf(os.Stderr, "clade-%s: %q: a plugin knows `describe [--json]` and `version`\n", m.Name,
		strings.Join(args, " "))
	return contract.InvalidArgument.ExitCode()
}

func describe(s *Server, asJSON bool) int {
	d, err := s.Describe(context.Background(), &cladev1.DescribeRequest{})
	if err != nil {
		fmt.Fprintln(os.Stderr, contract.FromStatus(err))
		return contract.KindOf(contract.FromStatus(err)).ExitCode()
	}
	if asJSON {
		fmt.Println(protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Format(d))
		return 0
	}
	fmt.Printf("%s %s, contract %v, %s, %s\n", d.Name, d.Version, d.ContractVersions, d.Platform, d.GoVersion)
	for _, r := range s.manifest.Families {
		fmt.Printf("  graph %s: loaders %s, loop %s, profile %s\n", r.Graph, strings.Join(r.Loaders, ", "), r.Loop,
			r.Profile)
	}
	for _, k := range d.Kernels {
		fmt.Printf("  kernel %s %s: %s %s\n", k.Name, k.Signature, k.SelfTest, k.Reason)
	}
	if len(d.Rpcs) == 0 {
		fmt.Printf("  announced only; version %s runs them\n", since(s.manifest))
	}
	return 0
}

// exitDelay lets the answer to Shutdown leave before the server stops.
const exitDelay = 50 * time.Millisecond

// termGrace bounds how long a SIGTERM may take to free the model.
const termGrace = 5 * time.Second

// serve runs until the host, a signal or the liveness pipe ends it.
func serve(s *Server) {
	std, err := protectStdout()
	if err != nil {
		fmt.Fprintln(os.Stderr, "protect the handshake:", err)
		os.Exit(1)
	}
	if os.Getenv(contract.EnvLiveness) != "" {
		go func() { dieAtEOF(os.Stdin) }()
	}
	var server *grpc.Server
	s.exit = func() { time.AfterFunc(exitDelay, server.Stop) }
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole terminal; what it means is the host's to decide
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		ctx, cancel := context.WithTimeout(context.Background(), termGrace)
		defer cancel()
		_ = s.drain(ctx, 0)
		os.Exit(0)
	}()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: contract.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{
			contract.Major: {contract.DispenseName: servedPlugin{server: s}},
		},
		Logger: hclog.New(&hclog.LoggerOptions{Name: "plugin", Level: hclog.Error, Output: std.err}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			server = grpc.NewServer(append(opts,
				grpc.MaxRecvMsgSize(contract.MaxMessage), grpc.MaxSendMsgSize(contract.MaxMessage),
				grpc.ChainUnaryInterceptor(std.unary), grpc.ChainStreamInterceptor(std.stream))...)
			return server
		},
	})
	// The server was stopped: by Shutdown, or by a host that skipped it.
	ctx, cancel := context.WithTimeout(context.Background(), termGrace)
	defer cancel()
	_ = s.drain(ctx, 0)
}

// servedPlugin is the go-plugin face of a Server.
type servedPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	server *Server
}

func (p servedPlugin) GRPCServer(_ *goplugin.GRPCBroker, g *grpc.Server) error {
	p.server.Register(g)
	return nil
}

func (p servedPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("the plugin side has no client")
}

// stdio is the process's own standard files. It holds them for good: os.Stdout and os.Stderr are replaced by go-plugin, and
// a file that nobody holds is closed by its finalizer, descriptor 2 included.
type stdio struct {
	handshake, out, err *os.File
	once                sync.Once
}

// restore points os.Stdout and os.Stderr at descriptors 1 and 2 again (both the host's stderr pipe) at the first RPC,
// which is after go-plugin replaced them: the last words of a process that dies must not wait in a gRPC stream.
func (f *stdio) restore() { f.once.Do(func() { os.Stdout, os.Stderr = f.out, f.err }) }

func (f *stdio) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	f.restore()
	return next(ctx, req)
}

func (f *stdio) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	f.restore()
	return next(srv, ss)
}
