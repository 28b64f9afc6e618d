package plugin

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Server answers the contract for one Family. Main serves it over go-plugin; tests register it on any gRPC server.
type Server struct {
	cladev1.UnimplementedPluginServiceServer

	family   Family
	manifest *family.Manifest
	options  map[string]bool
	started  time.Time
	pace     *pace // of tokens
	// exit ends the process after a Shutdown; nil in tests.
	exit func()

	loadOnce sync.Once
	loadErr  error

	mu       sync.Mutex
	runtime  *cladev1.Runtime
	devices  []*cladev1.Device
	planned  *cladev1.PlanRequest // the last one that succeeded
	opening  bool
	model    Model
	draining bool
	active   map[*job]struct{}
	idle     chan struct{} // closed while no job is active
}

// job is one running Open, Generate or Score.
type job struct{ cancel context.CancelCauseFunc }

// NewServer checks the Family and makes its Server.
func NewServer(f Family) (*Server, error) {
	m, err := parseManifest(f.Manifest)
	if err != nil {
		return nil, err
	}
	s := &Server{
		family: f, manifest: m, options: map[string]bool{}, started: time.Now(), pace: newPace(),
		active: map[*job]struct{}{}, idle: make(chan struct{}),
	}
	close(s.idle)
	for _, o := range f.Options {
		s.options[o.Path] = true
	}
	for _, t := range f.Tables {
		if err := m.CheckTable(t); err != nil {
			return nil, err
		}
	}
	if err := implementations(m, f.Implementations); err != nil {
		return nil, err
	}
	return s, nil
}

// Register adds the Server to a gRPC server.
func (s *Server) Register(g *grpc.Server) { cladev1.RegisterPluginServiceServer(g, s) }

// backendRPCs is what a plugin with a Backend serves beyond Describe and Shutdown.
var backendRPCs = []string{"Inspect", "Plan", "Open", "Generate", "Score", "Stats", "Tune"}

// Describe never fails for a reason of the model's or the runtime's.
func (s *Server) Describe(_ context.Context, req *cladev1.DescribeRequest) (*cladev1.DescribeResponse, error) {
	if err := s.known(req); err != nil {
		return nil, contract.ToStatus(err)
	}
	r := &cladev1.DescribeResponse{
		Name: s.manifest.Name, Version: s.manifest.Version, ContractVersions: []uint32{contract.Major},
		ManifestJson: s.manifest.JSON(), GraphTables: s.family.Tables, Implementations: implementationsOf(s.manifest),
		Options: s.family.Options, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if s.family.Backend != nil {
		r.Rpcs = backendRPCs
		if embeds(s.manifest) {
			r.Rpcs = append(slices.Clone(r.Rpcs), "Embed")
		}
		if s.options[adapterOption] {
			r.Rpcs = append(slices.Clone(r.Rpcs), "Adapters")
		}
	}
	err := s.guard("Describe", func() error {
		if s.family.Kernels != nil {
			r.Kernels = s.family.Kernels()
		}
		return nil
	})
	s.mu.Lock()
	r.Runtime, r.Devices = s.runtime, s.devices
	s.mu.Unlock()
	return r, contract.ToStatus(err)
}

// Inspect asks the Backend for what the record's data cannot express.
func (s *Server) Inspect(ctx context.Context, req *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
	if err := s.known(req); err != nil {
		return nil, contract.ToStatus(err)
	}
	if err := s.able(contract.UnsupportedModel); err != nil {
		return nil, contract.ToStatus(err)
	}
	var r *cladev1.InspectResponse
	err := s.guard("Inspect", func() (err error) {
		r, err = s.family.Backend.Inspect(ctx, req)
		return err
	})
	return r, contract.ToStatus(err)
}

// Plan checks the request against manifest and options, loads the runtime, and asks the Backend.
func (s *Server) Plan(ctx context.Context, req *cladev1.PlanRequest) (*cladev1.PlanResponse, error) {
	if err := s.known(req); err != nil {
		return nil, contract.ToStatus(err)
	}
	p, err := s.plan(ctx, req)
	if err != nil {
		return nil, contract.ToStatus(err)
	}
	s.mu.Lock()
	s.planned = proto.Clone(req).(*cladev1.PlanRequest)
	s.mu.Unlock()
	return &cladev1.PlanResponse{Plan: p}, nil
}

func (s *Server) plan(ctx context.Context, req *cladev1.PlanRequest) (p *cladev1.Plan, err error) {
	if err := s.able(contract.UnsupportedModel); err != nil {
		return nil, err
	}
	if err := assert(s.manifest, req.Model); err != nil {
		return nil, err
	}
	if err := s.declared(req.Model.Composition); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	err = s.guard("Plan", func() (err error) {
		p, err = s.family.Backend.Plan(ctx, req)
		return err
	})
	if err == nil && p == nil {
		err = contract.Errorf(contract.Internal, s.manifest.Name, "the backend made no plan and no error")
	}
	return p, err
}

// able refuses what needs a Backend in a plugin that only announces its families.
func (s *Server) able(kind contract.Kind) error {
	if s.family.Backend != nil {
		return nil
	}
	return contract.Errorf(kind, s.manifest.Name, "version %s announces these families and cannot run them yet",
		s.manifest.Version).WithNext("they come with version %s", since(s.manifest))
}

// load opens the runtime once and remembers how that went.
func (s *Server) load() error {
	s.loadOnce.Do(func() {
		dir := os.Getenv(contract.EnvRuntime)
		if dir == "" {
			s.loadErr = contract.Errorf(contract.PluginMismatch, contract.EnvRuntime, "no runtime directory is set").
				WithNext("start the plugin through clade, which passes one")
			return
		}
		s.loadErr = s.guard("LoadRuntime", func() error {
			r, d, err := s.family.Backend.LoadRuntime(dir)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.runtime, s.devices = r, d
			return err
		})
	})
	return s.loadErr
}

// guard runs fn and turns a panic into an Internal error with its first line; the stack goes to stderr, indented so that
// nobody takes it for a crash.
func (s *Server) guard(what string, fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(fmt.Sprint(r)), "\n")
			fmt.Fprintf(os.Stderr, "recovered in %s: %s\n  %s\n", what, first,
				strings.ReplaceAll(strings.TrimSpace(string(debug.Stack())), "\n", "\n  "))
			err = contract.Errorf(contract.Internal, s.manifest.Name, "%s failed: %s", what, first).
				WithNext("this is a defect of the plugin; its stderr has the stack")
		}
	}()
	return fn()
}

