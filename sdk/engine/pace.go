package engine

import "time"

// How long one prefill evaluation should last: alone, short enough for a heartbeat and for cancelling; while others decode, short
// enough for their readers.
const (
	evaluationTarget = 800 * time.Millisecond
	besideTarget     = 200 * time.Millisecond
)

// Slow guesses of multiply-adds in a second, for the chunk that is tried before any speed is known.
const (
	stockRate   = 1e9  // MLX's reference BLAS on one core
	kernelsRate = 20e9 // two old cores
)

// firstChunk is how many tokens a slow machine evaluates in a quarter of the target.
func firstChunk(c Config) int {
	rate := stockRate
	if c.Kernels != nil {
		rate = kernelsRate
	}
	return max(4, int(rate*evaluationTarget.Seconds()/4/float64(max(c.Parameters, 1))))
}

// pace sizes prefill chunks from measured speed.
type pace struct {
	target time.Duration
	limit  int
	next   int // tokens of the next chunk
}

func newPace(limit, first int, target time.Duration) pace {
	limit = max(limit, 1)
	return pace{target: target, limit: limit, next: min(max(first, 1), limit)}
}

// took learns from an evaluation of n tokens. A short last chunk says little, so only what filled the chunk counts.
func (p *pace) took(n int, d time.Duration) {
	if n < p.next {
		return
	}
	fits := int(float64(n) * p.target.Seconds() / max(d.Seconds(), 1e-6))
	p.next = min(max(fits, 1), 4*p.next, p.limit)
}
