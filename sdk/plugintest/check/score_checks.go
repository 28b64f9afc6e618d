package check

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// score gives one row of values for each position.
func (s *subject) score(ctx context.Context, p *process, ids []int32, output cladev1.ScoreOutput) ([][]float32, error) {
	return s.scoreAs(ctx, p, &cladev1.ScoreStart{Output: output}, ids)
}

func (s *subject) scoreAs(ctx context.Context, p *process, start *cladev1.ScoreStart, ids []int32) ([][]float32, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := p.rpc.Score(ctx)
	if err != nil {
		return nil, contract.FromStatus(err)
	}
	for _, m := range []*cladev1.ScoreRequest{
		{Message: &cladev1.ScoreRequest_Start{Start: start}},
		{Message: &cladev1.ScoreRequest_Ids{Ids: &cladev1.IdsChunk{Ids: ids}}},
		{Message: &cladev1.ScoreRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}},
	} {
		if err := stream.Send(m); err != nil {
			break // the reason comes with Recv
		}
	}
	rows := make([][]float32, len(ids))
	for {
		m, err := recvFrom(s, "Score", cancel, stream.Recv)
		if err != nil {
			return nil, contract.FromStatus(err)
		}
		if f := m.GetFrame(); f != nil {
			if int(f.Position) >= len(ids) || int(f.Offset) != len(rows[f.Position]) {
				return nil, fmt.Errorf("a frame of position %d at offset %d does not follow the one before it", f.Position, f.Offset)
			}
			rows[f.Position] = append(rows[f.Position], f.Values...)
		}
		if u := m.GetDone(); u != nil {
			if int(u.PromptTokens) != len(ids) {
				return nil, fmt.Errorf("usage states %d tokens, %d were sent", u.PromptTokens, len(ids))
			}
			return rows, nil
		}
	}
}

func (s *subject) checkScore(ctx context.Context) error {
	if err := s.needs("Score"); err != nil {
		return err
	}
	p, err := s.opened(ctx)
	if err != nil {
		return err
	}
	ids := s.prompt(usualPrompt, 0)
	logits, err := s.score(ctx, p, ids, cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS)
	if err != nil {
		return err
	}
	for i, row := range logits {
		if len(row) != int(s.facts.VocabSize) {
			return fmt.Errorf("%d logits at position %d, the vocabulary is %d", len(row), i, s.facts.VocabSize)
		}
		if j := slices.IndexFunc(row, func(v float32) bool { return math.IsNaN(float64(v)) }); j >= 0 {
			return fmt.Errorf("the logit of id %d at position %d is not a number", j, i)
		}
	}
	if err := s.scoreAgrees(ctx, p, logits); err != nil {
		return err
	}
	logprobs, err := s.score(ctx, p, ids, cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS)
	if err != nil {
		return err
	}
	for i := range len(ids) - 1 {
		if len(logprobs[i]) != 1 {
			return fmt.Errorf("%d log probabilities at position %d, one is due", len(logprobs[i]), i)
		}
		want := logSoftmaxAt(logits[i], ids[i+1])
		if math.Abs(want-float64(logprobs[i][0])) > 1e-3*(1+math.Abs(want)) {
			return fmt.Errorf("log p of id %d behind position %d is %g, its logits say %g", ids[i+1], i, logprobs[i][0], want)
		}
	}
	return nil
}

// scoreAgrees holds the last row to what the greedy answer begins with.
func (s *subject) scoreAgrees(ctx context.Context, p *process, logits [][]float32) error {
	if !s.rpcs["Generate"] {
		return nil
	}
	a, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	row := logits[len(logits)-1]
	best := slices.Max(row)
	if got := row[a.ids[0]]; float64(best-got) > 1e-3*(1+math.Abs(float64(best))) {
		return fmt.Errorf("the greedy answer begins with id %d of logit %g, the largest behind the prompt is %g: Score and Generate are not of one model",
			a.ids[0], got, best)
	}
	return nil
}

func logSoftmaxAt(row []float32, id int32) float64 {
	most := float64(slices.Max(row))
	var sum float64
	for _, v := range row {
		sum += math.Exp(float64(v) - most)
	}
	return float64(row[id]) - most - math.Log(sum)
}
