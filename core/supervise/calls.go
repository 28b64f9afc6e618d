package supervise

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// deathNotice is how long a broken connection waits for the news of a death before it is one of its own.
const deathNotice = 2 * time.Second

// Describe asks what the plugin is and has.
func (p *Process) Describe(ctx context.Context) (r *cladev1.DescribeResponse, err error) {
	err = p.call(ctx, quickCall, "Describe", func(ctx context.Context) (err error) {
		r, err = p.rpc.Describe(ctx, &cladev1.DescribeRequest{})
		return err
	})
	return r, err
}

// Inspect asks for what the record's data cannot express.
func (p *Process) Inspect(ctx context.Context, req *cladev1.InspectRequest) (r *cladev1.InspectResponse, err error) {
	err = p.call(ctx, plannedCall, "Inspect", func(ctx context.Context) (err error) {
		r, err = p.rpc.Inspect(ctx, req)
		return err
	})
	return r, err
}

// Plan asks what opening the model takes.
func (p *Process) Plan(ctx context.Context, req *cladev1.PlanRequest) (*cladev1.Plan, error) {
	var r *cladev1.PlanResponse
	err := p.call(ctx, plannedCall, "Plan", func(ctx context.Context) (err error) {
		r, err = p.rpc.Plan(ctx, req)
		return err
	})
	if err == nil && r.Plan == nil {
		err = contract.Errorf(contract.Internal, p.spec.name(), "answered Plan without a plan")
	}
	return r.GetPlan(), err
}

// Stats asks for memory and counters.
func (p *Process) Stats(ctx context.Context) (r *cladev1.StatsResponse, err error) {
	err = p.call(ctx, quickCall, "Stats", func(ctx context.Context) (err error) {
		r, err = p.rpc.Stats(ctx, &cladev1.StatsRequest{})
		return err
	})
	return r, err
}

// Tune sets the share of threads and returns what is in force.
func (p *Process) Tune(ctx context.Context, threads uint32) (uint32, error) {
	var r *cladev1.TuneResponse
	err := p.call(ctx, quickCall, "Tune", func(ctx context.Context) (err error) {
		r, err = p.rpc.Tune(ctx, &cladev1.TuneRequest{Threads: &threads})
		return err
	})
	return r.GetThreads(), err
}

// adapterCall is the most that loading an adapter, or unloading one that requests still have, may take.
const adapterCall = 30 * time.Minute

// Adapters loads, unloads or lists adapters of the open model.
func (p *Process) Adapters(ctx context.Context, req *cladev1.AdaptersRequest) (r *cladev1.AdaptersResponse, err error) {
	err = p.call(ctx, adapterCall, "Adapters", func(ctx context.Context) (err error) {
		r, err = p.rpc.Adapters(ctx, req)
		return err
	})
	return r, err
}

// call runs one unary RPC with a limit. A plugin that does not answer a call without heartbeat in its limit is Unavailable: it
// may be busy, and the streams' watchdog judges that.
func (p *Process) call(ctx context.Context, limit time.Duration, name string, fn func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := fn(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil && p.alive() {
		return contract.Errorf(contract.Unavailable, p.spec.name(), "no answer to %s in %s", name, limit)
	}
	return p.fault(ctx, err)
}

func (p *Process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// fault turns what a call returned into an *contract.Error: the plugin's own, the caller's cancel, or the first cause of the
// plugin's death. io.EOF, the end of a stream, stays.
func (p *Process) fault(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	st, isStatus := status.FromError(err)
	if !isStatus || len(st.Details()) > 0 {
		return contract.FromStatus(err)
	}
	if ctx.Err() != nil {
		return contract.Errorf(contract.Cancelled, p.spec.name(), "%w", context.Cause(ctx))
	}
	switch st.Code() {
	case codes.Unavailable, codes.Canceled, codes.Internal, codes.Unknown, codes.Aborted:
		// What a connection answers when its other end dies; the death itself is known a moment later.
		if dead := p.death(deathNotice); dead != nil {
			return dead
		}
		if st.Code() == codes.Unavailable {
			p.child.kill(contract.Errorf(contract.PluginCrashed, p.spec.name(), "lost its connection: %s", st.Message()))
			<-p.done
			return p.death(0)
		}
	}
	var e *contract.Error
	if errors.As(contract.FromStatus(err), &e) {
		return contract.Errorf(e.Kind, p.spec.name(), "%s", e.Message)
	}
	return err
}

// death waits at most d for the end of the process and returns its cause; nil means that it lives.
func (p *Process) death(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		select {
		case <-p.done:
		default:
			return nil
		}
	}
	if err := p.Err(); err != nil {
		return err
	}
	return contract.Errorf(contract.Unavailable, p.spec.name(), "the plugin was stopped")
}