// Stats answers with or without a model.
func (s *Server) Stats(_ context.Context, req *cladev1.StatsRequest) (*cladev1.StatsResponse, error) {
	if err := s.known(req); err != nil {
		return nil, contract.ToStatus(err)
	}
	s.mu.Lock()
	model := s.model
	s.mu.Unlock()
	r := &cladev1.StatsResponse{}
	err := s.guard("Stats", func() error {
		if model != nil {
			r = model.Stats()
		}
		return nil
	})
	if err != nil {
		return nil, contract.ToStatus(err)
	}
	r.UptimeNs = uint64(time.Since(s.started))
	return r, nil
}

// Tune passes the share of threads on.
func (s *Server) Tune(ctx context.Context, req *cladev1.TuneRequest) (*cladev1.TuneResponse, error) {
	if err := s.known(req); err != nil {
		return nil, contract.ToStatus(err)
	}
	if req.GetThreads() == 0 {
		return nil, contract.ToStatus(contract.Errorf(contract.InvalidArgument, "threads", "at least one is needed"))
	}
	model, err := s.opened()
	if err != nil {
		return nil, contract.ToStatus(err)
	}
	r := &cladev1.TuneResponse{}
	err = s.guard("Tune", func() (err error) {
		r.Threads, err = model.Tune(ctx, req.GetThreads())
		return err
	})
	return r, contract.ToStatus(err)
}

// adapterOption is the option of families whose requests choose adapters.
const adapterOption = "adapter"

// Adapters loads, unloads and lists adapters of the open model.
func (s *Server) Adapters(parent context.Context, req *cladev1.AdaptersRequest) (*cladev1.AdaptersResponse, error) {
	if !s.options[adapterOption] {
		return s.UnimplementedPluginServiceServer.Adapters(parent, req)
	}
	if err := s.known(req); err != nil {
		return nil, contract.ToStatus(err)
	}
	model, err := s.opened()
	if err != nil {
		return nil, contract.ToStatus(err)
	}
	ctx, end, err := s.begin(parent)
	if err != nil {
		return nil, contract.ToStatus(err)
	}
	defer end()
	var r *cladev1.AdaptersResponse
	err = s.guard("Adapters", func() (err error) {
		a, ok := model.(Adapter)
		if !ok {
			return contract.Errorf(contract.UnsupportedOption, "adapters", "the open model takes none")
		}
		r, err = a.Adapters(ctx, req)
		return err
	})
	return r, contract.ToStatus(err)
}

func (s *Server) opened() (Model, error) {
	if err := s.able(contract.UnsupportedOption); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return nil, contract.Errorf(contract.Unavailable, s.manifest.Name, "the plugin is shutting down")
	case s.model == nil:
		return nil, contract.Errorf(contract.Unavailable, s.manifest.Name, "no model is open in this process")
	}
	return s.model, nil
}
