package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Process is one running plugin. Its methods may be called concurrently.
type Process struct {
	spec    Spec
	child   *process
	client  *goplugin.Client
	release func() // removes the private directory
	conn    *grpc.ClientConn
	rpc     cladev1.PluginServiceClient

	done    chan struct{} // closed once the cause of death is known
	cleaned chan struct{} // closed once sockets, goroutines and files are gone

	mu       sync.Mutex
	dialed   []*grpc.ClientConn
	streams  map[*watched]struct{}
	stopping bool
	err      error
}

// Start starts the plugin and returns once it is healthy. When ctx ends earlier, nothing is left behind.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	spec, err := spec.complete()
	if err != nil {
		return nil, err
	}
	dir, release, err := privateDir()
	if err != nil {
		return nil, err
	}
	p := &Process{
		spec: spec, child: newProcess(spec), release: release,
		done: make(chan struct{}), cleaned: make(chan struct{}), streams: map[*watched]struct{}{},
	}
	p.client = goplugin.NewClient(p.config(dir))
	ctx, cancel := context.WithTimeoutCause(ctx, spec.StartTimeout, errNoHandshake)
	defer cancel()
	connected := make(chan error, 1)
	go func() { connected <- p.connect(ctx) }()
	select {
	case err = <-connected:
	case <-ctx.Done():
		p.child.kill(p.gaveUp(ctx))
		<-connected
		err = p.gaveUp(ctx)
	}
	if err != nil {
		return nil, p.abandon(ctx, err)
	}
	go p.watch()
	spec.Logger.Debug("plugin is ready", "plugin", spec.name(), "pid", p.child.pid)
	return p, nil
}

// errNoHandshake is the cause of a start that took too long.
var errNoHandshake = errors.New("never handshook")

func (p *Process) gaveUp(ctx context.Context) error {
	if !errors.Is(context.Cause(ctx), errNoHandshake) {
		return contract.Errorf(contract.Cancelled, p.spec.name(), "start: %w", context.Cause(ctx))
	}
	words := ""
	if w := p.child.journal.lastWords(); w != "" {
		words = "; its last words: " + w
	}
	return contract.Errorf(contract.PluginCrashed, p.spec.name(), "%w within %s and was killed%s", errNoHandshake,
		p.spec.StartTimeout, words)
}

func (p *Process) config(dir string) *goplugin.ClientConfig {
	sync := func() io.Writer { return &lineWriter{sink: p.child.journal.line} }
	return &goplugin.ClientConfig{
		HandshakeConfig: contract.Handshake(),
		VersionedPlugins: map[int]goplugin.PluginSet{
			contract.Major: {contract.DispenseName: dialedPlugin{}},
		},
		RunnerFunc:       p.child.runner,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: dir},
		// Ours is the shorter one: it also covers the connection.
		StartTimeout: 2 * p.spec.StartTimeout,
		Logger:       hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}),
		SyncStdout:   sync(),
		SyncStderr:   sync(),
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(contract.MaxMessage),
				grpc.MaxCallSendMsgSize(contract.MaxMessage)),
			grpc.WithChainStreamInterceptor(p.remember),
		},
	}
}

// remember notes the connections that go-plugin makes: it does not close one over which its first call failed.
func (p *Process) remember(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, next grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if !strings.HasPrefix(method, "/clade.") {
		p.mu.Lock()
		if !slices.Contains(p.dialed, c) {
			p.dialed = append(p.dialed, c)
		}
		p.mu.Unlock()
	}
	return next(ctx, desc, c, method, opts...)
}

// cleanUp closes what is left of a process that has ended.
func (p *Process) cleanUp() {
	p.client.Kill() // closes the connection and go-plugin's goroutines
	p.mu.Lock()
	dialed := p.dialed
	p.mu.Unlock()
	for _, c := range dialed {
		_ = c.Close()
	}
	p.release()
}

// dialedPlugin is the go-plugin face of our client: the connection itself.
type dialedPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (dialedPlugin) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return fmt.Errorf("the host side has no server")
}

