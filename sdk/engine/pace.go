package engine

import "time"

// evaluationTarget is how long one prefill evaluation should last: short enough for a heartbeat and for cancelling.
const evaluationTarget = 800 * time.Millisecond

// firstChunk is what is tried before any speed is known: the stock CPU runtime takes 0.1 s for a token of a small model.
const firstChunk = 4

// pace sizes prefill chunks from measured speed.
type pace struct {
	limit int
	next  int
}

func newPace(limit int) pace { return pace{limit: max(limit, 1), next: min(firstChunk, max(limit, 1))} }

// chunk is how many of the remaining tokens to evaluate next.
func (p *pace) chunk(remaining int) int { return min(p.next, remaining) }

// took learns from an evaluation of n tokens. A short last chunk says little, so only what filled the chunk counts.
func (p *pace) took(n int, d time.Duration) {
	if n < p.next {
		return
	}
	fits := int(float64(n) * evaluationTarget.Seconds() / max(d.Seconds(), 1e-6))
	p.next = min(max(fits, 1), 4*p.next, p.limit)
}
