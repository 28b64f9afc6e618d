package tokenizer

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// wordCache remembers the ids of words. It is bounded: each word has one slot, and a newer word takes it. Lock-free, so
// that concurrent requests do not wait for one another. Words longer than cacheWord are rare and would pin memory.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cached]
}

const (
	cacheSlots = 1 << 14
	cacheWord  = 40
)

type cached struct {
	word string
	ids  []int32
}

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

func (c *wordCache) slot(word string) *atomic.Pointer[cached] {
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

func (c *wordCache) get(word string) ([]int32, bool) {
	if len(word) > cacheWord {
		return nil, false
	}
	if e := c.slot(word).Load(); e != nil && e.word == word {
		return e.ids, true
	}
	return nil, false
}

func (c *wordCache) put(word string, ids []int32) {
	if len(word) > cacheWord {
		return
	}
	c.slot(word).Store(&cached{strings.Clone(word), append([]int32(nil), ids...)})
}
