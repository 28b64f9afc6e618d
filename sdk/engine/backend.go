package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/guidance"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/weights"
)

// queued is how many requests may wait for a row.
const queued = 256

// Backend opens a Family's models, as sdk/plugin serves it.
type Backend struct {
	family  Family
	runtime *mlx.Runtime
	library *kernels.Tested // nil where the runtime has none that fits
	// guidance computes what grammars allow; noGuidance says why there is none.
	guidance   *guidance.Library
	noGuidance error
	// kernels is replaced once a runtime is loaded, while Describe may read it.
	kernels atomic.Pointer[kernels.Registry]
	own     atomic.Pointer[kernels.Registry] // of the plugin's own library
	ownLib  *kernels.OwnLibrary              // nil where it cannot be used
	sources atomic.Pointer[kernels.Registry] // kernels that are compiled when they first run
	// sourceKernels is nil where the runtime has no GPU that there are sources for.
	sourceKernels *kernels.Sources
}

func newBackend(f Family) *Backend {
	b := &Backend{family: f}
	b.kernels.Store(&f.Kernels)
	own := kernels.NewRegistry()
	if f.Own != nil {
		own = f.Own.Registry()
	}
	b.own.Store(&own)
	sources := kernels.GPU()
	b.sources.Store(&sources)
	return b
}

// Kernels reports the kernels and what the loaded runtime makes of them.
func (b *Backend) Kernels() []*cladev1.Kernel {
	return slices.Concat(b.kernels.Load().Describe(), b.sources.Load().Describe(), b.own.Load().Describe())
}

// LoadRuntime opens MLX.
func (b *Backend) LoadRuntime(dir string) (*cladev1.Runtime, []*cladev1.Device, error) {
	r, err := mlx.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	b.runtime = r
	loaded := b.family.Kernels
	if library, err := kernels.Load(r); err != nil {
		loaded = loaded.Without(err.Error())
	} else {
		loaded, b.library = loaded.With(library), library
	}
	b.kernels.Store(&loaded)
	b.loadOwn()
	b.loadSources()
	b.guidance, b.noGuidance = loadGuidance(r)
	info := r.Info()
	var devices []*cladev1.Device
	for _, d := range info.Devices {
		devices = append(devices, &cladev1.Device{Id: d.Name, Kind: d.Kind.String(), MemoryBytes: uint64(d.Memory), Description: d.Title})
	}
	out := &cladev1.Runtime{Dir: info.Dir, MlxVersion: info.MLX, MlxcVersion: info.MLXC, Variant: info.Variant}
	if b.library != nil {
		abi := uint32(mlx.KernelsABI)
		out.KernelsAbi = &abi
	}
	return out, devices, nil
}

// Inspect has nothing to add: the records' data expresses these configs.
func (b *Backend) Inspect(context.Context, *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
	return &cladev1.InspectResponse{}, nil
}

// Plan reads headers and sums.
func (b *Backend) Plan(_ context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error) {
	d, a, err := b.draft(req.Model)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Close() }()
	defer d.closeBeside()
	return d.plan()
}

// draft opens the target's headers and settles everything that follows from them. The caller closes the artifact.
func (b *Backend) draft(spec *cladev1.ModelSpec) (_ *draft, _ *artifact.Artifact, err error) {
	target, err := targetOf(spec)
	if err != nil {
		return nil, nil, err
	}
	d := &draft{}
	if d.settings, err = settle(spec.Composition, b.runtime.Info().Devices); err != nil {
		return nil, nil, err
	}
	if d.graph, d.graphReason, err = b.family.pick(spec); err != nil {
		return nil, nil, err
	}
	a, err := artifact.Open(target.Path)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			d.closeBeside()
			_ = a.Close()
		}
	}()
	if string(a.Format) != target.Format {
		return nil, nil, contract.Errorf(contract.PluginMismatch, target.Path, "is %s, the host took it for %s", a.Format, target.Format)
	}
	parsed, err := artifact.ParseConfig(a.Config().Name(), []byte(spec.ParsedConfigJson))
	if err != nil {
		return nil, nil, err
	}
	if err := d.readGraph(b, a, parsed); err != nil {
		return nil, nil, err
	}
	if why := d.unsuited(spec); why != "" {
		d.graphReason = d.graph.ID + " gives way: " + why
		d.graph = b.family.generic(spec.Graph)
		if err := d.readGraph(b, a, parsed); err != nil {
			return nil, nil, err
		}
	}
	d.cutChunk()
	if err := d.readAdapters(spec); err != nil {
		return nil, nil, err
	}
	d.chooseUpdates(b)
	if err := d.checkKernels(); err != nil {
		return nil, nil, err
	}
	if err := d.place(); err != nil {
		return nil, nil, err
	}
	if d.beside, err = b.besides(spec, a, parsed, d); err != nil {
		return nil, nil, err
	}
	if err := d.checkDeterministic(); err != nil {
		return nil, nil, err
	}
	return d, a, nil
}

