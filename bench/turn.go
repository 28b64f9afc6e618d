package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/clademl/clade/core/compose"
)

const (
	// turnTokens of a conversation before its second turn, turnAnswer what it answers first, turnNew what the second turn adds.
	turnTokens, turnAnswer, turnNew = 4000, 24, 40
	// turnRepeats: a first turn takes a quarter of a minute.
	turnRepeats = 3
)

// turnRows measure how soon the second turn of a long conversation begins, beside its first.
func (o options) turnRows(ctx context.Context) ([]Row, error) {
	clade, err := openClade(ctx, o.root, o.model, compose.Wishes{Threads: uint32(o.threads), Context: 5120, PrefixCache: strconv.Itoa(512 << 20)})
	if err != nil {
		return nil, err
	}
	defer clade.close()
	if err := sound(ctx, clade, 0); err != nil {
		return nil, err
	}
	var warm, cold []float64
	for i := range min(o.repeats, turnRepeats) {
		ids := make([]int32, turnTokens, turnTokens+turnAnswer+turnNew)
		for j := range ids { // no two conversations begin alike
			ids[j] = int32(100 + (j*37+i*1009+j*j%11)%40_000)
		}
		first, _, answer, err := clade.run(ctx, ids, turnAnswer)
		if err != nil {
			return nil, err
		}
		ids = append(ids, answer...)
		for j := range turnNew {
			ids = append(ids, int32(200+j))
		}
		second, _, _, err := clade.run(ctx, ids, 1)
		if err != nil {
			return nil, err
		}
		cold, warm = append(cold, float64(first.Milliseconds())), append(warm, float64(second.Microseconds())/1000)
	}
	r := paired(modelName+"/turn2/ttft", "ms", "its first turn", warm, cold, "<= 0.1 x")
	r.Note = fmt.Sprintf("time to the first token of a second turn, %d tokens behind %d", turnNew, turnTokens+turnAnswer)
	return []Row{r}, nil
}
