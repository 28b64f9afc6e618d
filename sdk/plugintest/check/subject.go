package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Options say what to check and with what.
type Options struct {
	// Path of the plugin's executable.
	Path string
	// Model is a folder or a .gguf file that the plugin takes; empty leaves out what needs one.
	Model string
	// Adapters are folders of adapters that fit the model; empty leaves out what needs one.
	Adapters []string
	// Runtime is the folder that the plugin gets as CLADE_RUNTIME.
	Runtime string
	// Compose changes the composition that the model is opened with; nil is fine.
	Compose func(*cladev1.Composition)
	// Env is added to what a host passes, as KEY=value.
	Env []string
	// Only are names of checks; empty is all.
	Only []string
	// Each is called after every check; nil is fine.
	Each func(Result)

	limits *limits // of tests
}

// subject is the plugin under test and what is known of it.
type subject struct {
	Options
	limits   limits
	describe *cladev1.DescribeResponse
	manifest *family.Manifest
	declared map[string]bool // options
	rpcs     map[string]bool

	// Of a model; nil without one.
	artifact *artifact.Artifact
	record   *family.Record
	spec     *cladev1.ModelSpec // with the settled composition
	planned  *cladev1.Plan
	settled  error // why there is none
	exact    bool  // deterministic was granted

	shared  *process // with an open model
	facts   *cladev1.ModelFacts
	answers map[string]*answer // of straight
	longest time.Duration      // the longest pause of any stream, and where
	where   string
	serial  int
}

func newSubject(o Options) *subject {
	s := &subject{Options: o, limits: usual, declared: map[string]bool{}, rpcs: map[string]bool{}, answers: map[string]*answer{}}
	if o.limits != nil {
		s.limits = *o.limits
	}
	return s
}

func (s *subject) close(ctx context.Context) {
	if s.shared != nil {
		s.shared.kill()
		s.shared = nil
	}
	if s.artifact != nil {
		_ = s.artifact.Close() // only read
	}
}

func (s *subject) launch() launch {
	return launch{path: s.Path, runtime: s.Runtime, env: s.Env, versions: "1", limits: s.limits}
}

