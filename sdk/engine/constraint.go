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

// masks has the constraints of the rows to be sampled say what may come. A row whose constraint fails, or allows nothing, ends
// and is not sampled for anybody.
func (e *Engine) masks(f *flight) {
	var wg sync.WaitGroup
	failures := make([]error, len(f.draws))
	for i, d := range f.draws {
		if d.gen.constraint == nil {
			continue
		}
		wg.Go(func() { d.allowed, failures[i] = d.gen.mask(e.layout.Vocab, e.config.EOS) })
	}
	wg.Wait()
	for i, err := range failures {
		if err != nil {
			e.endWith(f.draws[i].row, err)
		}
	}
}

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
		if d.allowed[id/32]>>(id%32)&1 == 0 {
			row[id] = float32(math.Inf(-1))
		}
	}
}
