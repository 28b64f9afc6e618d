package machine

import (
	"sync"
	"time"
)

// A measurement reads far more than any cache holds, a few times, and takes the fastest: what else the machine does only slows it.
const (
	bandwidthBytes  = 256 << 20
	bandwidthPasses = 3
)

// ReadBandwidth is the bytes a second that threads goroutines read from memory together, measured now: about a quarter of a
// second and 256 MiB for as long.
func ReadBandwidth(threads int) float64 {
	threads = max(threads, 1)
	words := make([]uint64, bandwidthBytes/8)
	each(threads, words, func(part []uint64) uint64 {
		for i := range part { // every page gets memory of its own
			part[i] = uint64(i)
		}
		return 0
	})
	best := 0.0
	for range bandwidthPasses {
		start := time.Now()
		if each(threads, words, sum) == 0 {
			return 0 // the sum is not; the compiler cannot know
		}
		best = max(best, bandwidthBytes/time.Since(start).Seconds())
	}
	return best
}

// each runs fn on an equal part of words in every thread, and adds up.
func each(threads int, words []uint64, fn func([]uint64) uint64) uint64 {
	sums := make([]uint64, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() { sums[t] = fn(words[t*len(words)/threads : (t+1)*len(words)/threads]) })
	}
	wg.Wait()
	return sum(sums)
}

// sum adds in eight independent chains, so that the adds overlap with the loads.
func sum(p []uint64) uint64 {
	var a, b, c, d, e, f, g, h uint64
	for ; len(p) >= 8; p = p[8:] {
		a, b, c, d = a+p[0], b+p[1], c+p[2], d+p[3]
		e, f, g, h = e+p[4], f+p[5], g+p[6], h+p[7]
	}
	for _, x := range p {
		a += x
	}
	return a + b + c + d + e + f + g + h
}
