package echo

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// backend plans and opens; what it opens is a model.
type backend struct {
	version string
	faults  faults
	plans   uint64
}

func (b *backend) LoadRuntime(dir string) (*cladev1.Runtime, []*cladev1.Device, error) {
	return &cladev1.Runtime{Dir: dir, Variant: "none"}, []*cladev1.Device{{Id: Device, Kind: "cpu"}}, nil
}

func (b *backend) Inspect(context.Context, *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
	return &cladev1.InspectResponse{}, nil
}

// settings is a composition and a config, checked.
type settings struct {
	vocab, context, rows, chunk, maxGeneration, stepMicros int
	depth                                                  int // tokens drafted at once
	eos                                                    []int32
	tensor                                                 artifact.Tensor
	given                                                  []*cladev1.Artifact // adapters that the model is opened with
	preset                                                 []contract.AdapterUse
	adapterBytes                                           uint64 // of those and of others that are loaded later
}

const (
	defaultRows  = 4
	defaultChunk = 64
	// tokenBytes is a state and an id.
	tokenBytes = 12
	// cached is how many sequences the prefix cache keeps.
	cached       = 8
	processBytes = 64 << 20
	// maxAdapterBytes is far more than any adapter of an echo has.
	maxAdapterBytes = 1 << 30
)

func (b *backend) Plan(_ context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error) {
	s, a, err := b.settle(req.Model)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Close() }()
	if b.faults.has(ReadingPlan) {
		if _, err := read(a, s.tensor); err != nil {
			return nil, err
		}
	}
	weights := uint64(4 * weightCount)
	if b.faults.has(LyingPlan) {
		weights /= 2
	}
	if b.faults.has(DriftingPlan) {
		b.plans++
		weights += b.plans
	}
	p := &cladev1.Plan{
		Lines: []*cladev1.MemoryLine{
			{Name: "weights", Bytes: weights, Detail: fmt.Sprintf("%d values", weightCount)},
			{Name: "kv", Bytes: uint64(s.rows * s.context * tokenBytes), Detail: fmt.Sprintf("%d rows of %d tokens", s.rows, s.context)},
			{Name: "prefix-cache", Bytes: uint64(cached * s.context * tokenBytes), Detail: fmt.Sprintf("%d sequences", cached)},
			{Name: "process", Bytes: processBytes, Detail: "the plugin"},
		},
		GraphEntry: "state", Context: uint32(s.context), BytesPerToken: uint64(s.rows * tokenBytes), Device: Device, Dtype: "float32",
	}
	if s.adapterBytes > 0 {
		p.Lines = append(p.Lines, &cladev1.MemoryLine{Name: "adapters", Bytes: s.adapterBytes, Detail: fmt.Sprintf("%d with the model", len(s.given))})
	}
	for _, l := range p.Lines {
		p.TotalBytes += l.Bytes
	}
	return p, nil
}

// settle reads config and composition; every value that it does not have is refused by name.
func (b *backend) settle(spec *cladev1.ModelSpec) (s settings, a *artifact.Artifact, err error) {
	if spec.Implementation != nil {
		return s, nil, unhonoured("implementation", "%q is not one of this plugin's", *spec.Implementation)
	}
	if err := s.readAdapters(spec); err != nil {
		return s, nil, err
	}
	if spec.GetGraphEntry() != "" && spec.GetGraphEntry() != "state" && spec.GetGraphRequired() {
		return s, nil, contract.Errorf(contract.InvalidArgument, "graph_entry", "%q is not one of: state", spec.GetGraphEntry())
	}
	if a, err = artifact.Open(spec.Artifacts[0].Path); err != nil {
		return s, nil, err
	}
	opened := a
	defer func() {
		if err != nil {
			_ = opened.Close()
		}
	}()
	parsed, err := artifact.ParseConfig(a.Config().Name(), []byte(spec.ParsedConfigJson))
	if err != nil {
		return s, nil, err
	}
	if err := s.readConfig(parsed); err != nil {
		return s, nil, err
	}
	var ok bool
	if s.tensor, ok = a.Tensor(weightName); b.faults.has(BlindOpen) && !ok {
		return s, a, s.compose(spec.Composition, false)
	}
	if !ok || s.tensor.DType != artifact.F32 || !slices.Equal(s.tensor.Shape, []int64{weightCount}) {
		return s, nil, contract.Errorf(contract.ArtifactCorrupt, weightName, "is missing or not F32 [%d]", weightCount)
	}
	return s, a, s.compose(spec.Composition, b.faults.has(LooseValues))
}

func (s *settings) readConfig(c artifact.Config) error {
	for key, into := range map[string]*int{
		"vocab_size": &s.vocab, "max_position_embeddings": &s.context, "step_micros": &s.stepMicros,
	} {
		v, _, err := c.Int(key)
		if err != nil {
			return err
		}
		*into = int(v)
	}
	ids, _, err := c.Ints("eos_token_ids")
	for _, id := range ids {
		s.eos = append(s.eos, int32(id))
	}
	return err
}

