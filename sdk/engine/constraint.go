package engine

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/clademl/clade/sdk/contract"
)

// Constraint narrows what one request may generate. Its calls never overlap; Mask runs while the device computes the forward whose
// tokens it narrows, beside those of other rows.
type Constraint interface {
	// Mask sets, in (vocab+31)/32 words of zeros, the bit of every id that may come next.
	Mask(dst []uint32) error
	// Commit takes a token that was generated. Stop ids are not committed.
	Commit(id int32) error
	// Done reports that nothing may follow.
	Done() bool
	Close()
}

// constrain makes a request's constraint and drives it through what was generated before a restart.
func (e *Engine) constrain(req *request) (Constraint, error) {
	if req.narrowed == nil {
		return nil, nil
	}
	if e.config.Constraints == nil {
		return nil, unhonoured("constraint", "nothing here compiles it")
	}
	c, err := e.config.Constraints(req.narrowed)
	if err != nil {
		return nil, err
	}
	for _, id := range req.ids[req.prompt:] {
		if err := c.Commit(id); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Rollbacker is a Constraint that can take back the tokens that were committed last. Drafts are checked only under such a one.
type Rollbacker interface{ Rollback(n int) error }

// masks has the constraints of the rows to be sampled say what may come. A row whose constraint fails, or allows nothing, ends
// and is not sampled for anybody.
func (e *Engine) masks(f *flight) {
	var wg sync.WaitGroup
	failures := make([]error, len(f.draws))
	for i := 0; i < len(f.draws); {
		first, n := f.draws[i], f.segments[f.draws[i].segment].Drafts+1
		if first.gen.constraint != nil {
			draws, failure := f.draws[i:i+n], &failures[i]
			wg.Go(func() { *failure = first.gen.masks(draws, first.drafts, e.layout.Vocab, e.config.EOS) })
		}
		i += n
	}
	wg.Wait()
	for i, err := range failures {
		if err != nil {
			e.endWith(f.draws[i].row, err)
		}
	}
}

// masks fills in what the row's constraint lets come at each of its draws, the last ones behind drafts. Behind a draft that it does
// not let come any mask will do, as the draft is not taken then; behind one that ends the text too.
func (g *generation) masks(draws []*draw, drafts []int32, vocab int, eos []int32) (err error) {
	taken := 0
	for i, d := range draws {
		if d.allowed, err = g.mask(vocab, eos); err != nil && i == 0 {
			return err
		}
		if err != nil { // nothing may follow the drafts up to here: the same will end the text, or they are not taken
			break
		}
		if i == len(draws)-1 || !d.allows(drafts[i]) || slices.Contains(g.stops, drafts[i]) || g.constraint.Commit(drafts[i]) != nil {
			break
		}
		taken++
		if g.constraint.Done() {
			break
		}
	}
	for i := 1; i < len(draws); i++ {
		if draws[i].allowed == nil {
			draws[i].allowed = draws[i-1].allowed
		}
	}
	if taken > 0 {
		return g.constraint.(Rollbacker).Rollback(taken)
	}
	return nil
}

// allows reports whether the constraint lets an id come.
func (d *draw) allows(id int32) bool { return d.allowed[id/32]>>(id%32)&1 == 1 }

// mask is the ids that may come next: a bit each.
func (g *generation) mask(vocab int, eos []int32) (allowed []uint32, err error) {
	allowed = make([]uint32, (vocab+31)/32)
	if err := g.constraint.Mask(allowed); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(eos, func(id int32) bool { return int(id) < vocab && allowed[id/32]>>(id%32)&1 == 1 }) {
		for _, id := range g.stops { // where the text may end, whatever ends it may come
			allowed[id/32] |= 1 << (id % 32)
		}
	}
	for _, word := range allowed {
		if bits.OnesCount32(word) > 0 {
			return allowed, nil
		}
	}
	return nil, contract.Errorf(contract.Internal, "constraint", "no token may follow, and it is not done")
}

// forbid sets to minus infinity, in a row of the vocabulary's width, what the mask does not allow.
func (d *draw) forbid(row []float32) {
	for id := range row {
		if !d.allows(int32(id)) {
			row[id] = float32(math.Inf(-1))
		}
	}
}