// readGraph reads the model as the graph has it, and settles what its caches and kernels are.
func (d *draft) readGraph(b *Backend, a *artifact.Artifact, parsed artifact.Config) (err error) {
	if d.Blueprint, err = d.graph.Read(a, parsed); err != nil {
		return err
	}
	if d.context == 0 {
		d.context = d.MaxPositions
	}
	if d.context == 0 {
		return invalid("context", "the model states none: a composition must")
	}
	if err := d.storeCaches(); err != nil {
		return err
	}
	d.chooseKernels(b)
	return nil
}

// unsuited is why a graph that was only proposed is of no use here; "" where it is, or somebody named it.
func (d *draft) unsuited(spec *cladev1.ModelSpec) string {
	if d.graph.Suits == nil || spec.GraphRequired || spec.GetImplementation() != "" {
		return ""
	}
	return d.graph.Suits(d.Weights, d.target())
}

// Open loads the weights and starts an engine.
func (b *Backend) Open(ctx context.Context, req *cladev1.OpenRequest, report func(*cladev1.OpenResponse)) (plugin.Model, error) {
	d, a, err := b.draft(req.Model)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Close() }()
	defer d.closeBeside()
	plan, err := d.plan()
	if err != nil {
		return nil, err
	}
	if d.budget > 0 && plan.TotalBytes > uint64(d.budget) {
		return nil, contract.Errorf(contract.MemoryAdmission, req.Model.Graph, "the plan takes %d bytes, the budget is %d", plan.TotalBytes, d.budget)
	}
	if err := b.limits(plan); err != nil {
		return nil, err
	}
	if k := cmp.Or(d.library, d.sampler); k != nil {
		if err := k.SetThreads(d.threads); err != nil {
			return nil, err
		}
	}
	disk, err := b.disk(req.Model, d, plan)
	if err != nil {
		return nil, err
	}
	worker, err := b.runtime.NewWorker(d.device.Kind)
	if err != nil {
		return nil, err
	}
	board := nn.NewBoard()
	model, err := d.load(ctx, worker, board, report)
	if err != nil {
		_ = worker.Close()
		return nil, err
	}
	book, err := d.openBook(ctx, board, worker, report)
	if err != nil {
		_ = worker.Do(context.WithoutCancel(ctx), func(*mlx.Scope) error { model.Close(); return nil })
		_ = worker.Close()
		return nil, err
	}
	drafts, err := d.speculation(ctx, worker, model, req.Model.Composition.GetDraft(), report)
	if err != nil {
		closeBook(book, worker)
		_ = worker.Do(context.WithoutCancel(ctx), func(*mlx.Scope) error { model.Close(); return nil })
		_ = worker.Close()
		return nil, err
	}
	g := &guide{library: b.guidance, absent: b.noGuidance, path: req.Model.Artifacts[0].Path, width: d.Layout.Vocab, eos: d.EOS}
	e := New(b.runtime, worker, model, Config{
		Context: d.context, MaxGeneration: d.maxGeneration, PrefillChunk: d.chunk, Queue: queued, EOS: d.EOS,
		Rows: d.rows, KVTokens: d.kvTokens(), Layout: d.Layout, Paging: d.paging, KVStart: int(d.kv.Start), PrefixBytes: lineOf(plan, prefixes), Disk: disk, DType: d.dtype,
		Provenance: b.provenance(d, plan), Kernels: d.library, Sampler: d.sampler, MaxThreads: uint32(d.threads), Parameters: d.Weights.Elements(),
		Constraints: g.constraint, Speculation: drafts, Adapters: book,
	})
	return &openModel{Engine: e, guide: g, facts: b.facts(req.Model, d, plan)}, nil
}

