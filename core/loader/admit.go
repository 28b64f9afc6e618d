package loader

import (
	"context"
	"fmt"
	"strings"

	"github.com/clademl/clade/core/config"
)

// Context steps and the least that is worth opening when the default does not fit.
const (
	contextStep = 256
	leastFit    = 2048
)

// judge looks at the plan beside what there is. It returns a smaller context worth trying when nobody asked for this one, and
// else leaves the refusal in Admission, with the numbers.
func (p *Planned) judge() (smaller uint32) {
	p.Admission = nil
	if !p.room.known() || p.Plan.GetTotalBytes() <= p.room.most() {
		return 0
	}
	if fits := p.fitting(p.room.most()); fits >= leastFit && p.Composition.ContextIsOpen() {
		return fits
	}
	p.Admission = p.refuse(p.room)
	return 0
}

// fitting is the largest context, in steps, with which the plan would take at most limit bytes; 0 when none does. What shrinks
// with the context beside the cache is not counted, so it is never too large.
func (p *Planned) fitting(limit uint64) uint32 {
	total, context, perToken := p.Plan.GetTotalBytes(), uint64(p.Plan.GetContext()), p.Plan.GetBytesPerToken()
	if total <= limit || perToken == 0 {
		return 0
	}
	drop := (total - limit + perToken - 1) / perToken
	if drop >= context {
		return 0
	}
	return uint32((context - drop) / contextStep * contextStep)
}

// sum is the plan's lines in words.
func (p *Planned) sum() string {
	var lines []string
	for _, l := range p.Plan.GetLines() {
		lines = append(lines, fmt.Sprintf("%s %s", l.GetName(), config.FormatBytes(l.GetBytes())))
	}
	return strings.Join(lines, ", ")
}

// admit takes the plan's share of the host's memory, closing idle models when that makes the room.
func (p *Planned) admit(ctx context.Context) error {
	if p.Admission != nil {
		return p.Admission
	}
	r, ok := p.host.ledger().take(ctx, p.host.Budget, p.Decision, share{p.Plan.GetTotalBytes(), p.process.Pid()})
	if !ok {
		return p.refuse(r)
	}
	return nil
}
