package prefix

import (
	"fmt"
	"slices"
)

// Run is the most tokens of one run: a payload is made for so many at a time, cut at multiples of it.
const Run = 256

// Payload is what is kept of a run of tokens.
type Payload interface {
	// Bytes it takes.
	Bytes() int64
	// Close frees it.
	Close()
}

// Piece is a part of a payload: the tokens [From, From+Tokens) of its run.
type Piece[P Payload] struct {
	Payload      P
	From, Tokens int
}

// Stats of a cache.
type Stats struct {
	// Bytes held and the most that may be.
	Bytes, Budget int64
	Runs          int
	// Asked and Found count tokens of lookups, Evicted payloads that had to go.
	Asked, Found, Evicted uint64
}

// Cache is a trie of runs. It is for one goroutine.
type Cache[P Payload] struct {
	// Merges: a payload's part serves a run as well as a payload of its own. One that holds tokens before its run's (Piece.From) is
	// then the payload of the runs of those too.
	Merges bool

	budget, used int64
	roots        map[string]*node[P]
	clock        uint64
	stats        Stats
}

// node is a run of tokens behind its parent's.
type node[P Payload] struct {
	parent   *node[P]
	children []*node[P] // each begins with another token
	tokens   []int32
	piece    Piece[P]
	shared   *shared[P]
	used     uint64 // the clock of its last use
}

// shared is a payload and who needs it.
type shared[P Payload] struct {
	payload P
	needed  int // runs and readers
}

// New makes an empty cache that holds at most budget bytes.
func New[P Payload](budget int64) *Cache[P] {
	return &Cache[P]{budget: budget, roots: map[string]*node[P]{}}
}

// Lookup finds the longest beginning of tokens that is held: its pieces in order and its length. The pieces stay valid until
// release is called, which must be.
func (c *Cache[P]) Lookup(namespace string, tokens []int32) (pieces []Piece[P], n int, release func()) {
	c.clock++
	c.stats.Asked += uint64(len(tokens))
	var pinned []*shared[P]
	n = c.follow(namespace, tokens, func(at *node[P], same int) {
		at.used = c.clock
		at.shared.needed++
		pinned = append(pinned, at.shared)
		piece := at.piece
		piece.Tokens = same
		pieces = append(pieces, piece)
	})
	c.stats.Found += uint64(n)
	return pieces, n, func() {
		for _, s := range pinned {
			c.drop(s)
		}
		pinned = nil
	}
}

// Begins is Lookup for a glance: nothing is counted as used, and the pieces are valid until the cache changes.
func (c *Cache[P]) Begins(namespace string, tokens []int32) (pieces []Piece[P]) {
	c.follow(namespace, tokens, func(at *node[P], same int) {
		piece := at.piece
		piece.Tokens = same
		pieces = append(pieces, piece)
	})
	return pieces
}

// Held is how many of the first tokens are held.
func (c *Cache[P]) Held(namespace string, tokens []int32) int {
	return c.follow(namespace, tokens, func(*node[P], int) {})
}

// follow visits the runs that tokens begin with, each with how many of its tokens are theirs, and returns the sum.
func (c *Cache[P]) follow(namespace string, tokens []int32, visit func(at *node[P], same int)) (n int) {
	at := c.roots[namespace]
	for at != nil && n < len(tokens) {
		next := at.child(tokens[n])
		if next == nil {
			break
		}
		same := common(next.tokens, tokens[n:])
		visit(next, same)
		n += same
		if same < len(next.tokens) {
			break
		}
		at = next
	}
	return n
}

// Maker gives the payload of a run that is missing, whose tokens are at [from, to). The piece begins with the token at from and may
// be shorter; what follows is asked for again.
type Maker[P Payload] func(from, to int) (Piece[P], error)

// Insert adds tokens. make is called for each run that is missing, in order; an error ends the insertion and keeps what was added
// before. A run for which there is no room, even after those used longest ago have gone, ends it too, without an error.
func (c *Cache[P]) Insert(namespace string, tokens []int32, make Maker[P]) error {
	c.clock++
	at := c.roots[namespace]
	if at == nil {
		at = &node[P]{}
		c.roots[namespace] = at
	}
	for n := 0; n < len(tokens); {
		at.used = c.clock
		if next := at.child(tokens[n]); next != nil {
			same := common(next.tokens, tokens[n:])
			if same < len(next.tokens) {
				if n+same == len(tokens) {
					next.used = c.clock
					return nil // all of it is there
				}
				next = next.divide(same)
			}
			n, at = n+same, next
			continue
		}
		to := min(len(tokens), (n/Run+1)*Run)
		piece, err := make(n, to)
		if err != nil {
			return fmt.Errorf("keep tokens %d to %d: %w", n, to, err)
		}
		if !c.room(piece.Payload.Bytes(), at) {
			piece.Payload.Close()
			return nil
		}
		at = c.add(at, tokens[n:n+piece.Tokens], piece)
		n += piece.Tokens
		if c.Merges {
			c.merge(at)
		}
	}
	at.used = c.clock
	return nil
}

// Renew replaces payloads of tokens, all of which are held, from the last run on, until enough says of the pieces that no more have to
// be: a payload may lack what only one made as the text ended there has. The last run is divided where the tokens end.
func (c *Cache[P]) Renew(namespace string, tokens []int32, make Maker[P], enough func([]Piece[P]) bool) error {
	c.clock++
	path := c.path(namespace, tokens)
	if path == nil {
		return nil
	}
	end := len(tokens)
	for i := len(path) - 1; i >= 0 && !enough(piecesOf(path)); i-- {
		at := path[i]
		piece, err := make(end-at.piece.Tokens, end)
		if err != nil {
			return fmt.Errorf("renew the tokens before %d: %w", end, err)
		}
		if piece.Tokens != at.piece.Tokens || !c.room(piece.Payload.Bytes(), path[len(path)-1]) {
			piece.Payload.Close()
			return nil
		}
		c.used += piece.Payload.Bytes()
		end -= piece.Tokens
		before := at.shared
		at.piece, at.shared = piece, &shared[P]{payload: piece.Payload, needed: 1}
		c.drop(before)
	}
	return nil
}

