// Command thirdparty is a plugin as an outsider writes it: nothing but sdk/plugin. It counts: each token is the one before
// it plus one. Tests of the host build it and add with it a family with a config dialect of its own, a profile of an exact
// artifact, and an implementation for another family's graph.
package main

import (
	"context"
	_ "embed"
	"slices"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

//go:embed plugin.yaml
var manifest []byte

const device = "cpu-abacus"

func main() {
	f := plugin.Family{
		Manifest: manifest, Backend: backend{},
		Tables: []*cladev1.GraphTable{{Graph: "example.org/abacus", Entries: []*cladev1.GraphEntry{
			{Id: "fast", Serves: &cladev1.GraphKey{Kv: []string{"f32"}}, Kernels: []string{"beads"}, Programs: []string{"ane-beads"}},
			{Id: "plain"},
		}}},
	}
	for _, path := range []string{
		"device", "dtype", "kv.plain", "rows", "context", "max_generation", "max_tokens", "stop_token_ids",
		"draft.dir", "draft.graph", "draft.depth", "adapters",
	} {
		f.Options = append(f.Options, &cladev1.Option{Path: path})
	}
	plugin.Main(f)
}

type backend struct{}

func (backend) LoadRuntime(dir string) (*cladev1.Runtime, []*cladev1.Device, error) {
	return &cladev1.Runtime{Dir: dir}, []*cladev1.Device{{Id: device}}, nil
}

func (backend) Inspect(context.Context, *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
	return &cladev1.InspectResponse{}, nil
}

func (backend) Plan(_ context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error) {
	p := &cladev1.Plan{
		GraphEntry: req.Model.GetGraphEntry(), Device: device, Dtype: "float32", Context: req.Model.Composition.GetContext(), TotalBytes: 1 << 20,
		Lines: []*cladev1.MemoryLine{{Name: "process", Bytes: 1 << 20}},
	}
	for _, a := range req.Model.GetArtifacts()[1:] {
		p.Lines = append(p.Lines, &cladev1.MemoryLine{Name: "auxiliaries", Bytes: 1 << 10, Detail: a.GetRole().String() + " " + a.GetPath()})
		p.TotalBytes += 1 << 10
	}
	return p, nil
}

func (backend) Open(_ context.Context, req *cladev1.OpenRequest, _ func(*cladev1.OpenResponse)) (plugin.Model, error) {
	return &model{facts: &cladev1.ModelFacts{
		Family: "abacus", Graph: req.Model.GetGraph(), GraphEntry: req.Plan.GetGraphEntry(), Device: device, VocabSize: 1000, ContextLength: req.Plan.GetContext(),
	}}, nil
}

type model struct{ facts *cladev1.ModelFacts }

func (m *model) Facts() *cladev1.ModelFacts { return m.facts }

func (m *model) Generate(_ context.Context, job *plugin.GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
	last, made := job.IDs[len(job.IDs)-1], uint32(0)
	reason := cladev1.FinishReason_FINISH_REASON_LENGTH
	for made < min(3, job.Start.GetMaxTokens()) && reason == cladev1.FinishReason_FINISH_REASON_LENGTH {
		last, made = last+1, made+1
		if slices.Contains(job.Start.GetStopTokenIds(), last) {
			reason = cladev1.FinishReason_FINISH_REASON_STOP
		}
		if err := emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: &cladev1.TokenStep{Ids: []int32{last}}}}); err != nil {
			return err
		}
	}
	return emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Finish{Finish: &cladev1.Finish{
		Reason: reason, Usage: &cladev1.Usage{GeneratedTokens: made, PromptTokens: uint32(len(job.IDs))},
	}}})
}

func (m *model) Score(context.Context, *plugin.ScoreJob, func(*cladev1.ScoreResponse) error) error {
	return nil
}

func (m *model) Stats() *cladev1.StatsResponse                    { return &cladev1.StatsResponse{} }
func (m *model) Tune(_ context.Context, n uint32) (uint32, error) { return n, nil }
func (m *model) Close() error                                     { return nil }
