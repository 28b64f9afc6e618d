package kv

import "github.com/clademl/clade/sdk/mlx"

// storage is how one layer keeps what it must know of the tokens before: the seam between a Cache, which counts tokens, and what
// lies in memory. Its methods run on the worker's thread and report errors through the scope where they return none. offset is
// the number of tokens of the sequence that every layer holds.
type storage interface {
	// arrays lists the buffers, for an evaluation that commits them; none before the first token.
	arrays() []*mlx.Array
	// take gives what the layer has of the tokens [from, to), in memory that is never written from then on. A part without anything is
	// not an error: the storage has let them go.
	take(s *mlx.Scope, from, to, offset int) (part, error)
	// shapes are those of the arrays of a part in a form that lost none of its tokens; ok is false for a form that the storage does
	// not have.
	shapes(form uint8, tokens int, dtype mlx.DType) (arrays []shape, ok bool)
	// usable is the most tokens, n at most, with which the sections let the layer go on as if it had computed them.
	usable(sections []section, n int) int
	// fill takes the first n tokens of the sections, a number that usable gave, into an empty storage. It never writes their
	// memory.
	fill(s *mlx.Scope, sections []section, n int)
	// join makes one part of sections, one behind the other; lastPart serves what has no row for every token.
	join(s *mlx.Scope, sections []section) (part, error)
	// close frees the buffers and leaves an empty storage.
	close()
}

// attended is a storage of keys and values, for Pass.Attend.
type attended interface {
	storage
	// put stores the rows k and v [1, Heads, T, HeadDim] of the tokens from offset on.
	put(s *mlx.Scope, k, v *mlx.Array, offset int)
	// view returns the keys and values [1, Heads, to-from, HeadDim] of the tokens [from, to).
	view(s *mlx.Scope, from, to int) (k, v *mlx.Array)
	// lend makes room for tokens more behind offset and gives the buffers to a kernel that writes and attends; giveBack takes
	// what it returned in their place.
	// Without tiles the sequence is one pair of buffers in the compute dtype, position by position.
	lend(s *mlx.Scope, dtype mlx.DType, offset, tokens int) mlx.CacheSequence
	giveBack(s *mlx.Scope, after []mlx.CachePair)
}

// Forgets reports whether a sequence can be gone on with only from where a run was copied as it ended there, or soon after.
func (c *Cache) Forgets() bool { return Forgets(c.specs) }

// Forgets is a Cache's of such layers.
func Forgets(specs []Spec) bool {
	for _, p := range specs {
		if len(p.State) > 0 || p.slots() > 0 {
			return true
		}
	}
	return false
}

// adopting is a storage that may hold what was read of a run otherwise than as it was read.
type adopting interface{ adopt(p part, tokens int) part }

// Captures reports whether a Cache that forgets can be captured at any of a forward's tokens (Segment.Keep), not only at the last:
// it has states, and no windows.
func Captures(specs []Spec) bool {
	for _, p := range specs {
		if p.slots() > 0 {
			return false
		}
	}
	return Forgets(specs)
}

// returning is a storage that cannot simply forget its last tokens.
type returning interface {
	// mark keeps what there is behind offset tokens, until the next mark.
	mark(offset int)
	// rewind forgets the tokens behind the first n of offset, and returns how many it still has: n at most.
	rewind(n, offset int) int
}

// shape of an array in a part.
type shape struct {
	dtype mlx.DType
	dims  []int
}

func (s shape) bytes() int {
	n := s.dtype.Size()
	for _, d := range s.dims {
		n *= d
	}
	return n
}

// storage makes the empty storage of a layer.
func (p Spec) storage(kernels bool) storage {
	if len(p.State) > 0 {
		return &state{spec: p}
	}
	if p.Source > 0 {
		return beside{}
	}
	return newRows(p, kernels)
}
