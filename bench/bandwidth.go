package main

import (
	"sync"
	"time"
	"unsafe"
)

// bandwidthBytes is what one pass reads: far beyond any cache.
const bandwidthBytes = 2 << 30

// sum64 adds 8-byte words in eight independent chains, so that the adds overlap with the loads.
func sum64(p []uint64) uint64 {
	var a, b, c, d, e, f, g, h uint64
	for len(p) >= 8 {
		a += p[0]
		b += p[1]
		c += p[2]
		d += p[3]
		e += p[4]
		f += p[5]
		g += p[6]
		h += p[7]
		p = p[8:]
	}
	for _, x := range p {
		a += x
	}
	return a + b + c + d + e + f + g + h
}

// readBandwidth reads 2 GiB with the given threads and returns GB/s (10^9) of each repeat, and of the same loop over a
// block that stays in the first-level cache, in memory like that of weights: unless that is well above, the loop and not the memory was measured.
func readBandwidth(threads, repeats int) (memory, cached []float64) {
	words, free := largeWords(bandwidthBytes / 8)
	defer free()
	for i := range words { // touch every page
		words[i] = uint64(i)
	}
	part := len(words) / threads
	var sink uint64
	for range repeats {
		memory = append(memory, rate(threads, func(t int) uint64 { return sum64(words[t*part : (t+1)*part]) }))
		const block = 16 << 10 / 8
		cached = append(cached, rate(threads, func(t int) uint64 {
			var s uint64
			for range part / block {
				s += sum64(words[t*part : t*part+block])
			}
			return s
		}))
	}
	keep(&sink)
	return memory, cached
}

// rate runs fn in threads goroutines and returns the 10^9 bytes a second that all of them read.
func rate(threads int, fn func(t int) uint64) float64 {
	sums := make([]uint64, threads)
	var wg sync.WaitGroup
	start := time.Now()
	for t := range threads {
		wg.Go(func() { sums[t] = fn(t) })
	}
	wg.Wait()
	seconds := time.Since(start).Seconds()
	keep(&sums[0])
	return bandwidthBytes / seconds / 1e9
}

// keep makes the compiler believe that a value is used.
//
//go:noinline
func keep(p *uint64) unsafe.Pointer { return unsafe.Pointer(p) }