func (dialedPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

// connect starts the child and its connection. It ends when the child does.
func (p *Process) connect(ctx context.Context) error {
	c, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := c.Dispense(contract.DispenseName)
	if err != nil {
		return err
	}
	p.conn = raw.(*grpc.ClientConn)
	p.rpc = cladev1.NewPluginServiceClient(p.conn)
	return p.health(ctx)
}

// abandon ends a failed start and says why it failed: our own reason, the handshake's, or the death's.
func (p *Process) abandon(ctx context.Context, err error) error {
	defer p.cleanUp()
	if p.child.pid == 0 {
		return contract.Errorf(contract.PluginCrashed, p.spec.name(), "cannot be started: %w", err)
	}
	var mine *contract.Error
	died := false
	if !errors.As(err, &mine) {
		// The connection failed: the child is dying by itself, or refused, or it is broken and alive.
		select {
		case <-p.child.ended:
			died = true
		case <-time.After(drainAfterExit):
		}
	}
	p.child.kill(nil)
	<-p.child.exited
	switch {
	case p.child.refused() != nil:
		return p.child.refused()
	case mine != nil:
		return mine
	case died:
		e := p.child.death().(*contract.Error)
		return contract.Errorf(e.Kind, e.Subject, "ended before it was ready: %s", e.Message)
	}
	return contract.Errorf(contract.PluginCrashed, p.spec.name(), "cannot be reached after its start: %w", err)
}

// watch ends with the process.
func (p *Process) watch() {
	<-p.child.exited
	p.mu.Lock()
	if !p.stopping || !p.child.obeyed() {
		p.err = p.child.death()
	}
	err := p.err
	p.mu.Unlock()
	close(p.done)
	if err != nil {
		p.spec.Logger.Warn("plugin died", "plugin", p.spec.name(), "cause", err)
	} else {
		p.spec.Logger.Debug("plugin stopped", "plugin", p.spec.name())
	}
	p.cleanUp()
	close(p.cleaned)
}

// State is where the process stands in its life.
func (p *Process) State() State {
	select {
	case <-p.done:
		return Dead
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopping:
		return Draining
	case len(p.streams) > 0:
		return Busy
	}
	return Ready
}

// Pid is the process id, for `ps` and logs; never kill by it.
func (p *Process) Pid() int { return p.child.pid }

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is the first cause of death: nil while alive, and after a Stop that the plugin obeyed.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Output is what the plugin printed last, for reports.
func (p *Process) Output() []string { return p.child.journal.all() }

// Health asks the plugin's health service.
func (p *Process) Health(ctx context.Context) error {
	return p.call(ctx, quickCall, "health", p.health)
}

func (p *Process) health(ctx context.Context) error {
	r, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	if err == nil && r.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		err = contract.Errorf(contract.Unavailable, p.spec.name(), "reports health %s", r.Status)
	}
	return err
}

// Stop asks the plugin to drain and exit, and kills its group when ctx, or ten seconds, have passed. It returns when
// everything of the process is gone; an error says that it had to be killed or had died before.
func (p *Process) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, defaultStop)
	defer cancel()
	p.mu.Lock()
	first := !p.stopping
	p.stopping = true
	p.mu.Unlock()
	if first {
		// Leave the plugin a fifth of the time to free its model after the drain.
		deadline, _ := ctx.Deadline()
		drain := uint64(max(0, time.Until(deadline)*4/5))
		_, err := p.rpc.Shutdown(ctx, &cladev1.ShutdownRequest{DrainNs: &drain})
		if status.Code(err) == codes.Unimplemented {
			p.child.kill(nil)
		}
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.child.kill(contract.Errorf(contract.PluginCrashed, p.spec.name(), "did not stop in time and was killed"))
	}
	<-p.cleaned
	return p.Err()
}

// Kill ends the process group at once and returns when everything of it is gone.
func (p *Process) Kill() {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	p.child.kill(nil)
	<-p.cleaned
}
