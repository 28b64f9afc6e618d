package engine

import (
	"slices"
	"sync/atomic"

	"github.com/clademl/clade/sdk/engine/prefix"
	"github.com/clademl/clade/sdk/engine/schedule"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// memory is what the engine keeps of earlier requests' beginnings. The loop alone touches runs, on the worker's thread.
type memory struct {
	runs           *prefix.Cache[*kv.Run]
	on             bool
	queried, found atomic.Uint64 // prompt tokens
}

func newMemory(bytes int64) *memory {
	return &memory{runs: prefix.New[*kv.Run](bytes), on: bytes > 0}
}

// restore fills the cache of a row that got a slot with what is kept of its beginning, and returns how many tokens that is. Its
// last token is always computed: the next one is sampled from it. A row whose forward failed takes nothing from here.
func (e *Engine) restore(r *row) int {
	if !e.restores(r) {
		return 0
	}
	n := 0
	err := e.do(func(s *mlx.Scope) error {
		pieces, held, release := e.memory.runs.Lookup(r.namespace(), r.ids[:len(r.ids)-1])
		defer release()
		if held == 0 {
			return nil
		}
		cache, err := e.newCache(s, r)
		if err != nil {
			return err
		}
		parts := make([]kv.Piece, len(pieces))
		for i, p := range pieces {
			parts[i] = kv.Piece{Run: p.Payload, From: p.From, Tokens: p.Tokens}
		}
		parts, held = cache.Usable(parts)
		if err := cache.Fill(s, parts); err != nil || held == 0 {
			cache.Close()
			return err
		}
		r.cache, r.restored, n = cache, held, held
		e.sched.Holds(&r.Row, cache.Whole())
		return nil
	})
	if err != nil { // the row computes all of its tokens, as if nothing had been kept
		e.totals.failures.Add(1)
		return 0
	}
	if !r.looked {
		e.memory.queried.Add(uint64(r.prompt))
		e.memory.found.Add(uint64(min(n, r.prompt)))
		r.looked = true
	}
	return n
}

// restores says whether a row takes from what is kept.
func (e *Engine) restores(r *row) bool {
	return e.memory.on && r.gen != nil && r.gen.remember && r.cache == nil && !r.failed
}

// begins are the blocks that restore would find for a row, as far as they are whole.
func (e *Engine) begins(r *row) []uint64 {
	if !e.restores(r) {
		return nil
	}
	cache := e.emptyCache()
	pieces, _ := cache.Usable(behind(e.memory.runs.Begins(r.namespace(), r.ids[:len(r.ids)-1]), 0))
	return cache.Begins(pieces)
}

// worthKeeping says of a row that ends, also of one that was cancelled, whether its cache holds what is not kept yet: prompt and
// answer are the beginning of the next turn.
func (e *Engine) worthKeeping(r *row) bool {
	if !e.memory.on || r.gen == nil || !r.gen.remember || r.cache == nil {
		return false
	}
	known := r.known()
	if r.cache.Forgets() && known == r.cache.Offset() {
		return known > 0 // how the text ends there is not known of runs that go on
	}
	return known > 0 && e.memory.runs.Held(r.namespace(), r.past()[:known]) < known
}

// past is what the row's cache may hold: the ids, and the one that ended the text, which is often the next turn's too.
func (r *row) past() []int32 {
	if !r.stopped {
		return r.ids
	}
	return append(slices.Clip(r.ids), r.stop)
}

// namespace is the same for rows that differ in nothing but their tokens: what else changes keys and values are their adapters, and what
// they attend to beside.
func (r *row) namespace() string {
	if r.source == nil {
		return r.adapters.Key
	}
	return r.adapters.Key + " source " + r.source.digest
}

// known is how many tokens are both in the row's cache and read: the cache may be one step ahead.
func (r *row) known() int { return min(len(r.past()), r.cache.Offset()) }

// remember keeps the first n tokens that a row has computed.
func (e *Engine) remember(s *mlx.Scope, r *row, n int) {
	ids := r.past()[:n]
	copied := func(from, to int) (prefix.Piece[*kv.Run], error) {
		first := from
		if e.memory.runs.Merges { // the block has the tokens before too, and takes the place of the one that was kept of them
			first = from / kv.Step * kv.Step
		}
		run, err := r.cache.Copy(s, first, to)
		return prefix.Piece[*kv.Run]{Payload: run, From: from - first, Tokens: to - from}, err
	}
	err := e.memory.runs.Insert(r.namespace(), ids, copied)
	if err == nil && r.cache.Forgets() && r.cache.Ends(n) {
		err = e.memory.runs.Renew(r.namespace(), ids, copied, func(pieces []prefix.Piece[*kv.Run]) bool {
			_, usable := r.cache.Usable(behind(pieces, 0))
			return usable == n
		})
	}
	if err != nil {
		e.totals.failures.Add(1)
	}
	e.sched.Holds(&r.Row, r.cache.Whole()) // others may find them now
	if e.saver != nil {
		e.saver.offer(savable{r.namespace(), slices.Clone(ids), append(slices.Clone(r.captures), r.gen.borders...)})
	}
}

const (
	// captureEvery is how many tokens of a prompt lie between two places at which a cache that forgets is captured, at most.
	captureEvery = 2048
	// captureBefore is how far before a prompt's end it is captured where no border is as near: the same prompt may come again, with
	// another end.
	captureBefore = 4
)

// capturesOf are the positions at which a forward ends and the row's cache is captured, because it could not be gone on with from a
// copy that is made later: a window's or a state's. The last messages' ends are worth most, then the first's.
func (r *row) capturesOf() []int {
	ids := len(r.ids)
	out := []int{ids - captureBefore}
	for at := captureEvery; at < ids; at += captureEvery {
		out = append(out, at)
	}
	if b := r.gen.borders; len(b) > 0 {
		out = append(out, b[0], b[len(b)-1], b[max(0, len(b)-2)])
		if ids-b[len(b)-1] < captureEvery/16 {
			out = out[1:] // the last border is near enough
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(out, func(at int) bool { return at <= 0 || at >= ids })
}

// cut says how many of n tokens behind the first ones a forward of the row may take: it ends where the cache is captured, the place
// that it is captured at on the way aside.
func (r *row) cut(first, n int) int {
	at, _ := slices.BinarySearch(r.captures, first+1)
	if r.passes {
		at++
	}
	if at < len(r.captures) {
		return min(n, r.captures[at]-first)
	}
	return n
}

// keeps is the place, behind so many of a segment's tokens, at which the row's cache is captured on the way.
func (r *row) keeps(g schedule.Segment) []int {
	at, _ := slices.BinarySearch(r.captures, g.First+1)
	if !r.passes || at == len(r.captures) || r.captures[at] >= g.First+g.Tokens {
		return nil
	}
	return []int{r.captures[at] - g.First}
}

// capture keeps what rows have computed up to the places where their caches have to be.
func (e *Engine) capture(s *mlx.Scope, f *flight) {
	for i, g := range f.segments {
		r := f.rows[i]
		for _, n := range append(r.keeps(g), g.Tokens) {
			if _, found := slices.BinarySearch(r.captures, g.First+n); found && r.cache != nil && r.cache.Ends(g.First+n) {
				e.remember(s, r, g.First+n)
			}
		}
	}
}
