package engine

import (
	"slices"
	"sync/atomic"

	"github.com/clademl/clade/sdk/engine/prefix"
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

// shared is the namespace of requests that differ in nothing but their tokens.
const shared = ""

// restore fills the cache of a row that got a slot with what is kept of its beginning, and returns how many tokens that is. Its
// last token is always computed: the next one is sampled from it. A row whose forward failed takes nothing from here.
func (e *Engine) restore(r *row) int {
	if !e.memory.on || r.gen == nil || !r.gen.remember || r.cache != nil || r.failed {
		return 0
	}
	n := 0
	err := e.do(func(s *mlx.Scope) error {
		pieces, held, release := e.memory.runs.Lookup(shared, r.ids[:len(r.ids)-1])
		defer release()
		if held == 0 {
			return nil
		}
		cache := e.newCache()
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

// worthKeeping says of a row that ends, also of one that was cancelled, whether its cache holds what is not kept yet: prompt and
// answer are the beginning of the next turn.
func (e *Engine) worthKeeping(r *row) bool {
	if !e.memory.on || r.gen == nil || !r.gen.remember || r.cache == nil {
		return false
	}
	known := r.known()
	return known > 0 && e.memory.runs.Held(shared, r.ids[:known]) < known
}

// known is how many tokens are both in the row's cache and read: the cache may be one step ahead.
func (r *row) known() int { return min(len(r.ids), r.cache.Offset()) }

// remember keeps what a row has computed.
func (e *Engine) remember(s *mlx.Scope, r *row) {
	ids := r.ids[:r.known()]
	err := e.memory.runs.Insert(shared, ids, func(from, to int) (prefix.Piece[*kv.Run], error) {
		run, err := r.cache.Copy(s, from, to)
		return prefix.Piece[*kv.Run]{Payload: run, Tokens: to - from}, err
	})
	if err != nil {
		e.totals.failures.Add(1)
	}
	if e.saver != nil {
		e.saver.offer(savable{slices.Clone(ids), r.gen.borders})
	}
}
