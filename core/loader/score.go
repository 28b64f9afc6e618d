package loader

import (
	"context"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Score runs a forward over ids; on gets the frames in order: float32 logits of every position, or the log probability of
// each next token.
func (m *Model) Score(ctx context.Context, ids []int32, output cladev1.ScoreOutput, on func(*cladev1.ScoreFrame) error) (*cladev1.Usage, error) {
	limit := int(m.Facts().GetContextLength())
	switch {
	case len(ids) == 0:
		return nil, contract.Errorf(contract.InvalidArgument, "ids", "has no tokens")
	case len(ids) > limit:
		return nil, contract.Errorf(contract.ContextTooLong, "ids", "has %d tokens, the context is %d", len(ids), limit).
			WithNext("score fewer at once, or open the model with a larger --context")
	}
	release, err := m.admitRequest(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	p, err := m.alive(ctx)
	if err != nil {
		return nil, err
	}
	usage, err := p.process.Score(ctx, &cladev1.ScoreStart{Output: output}, ids, on)
	if err != nil {
		return nil, m.blame(ctx, err)
	}
	return usage, nil
}