// path is the runs of tokens, the last one divided where they end; nil if not all are held.
func (c *Cache[P]) path(namespace string, tokens []int32) []*node[P] {
	var out []*node[P]
	last := 0
	n := c.follow(namespace, tokens, func(at *node[P], same int) {
		at.used, last = c.clock, same
		out = append(out, at)
	})
	if n < len(tokens) || n == 0 {
		return nil
	}
	if end := &out[len(out)-1]; last < len((*end).tokens) {
		*end = (*end).divide(last)
	}
	return out
}

func piecesOf[P Payload](path []*node[P]) []Piece[P] {
	out := make([]Piece[P], len(path))
	for i, n := range path {
		out[i] = n.piece
	}
	return out
}

// add puts a new run behind at.
func (c *Cache[P]) add(at *node[P], tokens []int32, piece Piece[P]) *node[P] {
	child := &node[P]{
		parent: at, tokens: slices.Clone(tokens), used: c.clock, piece: piece, shared: &shared[P]{payload: piece.Payload, needed: 1},
	}
	at.children = append(at.children, child)
	c.used += piece.Payload.Bytes()
	c.stats.Runs++
	return child
}

// merge gives the runs before one its payload, as far as that holds all that is used of theirs.
func (c *Cache[P]) merge(n *node[P]) {
	from := n.piece.From
	for at := n.parent; at.parent != nil; {
		theirs, first, runs, tokens := at.shared, at, 0, 0
		for ; first.parent != nil && first.shared == theirs; first = first.parent {
			runs, tokens = runs+1, tokens+len(first.tokens)
		}
		if theirs.needed > runs || tokens > from {
			return // somebody else has it too, or it holds more
		}
		for ; at != first; at = at.parent {
			from -= len(at.tokens)
			n.shared.needed++
			at.piece, at.shared = Piece[P]{Payload: n.piece.Payload, From: from, Tokens: len(at.tokens)}, n.shared
			c.drop(theirs)
		}
	}
}

// room evicts until bytes more fit, never a run on the path that ends at keep, and says whether they do.
func (c *Cache[P]) room(bytes int64, keep *node[P]) bool {
	for c.used+bytes > c.budget {
		victim := c.oldest(keep)
		if victim == nil {
			return false
		}
		c.remove(victim)
		c.stats.Evicted++
	}
	return true
}

// oldest is the leaf that was used longest ago; nil when only keep's path is left. A leaf whose payload a reader holds frees
// nothing now, and is left alone.
func (c *Cache[P]) oldest(keep *node[P]) *node[P] {
	var found *node[P]
	for _, root := range c.roots {
		root.walk(func(n *node[P]) {
			if len(n.children) == 0 && n != keep && n.parent != nil && n.shared.needed <= n.sharers() && (found == nil || n.used < found.used) {
				found = n
			}
		})
	}
	return found
}

// sharers counts the runs on n's path and beside it that share its payload: those made of it by dividing.
func (n *node[P]) sharers() int {
	top := n
	for top.parent != nil && top.parent.shared == n.shared {
		top = top.parent
	}
	count := 0
	top.walk(func(m *node[P]) {
		if m.shared == n.shared {
			count++
		}
	})
	return count
}

// remove takes a leaf out.
func (c *Cache[P]) remove(n *node[P]) {
	n.parent.children = slices.DeleteFunc(n.parent.children, func(m *node[P]) bool { return m == n })
	c.stats.Runs--
	c.drop(n.shared)
}

func (c *Cache[P]) drop(s *shared[P]) {
	s.needed--
	if s.needed == 0 {
		c.used -= s.payload.Bytes()
		s.payload.Close()
	}
}

// Clear drops everything of every namespace. What a reader holds goes with its release.
func (c *Cache[P]) Clear() {
	for _, root := range c.roots {
		root.walk(func(n *node[P]) {
			if n.parent != nil {
				c.drop(n.shared)
			}
		})
	}
	c.roots, c.stats.Runs = map[string]*node[P]{}, 0
}

// Stats is the state of the moment.
func (c *Cache[P]) Stats() Stats {
	out := c.stats
	out.Bytes, out.Budget = c.used, c.budget
	return out
}

func (n *node[P]) child(first int32) *node[P] {
	for _, c := range n.children {
		if c.tokens[0] == first {
			return c
		}
	}
	return nil
}

// divide splits n's run behind its first at tokens and returns the new node of those; n becomes its child.
func (n *node[P]) divide(at int) *node[P] {
	head := &node[P]{
		parent: n.parent, children: []*node[P]{n}, tokens: n.tokens[:at:at], used: n.used, shared: n.shared,
		piece: Piece[P]{Payload: n.piece.Payload, From: n.piece.From, Tokens: at},
	}
	n.shared.needed++
	n.parent.children[slices.Index(n.parent.children, n)] = head
	n.parent, n.tokens = head, n.tokens[at:]
	n.piece.From, n.piece.Tokens = n.piece.From+at, n.piece.Tokens-at
	return head
}

func (n *node[P]) walk(fn func(*node[P])) {
	for _, c := range n.children {
		c.walk(fn)
	}
	fn(n)
}

// common is how many tokens a and b begin with alike.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
