package engine

import (
	"context"
	"math"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
)

// embedding is what a row that is embedded is asked for.
type embedding struct{ normalize bool }

// Embed is the last token's hidden state behind the model's final norm, of length 1 unless the request says otherwise. Its prompt is
// read in chunks beside other rows, and nothing is sampled.
func (e *Engine) Embed(ctx context.Context, job *plugin.EmbedJob) (*cladev1.EmbedResponse, error) {
	if err := e.refuseSource("Embed"); err != nil {
		return nil, err
	}
	if err := e.checkIDs("ids", job.IDs); err != nil {
		return nil, err
	}
	if len(job.IDs) > e.config.Context {
		return nil, contract.Errorf(contract.ContextTooLong, "ids", "%d tokens in a context of %d", len(job.IDs), e.config.Context)
	}
	normalize := job.Start == nil || job.Start.Normalize == nil || job.Start.GetNormalize()
	taken, err := e.takeAdapters(adapterOf(job.Start))
	if err != nil {
		return nil, err
	}
	defer taken.Release()
	r := &row{adapters: taken, ids: job.IDs, prompt: len(job.IDs), mail: newMailbox(), embed: &embedding{normalize}}
	r.Tokens, r.Limit, r.Reads = len(r.ids), len(r.ids)+1, true
	if err := e.submit(r); err != nil {
		return nil, err
	}
	defer e.release(r)
	out := &cladev1.EmbedResponse{}
	err = e.follow(ctx, r, nil, func(l letter) error {
		if l.done != nil {
			out.Usage, out.Values = l.done, l.vector
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if out.Usage == nil {
		return nil, contract.Errorf(contract.Internal, "Embed", "the row ended without its values")
	}
	return out, nil
}

// adapterOf is the choice of a request that may say nothing at all.
func adapterOf(start *cladev1.EmbedStart) *string {
	if start == nil {
		return nil
	}
	return start.Adapter
}

// pool reads the hidden states of the rows that end with this forward and hands them out.
func (e *Engine) pool(s *mlx.Scope, f *flight) error {
	if f.ends == nil {
		return nil
	}
	hidden := s.Adopt(f.ends)
	f.ends = nil
	width := hidden.Dim(-1)
	values, err := mlx.ToSlice[float32](s, hidden)
	if err != nil {
		return err
	}
	for i, at := range f.pooled {
		r := f.rows[at]
		if r.over {
			continue
		}
		vector := values[i*width : (i+1)*width]
		if r.embed.normalize {
			unit(vector)
		}
		usage := &cladev1.Usage{
			PromptTokens: uint32(len(r.ids)), PrefillNs: uint64(time.Since(r.started)), QueueNs: uint64(r.started.Sub(r.submitted)),
		}
		e.totals.finished.Add(1)
		e.totals.prefillNs.Add(usage.PrefillNs)
		e.end(r, func(l *letter) { l.done, l.vector = usage, vector })
	}
	return nil
}

// unit makes v of length 1. One of length 0 stays.
func unit(v []float32) {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return
	}
	for i, x := range v {
		v[i] = float32(float64(x) / math.Sqrt(sum))
	}
}