// readAdapters takes what is opened with the model: adapters, and nothing else.
func (s *settings) readAdapters(spec *cladev1.ModelSpec) error {
	s.adapterBytes = spec.Composition.GetAdapterBytes()
	if s.adapterBytes > maxAdapterBytes {
		return invalid("adapter_bytes", "%d: no echo has adapters of that size", s.adapterBytes)
	}
	for i, a := range spec.Artifacts {
		switch {
		case i == 0:
		case a.Role != cladev1.Role_ROLE_ADAPTER || a.Id == nil:
			return unhonoured("artifacts", "a model is opened with adapters alone, each with an id")
		default:
			opened, err := lora.Open(a.Path)
			if err != nil {
				return err
			}
			s.given, s.adapterBytes = append(s.given, a), s.adapterBytes+uint64(opened.StoredBytes())
			_ = opened.Close() // only read
		}
	}
	for _, id := range spec.Composition.GetAdapters() {
		if !slices.ContainsFunc(s.given, func(a *cladev1.Artifact) bool { return a.GetId() == id }) {
			return invalid("adapters", "%s is not among the artifacts", id)
		}
		s.preset = append(s.preset, contract.AdapterUse{ID: id})
	}
	return nil
}

func (s *settings) compose(c *cladev1.Composition, loose bool) error {
	s.rows, s.chunk, s.maxGeneration = defaultRows, defaultChunk, s.context
	oneOf := func(path string, given *string, known ...string) error {
		if given == nil || loose || slices.Contains(known, *given) {
			return nil
		}
		return unhonoured(path, "%q is not one of %v", *given, known)
	}
	count := func(path string, given *uint32, most int, into *int) error {
		switch {
		case given == nil:
			return nil
		case (*given < 1 || int64(*given) > int64(most)) && !loose:
			return contract.Errorf(contract.InvalidArgument, path, "%d is not between 1 and %d", *given, most)
		}
		*into = max(1, min(int(*given), most))
		return nil
	}
	var plain *string
	if p, ok := c.GetKv().GetScheme().(*cladev1.KvScheme_Plain); ok {
		plain = &p.Plain
	}
	threads, anything := 0, math.MaxInt32
	for _, err := range []error{
		oneOf("device", c.Device, Device), oneOf("dtype", c.Dtype, "float32"), oneOf("kv.plain", plain, "native", "f32"),
		count("rows", c.Rows, 64, &s.rows), count("prefill_chunk", c.PrefillChunk, anything, &s.chunk),
		count("context", c.Context, s.context, &s.context), count("max_generation", c.MaxGeneration, anything, &s.maxGeneration),
		count("threads", c.Threads, anything, &threads),
	} {
		if err != nil {
			return err
		}
	}
	if d := c.Draft; d != nil && !loose {
		if d.Kind != "ngram" {
			return unhonoured("draft", "%q: only ngram drafts here", d.Kind)
		}
		if err := count("draft.depth", d.Depth, 64, &s.depth); err != nil {
			return err
		}
	}
	if c.GetPaging() && !loose {
		return unhonoured("paging", "nothing is paged")
	}
	return nil
}

func unhonoured(option, format string, args ...any) error {
	return contract.Errorf(contract.UnsupportedOption, option, format, args...)
}

func read(a *artifact.Artifact, t artifact.Tensor) ([]float32, error) {
	data := make([]byte, 4*weightCount)
	if n, err := a.ReadAt(t, data, 0); err != nil || n != len(data) {
		return nil, contract.Errorf(contract.ArtifactCorrupt, t.Name, "%d of %d bytes could be read: %w", n, len(data), err)
	}
	out := make([]float32, weightCount)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		if v := float64(out[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, contract.Errorf(contract.ArtifactCorrupt, t.Name, "value %d is not finite", i)
		}
	}
	return out, nil
}

func (b *backend) Open(ctx context.Context, req *cladev1.OpenRequest, report func(*cladev1.OpenResponse)) (plugin.Model, error) {
	s, a, err := b.settle(req.Model)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Close() }()
	if budget := req.Model.Composition.GetMemoryBudgetBytes(); budget > 0 && req.Plan.GetTotalBytes() > budget && !b.faults.has(IgnoredBudget) {
		return nil, contract.Errorf(contract.MemoryAdmission, Graph, "the plan takes %d bytes, the budget is %d", req.Plan.GetTotalBytes(), budget)
	}
	weights, err := read(a, s.tensor)
	if err != nil {
		if !b.faults.has(BlindOpen) {
			return nil, err
		}
		weights = make([]float32, weightCount)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, contract.Errorf(contract.Cancelled, Graph, "open: %w", err)
	}
	report(&cladev1.OpenResponse{Event: &cladev1.OpenResponse_Load{Load: &cladev1.LoadProgress{
		Phase: "weights", BytesDone: 4 * weightCount, BytesTotal: 4 * weightCount, TensorsDone: 1, TensorsTotal: 1,
	}}})
	m := newModel(s, weights, b.faults)
	for _, a := range s.given {
		scale := 1.0
		if a.Scale != nil {
			scale = *a.Scale
		}
		if err := m.adapters.load(a.GetId(), a.Path, scale); err != nil {
			_ = m.Close() // the first error is the one to tell
			return nil, err
		}
	}
	m.facts = &cladev1.ModelFacts{
		Family: Name, Graph: Graph, GraphEntry: "state", Loader: req.Model.Profile.GetLoader(), Loop: req.Model.Profile.GetLoop(),
		Device: Device, Dtype: "float32", VocabSize: uint32(s.vocab), ContextLength: uint32(s.context), EosTokenIds: s.eos,
		Plan: proto.Clone(req.Plan).(*cladev1.Plan), Memory: m.memory(), Capabilities: req.Model.Profile.GetRequiredCapabilities(),
	}
	m.provenance = &cladev1.Provenance{
		Plugin: Name, PluginVersion: b.version, Device: Device, Dtype: "float32", GraphEntry: "state", Runtime: "none", Deterministic: true,
	}
	return m, nil
}
