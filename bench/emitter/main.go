// Command emitter is a plugin that sends one token every CLADE_BENCH_INTERVAL, whatever it is asked: what the host and the
// contract cost a message is measured on it, without a model's arithmetic in the way.
//
// Not for: anything but bench. It goes through sdk/plugin like every plugin, heartbeat and outbox included.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"time"

	"github.com/clademl/clade/bench/tick"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

//go:embed plugin.yaml
var manifest []byte

// envInterval names the time between two tokens, as a Go duration.
const envInterval = "CLADE_BENCH_INTERVAL"

func main() {
	if len(os.Args) == 3 && os.Args[1] == "bare" {
		if err := serveBare(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "emitter:", err)
			os.Exit(1)
		}
		return
	}
	plugin.Main(plugin.Family{
		Manifest: manifest,
		Tables:   []*cladev1.GraphTable{{Graph: "bench.clademl/emitter", Entries: []*cladev1.GraphEntry{{Id: "emitter"}}}},
		Options:  []*cladev1.Option{{Path: "max_tokens"}},
		Backend:  backend{},
	})
}

type backend struct{}

func (backend) LoadRuntime(string) (*cladev1.Runtime, []*cladev1.Device, error) {
	return &cladev1.Runtime{}, nil, nil
}

func (backend) Inspect(context.Context, *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
	return &cladev1.InspectResponse{}, nil
}

func (backend) Plan(context.Context, *cladev1.PlanRequest) (*cladev1.Plan, error) {
	return &cladev1.Plan{GraphEntry: "emitter"}, nil
}

func (backend) Open(context.Context, *cladev1.OpenRequest, func(*cladev1.OpenResponse)) (plugin.Model, error) {
	d, err := interval()
	return model{interval: d}, err
}

func interval() (time.Duration, error) {
	d, err := time.ParseDuration(os.Getenv(envInterval))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", envInterval, err)
	}
	return d, nil
}

type model struct{ interval time.Duration }

func (model) Facts() *cladev1.ModelFacts { return &cladev1.ModelFacts{} }

func (m model) Generate(ctx context.Context, job *plugin.GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
	err := tick.Emit(ctx, m.interval, int(job.Start.GetMaxTokens()), func(id int32) error {
		return emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: &cladev1.TokenStep{Ids: []int32{id}}}})
	})
	if err != nil {
		return err
	}
	return emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Finish{Finish: &cladev1.Finish{
		Reason: cladev1.FinishReason_FINISH_REASON_LENGTH, Usage: &cladev1.Usage{GeneratedTokens: job.Start.GetMaxTokens()},
	}}})
}

func (model) Score(context.Context, *plugin.ScoreJob, func(*cladev1.ScoreResponse) error) error {
	return contract.Errorf(contract.UnsupportedOption, "score", "the emitter computes nothing")
}

func (model) Stats() *cladev1.StatsResponse { return &cladev1.StatsResponse{} }

func (model) Tune(_ context.Context, threads uint32) (uint32, error) { return threads, nil }

func (model) Close() error { return nil }
