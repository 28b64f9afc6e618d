// Package serve is the HTTP server: it listens, guards, answers health, and drains. The APIs over it are its subpackages.
//
// Who may talk to it:
//   - By default it listens on loopback. Another address needs an API key, or insecure_no_auth said out loud.
//   - With an API key every request but GET /health carries it: "Authorization: Bearer KEY" or "X-Api-Key: KEY".
//   - The Host header must be an IP literal, localhost, this machine's name or an allowed host: a web page whose name was
//     rebound to this address is refused. A browser's cross-origin request that could change something is refused.
//
// Adapters of a model are loaded and unloaded while it is served: by this user's own command line (admin), and by clients where
// AdapterDir says from which folder. A model that is opened anew gets them again (adapters.go).
//
// Its life: New, Run (opens the models unless lazy, then listens), and when Run's context ends: health says draining,
// new requests are refused as unavailable, running ones get the drain time, then their contexts end, then the models close.
//
// Invariants: one models' engine process each; a dead one is started again in the background, and health says 503 until
// it is ready. Not for: what a request means (serve/openai) or how a model runs (core/loader).
package serve

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/core/serve/anthropic"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/core/serve/trace"
	"github.com/clademl/clade/sdk/contract"
)

// Options of a server; every field has a meaning at zero except DrainTimeout, where zero waits for nobody.
type Options struct {
	Host            string
	Port            uint16
	APIKey          string
	AllowedHosts    []string
	InsecureNoAuth  bool
	DrainTimeout    time.Duration
	MaxRequestBytes uint64
	// Lazy opens a model at its first request.
	Lazy bool
	// KeepAlive unloads a model that was not used for so long; negative: never, zero: at once.
	KeepAlive time.Duration
	// VolatileHeaders leaves lines of system prompts in that change with every request.
	VolatileHeaders bool
	// AdapterDir is the folder that clients may load adapters from; empty: they may load none.
	AdapterDir string
	// StateDir is where the command line looks for running servers; empty: nowhere.
	StateDir string
	// Cores are divided over the open models; zero: the machine's.
	Cores  int
	Logger *slog.Logger
	// Tracer is told of every generating request; nil: none is. The caller closes it.
	Tracer *trace.Tracer
	// Listening is told the address once the server accepts connections.
	Listening func(addr net.Addr)
}

// Limits of a connection. There is no write timeout, as a stream lasts as long as its generation, and no read timeout of the
// server's own, as its deadline would end a stream that outlives it; guard sets one for the body alone.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 60 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	defaultBody   = 32 << 20
	// closeTimeout is what the models get to end after the last request has.
	closeTimeout = 10 * time.Second
)

// Server serves models.
type Server struct {
	o Options
	// bodyTime is bodyTimeout, shorter in tests.
	bodyTime time.Duration
	registry *registry
	token    string // of admin; empty: nobody may
	drain    drainState
}

// New makes a server of the given models. It refuses a reachable address without a key.
func New(o Options, models []Served) (*Server, error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = defaultBody
	}
	if o.Cores == 0 {
		o.Cores = runtime.GOMAXPROCS(0)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if !isLoopback(o.Host) && o.APIKey == "" && !o.InsecureNoAuth {
		return nil, contract.Errorf(contract.InvalidArgument, "host", "%s can be reached by others and no API key is set", o.Host).
			WithNext("set --api-key or CLADE_SERVE_API_KEY, or --insecure-no-auth")
	}
	reg, err := newRegistry(models, o.KeepAlive, o.Cores, o.Logger)
	if err != nil {
		return nil, err
	}
	reg.meter.verbatim, reg.meter.tracer = o.VolatileHeaders, o.Tracer
	if o.Tracer != nil {
		reg.meter.set.NewGauge("clade:trace_spans_dropped_total", func() float64 { return float64(o.Tracer.Dropped()) })
	}
	s := &Server{o: o, bodyTime: bodyTimeout, registry: reg}
	if o.StateDir != "" {
		s.token = admin.NewToken()
	}
	return s, nil
}

// Handler is the server's HTTP surface, as Run serves it.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range s.routes() {
		mux.HandleFunc(pattern, answer)
	}
	mux.Handle(admin.Prefix, admin.New(s, s.token))
	return s.guard(s.o.Tracer.Handler(jsonErrors(mux)))
}

// routes are the endpoints for clients; docs/command-line.md lists them.
func (s *Server) routes() map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{"GET /health": s.health, "GET /metrics": s.registry.metrics, "GET /{$}": welcome}
	maps.Copy(all, openai.New(s.registry).Routes())
	maps.Copy(all, anthropic.New(s.registry).Routes())
	maps.Copy(all, s.adapterRoutes())
	return all
}

// welcome tells a browser where it is.
func welcome(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("clade is running; see GET /v1/models\n")) // a client that left needs no answer
}

// Run listens and serves until ctx ends, then drains. A drain that ended on time returns nil.
func (s *Server) Run(ctx context.Context) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(s.o.Host, strconv.Itoa(int(s.o.Port))))
	if err != nil {
		return contract.Errorf(contract.Unavailable, "port", "%w", err).WithNext("choose another with --port; 0 is any free one")
	}
	work, endWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endWork(nil)
	s.registry.start(work)
	defer s.closeModels(ctx)
	if !s.o.Lazy {
		if err := s.registry.openAll(ctx); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return work },
		ErrorLog:    slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer s.publish(listener.Addr())()
	if s.o.Listening != nil {
		s.o.Listening(listener.Addr())
	}
	select {
	case err := <-served:
		return contract.Errorf(contract.Internal, "server", "%w", err)
	case <-ctx.Done():
	}
	return s.shutdown(ctx, server, endWork)
}

// shutdown drains: running requests get DrainTimeout, then their contexts end with Unavailable.
func (s *Server) shutdown(ctx context.Context, server *http.Server, endWork context.CancelCauseFunc) error {
	s.drain.begin()
	s.o.Logger.Info("draining", "timeout", s.o.DrainTimeout)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.DrainTimeout)
	defer cancel()
	err := s.drain.wait(limit)
	endWork(contract.Errorf(contract.Unavailable, "server", "stopped before the request ended"))
	grace, cancelGrace := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancelGrace()
	if shutErr := server.Shutdown(grace); shutErr != nil {
		_ = server.Close() // what is left is a connection that does not read
	}
	if err != nil {
		return contract.Errorf(contract.Unavailable, "server", "%s passed before every request ended", s.o.DrainTimeout)
	}
	return nil
}

func (s *Server) closeModels(ctx context.Context) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	s.registry.close(limit)
}
