package engine

import (
	"context"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/schedule"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
)

// scoreBytes bounds the logits of one evaluation.
const scoreBytes = 64 << 20

// scoring is what a row that scores is asked for.
type scoring struct {
	output cladev1.ScoreOutput
	width  int // values a position
}

// scores are consecutive positions' values, the first at position first.
type scores struct {
	first  int
	values []float32
}

// Score runs one forward over the ids and emits, for each position, its row of logits, or the log probability of the next
// id (no value for the last position). It shares the device with other requests, and no forward.
func (e *Engine) Score(ctx context.Context, job *plugin.ScoreJob, emit func(*cladev1.ScoreResponse) error) error {
	output := job.Start.GetOutput()
	if output != cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS && output != cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS {
		return invalid("output", "%d is neither logits nor logprobs", output)
	}
	if err := e.refuseSource("Score"); err != nil {
		return err
	}
	if err := e.checkIDs("ids", job.IDs); err != nil {
		return err
	}
	if len(job.IDs) > e.config.Context {
		return contract.Errorf(contract.ContextTooLong, "ids", "%d tokens in a context of %d", len(job.IDs), e.config.Context)
	}
	taken, err := e.takeAdapters(job.Start.Adapter)
	if err != nil {
		return err
	}
	defer taken.Release()
	r := &row{adapters: taken, ids: job.IDs, prompt: len(job.IDs), mail: newMailbox(), score: &scoring{output: output, width: 1}}
	if output == cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS {
		r.score.width = e.layout.Vocab
	}
	r.Tokens, r.Limit, r.Alone = len(r.ids), len(r.ids)+1, true
	r.Most = max(1, scoreBytes/(4*e.layout.Vocab))
	if err := e.submit(r); err != nil {
		return err
	}
	defer e.release(r)
	return e.follow(ctx, r, nil, func(l letter) error {
		for _, v := range l.scores {
			if err := emitScores(v.values, v.first, r.score.width, emit); err != nil {
				return err
			}
		}
		if l.done != nil {
			return emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Done{Done: l.done}})
		}
		return nil
	})
}

// scoreChunk computes a segment of a row that scores. The row then waits until its values are taken.
func (e *Engine) scoreChunk(s *mlx.Scope, r *row, g schedule.Segment) error {
	if r.cache == nil {
		var err error
		if r.cache, err = e.newCache(s, r); err != nil {
			return err
		}
	}
	values, err := e.scoreValues(s, r, g.First, g.Tokens)
	if err != nil {
		return err
	}
	e.sched.Pause(&r.Row, true)
	r.mail.write(func(l *letter) { l.scores = append(l.scores, scores{g.First, values}) })
	if g.Samples {
		e.end(r, func(l *letter) {
			l.done = &cladev1.Usage{PromptTokens: uint32(len(r.ids)), PrefillNs: uint64(time.Since(r.started))}
		})
	}
	return nil
}

// scoreValues evaluates n ids from done on: their logits [n, vocab], or the log probabilities of their successors.
func (e *Engine) scoreValues(s *mlx.Scope, r *row, done, n int) ([]float32, error) {
	pass := r.cache.Begin(n)
	hidden := e.model.Forward(s, mlx.FromSlice(s, r.ids[done:done+n], 1, n), pass) // [1, n, hidden]
	pass.End()
	logits := s.AsType(s.Reshape(e.model.Unembed(s, hidden), n, e.layout.Vocab), mlx.Float32)
	e.totals.evaluations.Add(1)
	e.totals.tokens.Add(uint64(n))
	out := logits
	if r.score.output == cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS {
		next := r.ids[done+1 : min(done+n+1, len(r.ids))]
		if len(next) == 0 {
			return nil, s.Eval(r.cache.Arrays()...)
		}
		logits = s.SliceAxis(logits, 0, 0, len(next))
		logprobs := s.Sub(logits, s.LogSumExp(logits, 1, true))
		out = s.TakeAlongAxis(logprobs, mlx.FromSlice(s, next, len(next), 1), 1) // [len(next), 1]
	}
	s.Sweep(out)
	return mlx.ToSlice[float32](s, out)
}

// emitScores cuts rows of width values, the first at position first, into frames.
func emitScores(values []float32, first, width int, emit func(*cladev1.ScoreResponse) error) error {
	for row := range len(values) / width {
		for _, frame := range plugin.FrameRow(uint32(first+row), values[row*width:(row+1)*width]) {
			if err := emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Frame{Frame: frame}}); err != nil {
				return err
			}
		}
	}
	return nil
}