// limits holds MLX to the plan. Above the memory limit an evaluation waits for what is queued before it queues more: MLX's CPU
// device allocates ahead of what it computes.
func (b *Backend) limits(plan *cladev1.Plan) error {
	if _, err := b.runtime.SetCacheLimit(lineOf(plan, reserve)); err != nil {
		return err
	}
	_, err := b.runtime.SetMemoryLimit(int64(plan.TotalBytes) - processBytes)
	return err
}

func (d *draft) load(ctx context.Context, worker *mlx.Worker, board *nn.Board, report func(*cladev1.OpenResponse)) (model Model, err error) {
	err = worker.Do(ctx, func(s *mlx.Scope) error {
		tensors, err := d.Weights.Load(ctx, s, d.target(), loads(report))
		if err != nil {
			return err
		}
		tensors.UseBoard(board)
		model = d.Build(s, tensors, d.dtype)
		d.giveOwn(model)
		if err := s.Err(); err != nil {
			model.Close()
			return fmt.Errorf("build the graph: %w", err)
		}
		return nil
	})
	debug.FreeOSMemory() // the pieces of the file: the first request needs their place
	return model, err
}

// loads tells how far the weights of a model are.
func loads(report func(*cladev1.OpenResponse)) func(weights.Progress) {
	return func(p weights.Progress) {
		report(&cladev1.OpenResponse{Event: &cladev1.OpenResponse_Load{Load: &cladev1.LoadProgress{
			Phase: "weights", BytesDone: uint64(p.Bytes), BytesTotal: uint64(p.BytesTotal),
			TensorsDone: uint32(p.Tensors), TensorsTotal: uint32(p.TensorsTotal),
		}}})
	}
}

func (b *Backend) provenance(d *draft, plan *cladev1.Plan) *cladev1.Provenance {
	info := b.runtime.Info()
	return &cladev1.Provenance{
		Plugin: b.family.manifest.Name, PluginVersion: b.family.manifest.Version, Device: plan.Device, Dtype: plan.Dtype,
		GraphEntry: plan.GraphEntry, Kernels: native(plan), Deterministic: d.deterministic, Notes: plan.Notes,
		Runtime: fmt.Sprintf("MLX %s, mlx-c %s, %s", info.MLX, info.MLXC, info.Variant),
	}
}

func (b *Backend) facts(spec *cladev1.ModelSpec, d *draft, plan *cladev1.Plan) *cladev1.ModelFacts {
	return &cladev1.ModelFacts{
		Family: b.family.manifest.Name, Graph: spec.Graph, GraphEntry: plan.GraphEntry, Loader: spec.Profile.GetLoader(),
		Loop: spec.Profile.GetLoop(), Device: plan.Device, Dtype: plan.Dtype, VocabSize: uint32(d.Layout.Vocab),
		ContextLength: uint32(d.context), EosTokenIds: d.EOS, Plan: plan, Memory: MemoryStats(b.runtime, d.library),
		Kernels: native(plan), Notes: plan.Notes, Capabilities: spec.Profile.GetRequiredCapabilities(),
	}
}

// native names the kernels of a plan that run.
func native(plan *cladev1.Plan) []string {
	var out []string
	for _, k := range plan.Kernels {
		if k.Native {
			out = append(out, k.Name)
		}
	}
	return out
}

// openModel is an engine with its facts.
type openModel struct {
	*Engine
	guide *guide
	facts *cladev1.ModelFacts
}

// Close ends the engine, and with it every request that holds a grammar, then what grammars were compiled with.
func (m *openModel) Close() error { return errors.Join(m.Engine.Close(), m.guide.close()) }

func (m *openModel) Facts() *cladev1.ModelFacts { return proto.Clone(m.facts).(*cladev1.ModelFacts) }
