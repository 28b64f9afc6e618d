package loader

import (
	"context"
	"time"

	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Process is a plugin process, as core/supervise has it.
type Process interface {
	Describe(ctx context.Context) (*cladev1.DescribeResponse, error)
	Inspect(ctx context.Context, req *cladev1.InspectRequest) (*cladev1.InspectResponse, error)
	Plan(ctx context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error)
	Open(ctx context.Context, req *cladev1.OpenRequest, on func(*cladev1.OpenResponse)) (*cladev1.ModelFacts, error)
	Generate(ctx context.Context, start *cladev1.GenerateStart, ids []int32) (Stream, error)
	Score(ctx context.Context, start *cladev1.ScoreStart, ids []int32, on func(*cladev1.ScoreFrame) error) (*cladev1.Usage, error)
	Embed(ctx context.Context, start *cladev1.EmbedStart, ids []int32) (*cladev1.EmbedResponse, error)
	Stats(ctx context.Context) (*cladev1.StatsResponse, error)
	Tune(ctx context.Context, threads uint32) (uint32, error)
	Adapters(ctx context.Context, req *cladev1.AdaptersRequest) (*cladev1.AdaptersResponse, error)
	State() supervise.State
	Stalled() time.Duration
	Done() <-chan struct{}
	Err() error
	Pid() int
	Stop(ctx context.Context) error
}

// Stream is one running request.
type Stream interface {
	Recv() (*cladev1.GenerateResponse, error)
	Control(c *cladev1.Control) error
	Close()
}

// Starter starts a plugin process.
type Starter func(ctx context.Context, spec supervise.Spec) (Process, error)

type supervised struct{ *supervise.Process }

func (s supervised) Generate(ctx context.Context, start *cladev1.GenerateStart, ids []int32) (Stream, error) {
	g, err := s.Process.Generate(ctx, start, ids)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// StartSupervised is the Starter of real processes.
func StartSupervised(ctx context.Context, spec supervise.Spec) (Process, error) {
	p, err := supervise.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return supervised{p}, nil
}
