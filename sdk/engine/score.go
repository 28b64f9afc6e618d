package engine

import (
	"context"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
)

// scoreBytes bounds the logits of one evaluation.
const scoreBytes = 64 << 20

// Score runs one forward over the ids and emits, for each position, its row of logits, or the log probability of the next
// id (no value for the last position).
func (e *Engine) Score(ctx context.Context, job *plugin.ScoreJob, emit func(*cladev1.ScoreResponse) error) error {
	output := job.Start.GetOutput()
	if output != cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS && output != cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS {
		return invalid("output", "%d is neither logits nor logprobs", output)
	}
	if err := e.checkIDs("ids", job.IDs); err != nil {
		return err
	}
	if len(job.IDs) > e.config.Context {
		return contract.Errorf(contract.ContextTooLong, "ids", "%d tokens in a context of %d", len(job.IDs), e.config.Context)
	}
	leave, err := e.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	cache := kv.New(e.layout.Caches, e.config.Kernels != nil)
	defer func() {
		_ = e.do(context.Background(), func(*mlx.Scope) error { cache.Close(); return nil })
	}()
	width := 1 // values a position
	if output == cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS {
		width = e.layout.Vocab
	}
	began := time.Now()
	for done := 0; done < len(job.IDs); {
		n := min(e.pace.chunk(len(job.IDs)-done), max(1, scoreBytes/(4*e.layout.Vocab)))
		var values []float32
		start := time.Now()
		err := e.do(ctx, func(s *mlx.Scope) (err error) {
			values, err = e.score(s, cache, job.IDs, done, n, output)
			return err
		})
		if err != nil {
			return err
		}
		e.pace.took(n, time.Since(start))
		if err := emitScores(values, done, width, emit); err != nil {
			return err
		}
		done += n
	}
	e.promptTokens.Add(uint64(len(job.IDs)))
	return emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Done{Done: &cladev1.Usage{
		PromptTokens: uint32(len(job.IDs)), PrefillNs: uint64(time.Since(began)),
	}}})
}

// score evaluates n ids from done on: their logits [n, vocab], or the log probabilities of their successors.
func (e *Engine) score(s *mlx.Scope, cache *kv.Cache, ids []int32, done, n int, output cladev1.ScoreOutput) ([]float32, error) {
	pass := cache.Begin(n)
	hidden := e.model.Forward(s, mlx.FromSlice(s, ids[done:done+n], 1, n), pass) // [1, n, hidden]
	pass.End()
	logits := s.AsType(s.Reshape(e.model.Unembed(s, hidden), n, e.layout.Vocab), mlx.Float32)
	e.evaluations.Add(1)
	e.tokens.Add(uint64(n))
	out := logits
	if output == cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS {
		next := ids[done+1 : min(done+n+1, len(ids))]
		if len(next) == 0 {
			return nil, s.Eval(cache.Arrays()...)
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