// process starts another plugin process and connects. The caller kills or stops it.
func (s *subject) process(ctx context.Context) (*process, error) {
	p, err := start(ctx, s.launch())
	if err != nil {
		return nil, err
	}
	if err := p.connect(ctx); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// learn asks a fresh process who it is. Everything after the handshake stands on it.
func (s *subject) learn(ctx context.Context) error {
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	ctx, cancel := context.WithTimeout(ctx, s.limits.quick)
	defer cancel()
	if s.describe, err = p.rpc.Describe(ctx, &cladev1.DescribeRequest{}); err != nil {
		return fmt.Errorf("describe: %w", contract.FromStatus(err))
	}
	if s.manifest, err = family.ParseManifest([]byte(s.describe.ManifestJson)); err != nil {
		return fmt.Errorf("describe: manifest_json: %w", err)
	}
	for _, o := range s.describe.Options {
		s.declared[o.Path] = true
	}
	for _, r := range s.describe.Rpcs {
		s.rpcs[r] = true
	}
	return nil
}

// runs says that the plugin has a family that it does not only announce.
func (s *subject) runs() bool {
	return slices.ContainsFunc(s.manifest.Families, func(r *family.Record) bool { return r.Status == family.Available }) ||
		len(s.manifest.Implementations) > 0
}

// model reads the artifact and settles a composition by planning.
func (s *subject) model(ctx context.Context) error {
	if s.Model == "" {
		return notRun("give a model of the plugin's family")
	}
	if s.spec != nil || s.settled != nil {
		return s.settled
	}
	s.settled = s.settle(ctx)
	return s.settled
}

func (s *subject) settle(ctx context.Context) error {
	var err error
	if s.artifact, err = artifact.Open(s.Model); err != nil {
		return fmt.Errorf("the given model: %w", err)
	}
	var passed []string
	for _, r := range s.manifest.Families {
		if r.Status != family.Available {
			continue
		}
		m := r.Match(s.artifact.Config())
		if m.OK {
			s.record = r
			break
		}
		passed = append(passed, m.Failed...)
	}
	if s.record == nil {
		return fmt.Errorf("none of the plugin's families takes the given model: %s", strings.Join(passed, "; "))
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	spec, err := s.decide(ctx, p)
	if err != nil {
		return err
	}
	return s.negotiate(ctx, p, spec)
}

// decide makes what a host would send, with an open composition.
func (s *subject) decide(ctx context.Context, p *process) (*cladev1.ModelSpec, error) {
	files := []*cladev1.Artifact{{Role: cladev1.Role_ROLE_TARGET, Path: s.artifact.Path, Format: string(s.artifact.Format)}}
	var parsed family.Parsed
	var err error
	if s.record.Config.Inspect {
		r, err := p.rpc.Inspect(ctx, &cladev1.InspectRequest{Artifacts: files, Graph: s.record.Graph})
		if err != nil {
			return nil, fmt.Errorf("inspect: %w", contract.FromStatus(err))
		}
		cfg, err := artifact.ParseConfig(s.artifact.Config().Name(), []byte(r.GetParsedConfigJson()))
		if err != nil {
			return nil, fmt.Errorf("inspect: parsed_config_json: %w", err)
		}
		parsed = family.Parsed{Config: cfg, Record: s.record}
	} else if parsed, err = s.record.Parse(s.artifact); err != nil {
		return nil, fmt.Errorf("the given model: %w", err)
	}
	fingerprint, err := parsed.ConfigFingerprint()
	if err != nil {
		return nil, err
	}
	own, err := s.record.ProfileFor(s.artifact.Format)
	if err != nil {
		return nil, err
	}
	spec := &cladev1.ModelSpec{
		Artifacts: files, Graph: s.record.Graph, ConfigFingerprint: fingerprint, ParsedConfigJson: parsed.JSON(),
		Profile: &cladev1.Profile{
			Id: own.ID, Fidelity: string(own.Fidelity), Specialization: string(own.Specialization), Loader: own.Loader,
			Loop: string(own.Loop), RequiredCapabilities: own.Capabilities, ConfigFingerprint: &fingerprint,
		},
		Composition: s.composition(parsed),
	}
	for _, t := range s.describe.GraphTables {
		if t.Graph == spec.Graph && len(t.Entries) > 0 {
			spec.GraphEntry = t.Entries[len(t.Entries)-1].Id // the generic one takes every model
		}
	}
	return spec, nil
}

// What the suite opens models with, where the plugin lets it choose. The chunk is small, so that prompts cross its borders.
const (
	mostContext = 512
	someRows    = 4
	smallChunk  = 16
	someThreads = 2
	someCache   = 64 << 20
)

// composition chooses every declared field but device and dtype, which the first plan names.
func (s *subject) composition(parsed family.Parsed) *cladev1.Composition {
	c := &cladev1.Composition{}
	longest, ok, err := parsed.Config.Int("max_position_embeddings")
	if !ok || err != nil || longest <= 0 || longest > mostContext {
		longest = mostContext
	}
	context := uint32(longest)
	for path, set := range map[string]func(){
		"kv.plain":       func() { c.Kv = &cladev1.KvScheme{Scheme: &cladev1.KvScheme_Plain{Plain: family.NativeKV}} },
		"paging":         func() { c.Paging = proto.Bool(false) },
		"rows":           func() { c.Rows = proto.Uint32(someRows) },
		"prefill_chunk":  func() { c.PrefillChunk = proto.Uint32(smallChunk) },
		"context":        func() { c.Context = &context },
		"max_generation": func() { c.MaxGeneration = &context },
		"kernels":        func() { c.Kernels = proto.String("auto") },
		"deterministic":  func() { c.Deterministic = proto.Bool(true) },
		"threads":        func() { c.Threads = proto.Uint32(someThreads) },
		"machine_bytes":  func() { c.MachineBytes = proto.Uint64(1 << 40) },
	} {
		if s.declared[path] {
			set()
		}
	}
	if s.Compose != nil {
		s.Compose(c)
	}
	return c
}

// negotiate plans until the plugin agrees: it may refuse rows or the deterministic mode, and names device and dtype.
func (s *subject) negotiate(ctx context.Context, p *process, spec *cladev1.ModelSpec) error {
	c := spec.Composition
	for range 4 {
		plan, err := s.plan(ctx, p, spec)
		var e *contract.Error
		switch {
		case errors.As(err, &e) && e.Kind == contract.UnsupportedOption && strings.Contains(e.Subject, "deterministic") && c.GetDeterministic():
			c.Deterministic = proto.Bool(false)
			continue
		case errors.As(err, &e) && e.Kind == contract.UnsupportedOption && strings.Contains(e.Subject, "rows") && c.GetRows() > 1:
			c.Rows = proto.Uint32(1)
			continue
		case err != nil:
			return fmt.Errorf("plan of the given model: %w", err)
		}
		if s.declared["device"] && c.Device == nil || s.declared["dtype"] && c.Dtype == nil {
			if s.declared["device"] {
				c.Device = proto.String(plan.Device)
			}
			if s.declared["dtype"] {
				c.Dtype = proto.String(plan.Dtype)
			}
			continue
		}
		s.spec, s.planned, s.exact = spec, plan, c.GetDeterministic()
		return nil
	}
	return errors.New("the plugin's plans of the given model do not settle")
}

func (s *subject) plan(ctx context.Context, p *process, spec *cladev1.ModelSpec) (*cladev1.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.load)
	defer cancel()
	r, err := p.rpc.Plan(ctx, &cladev1.PlanRequest{Model: spec})
	if err != nil {
		return nil, contract.FromStatus(err)
	}
	if r.Plan == nil {
		return nil, errors.New("the answer to Plan holds no plan")
	}
	return r.Plan, nil
}

// with is the settled spec with another composition.
func (s *subject) with(change func(*cladev1.ModelSpec)) *cladev1.ModelSpec {
	spec := proto.Clone(s.spec).(*cladev1.ModelSpec)
	change(spec)
	return spec
}

// opened is the shared process with the model open; it starts it, again when an earlier check has ended it.
func (s *subject) opened(ctx context.Context) (*process, error) {
	if err := s.model(ctx); err != nil {
		return nil, err
	}
	if s.shared != nil && s.shared.alive() == nil {
		return s.shared, nil
	}
	if s.shared != nil {
		s.shared.kill()
		s.shared = nil
	}
	p, facts, err := s.open(ctx, s.spec)
	if err != nil {
		return nil, err
	}
	s.shared, s.facts = p, facts
	return p, nil
}

// open starts a process and opens spec in it. The caller kills or stops the process.
func (s *subject) open(ctx context.Context, spec *cladev1.ModelSpec) (*process, *cladev1.ModelFacts, error) {
	p, err := s.process(ctx)
	if err != nil {
		return nil, nil, err
	}
	plan, err := s.plan(ctx, p, spec)
	if err == nil {
		var facts *cladev1.ModelFacts
		if facts, err = s.load(ctx, p, spec, plan, nil); err == nil {
			return p, facts, nil
		}
		err = fmt.Errorf("open: %w", err)
	}
	p.kill()
	return nil, nil, err
}
