package loader

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Context steps and the least that is worth opening when the default does not fit.
const (
	contextStep = 256
	leastFit    = 2048
)

// judge looks at the plan beside what there is. It returns a smaller context worth trying when nobody asked for this one, and
// else leaves the refusal in Admission, with the numbers.
func (p *Planned) judge(ctx context.Context) (smaller uint32) {
	p.Admission = nil
	if !p.room.known() || p.Plan.GetTotalBytes() <= p.room.most() {
		return 0
	}
	fits := p.largest(ctx, p.room.most())
	if step := fits / contextStep * contextStep; step >= leastFit && p.Composition.ContextIsOpen() {
		return step
	}
	p.Admission = p.refuse(p.room, fits)
	return 0
}

// largest is the most tokens of context whose plan takes at most limit bytes, by asking the plugin for plans between the
// context that does not fit and none; 0 when none fits, or for as far as was seen when the plugin stops answering.
func (p *Planned) largest(ctx context.Context, limit uint64) uint32 {
	if p.Composition.Proto.Context == nil || p.Plan.GetTotalBytes() <= limit {
		return 0
	}
	s := &contextSearch{over: p.Plan.GetContext(), overBytes: p.Plan.GetTotalBytes(), limit: limit, total: func(tokens uint32) (uint64, error) {
		plan, err := p.planAt(ctx, tokens)
		return plan.GetTotalBytes(), err
	}}
	if perToken := p.Plan.GetBytesPerToken(); perToken > 0 {
		s.overSlope = float64(perToken)
	}
	s.run()
	return s.fits
}

// contextSearch finds where a plan stops fitting: fits does, or is 0, and over does not.
type contextSearch struct {
	fits, over           uint32
	fitsBytes, overBytes uint64
	limit                uint64
	overSlope            float64 // bytes a token, as the plan itself says; 0: it does not
	total                func(tokens uint32) (uint64, error)
}

// run asks first at whole steps, in which caches grow, along a straight line between what is known; then whether one token
// more fits, which ends it where all grows in steps; then it halves. Where the line says that hardly anything fits, one token
// is asked first.
func (s *contextSearch) run() {
	if s.over > 1 && s.straight() <= contextStep && (!s.ask(1) || s.over == 1) {
		return
	}
	for line := true; s.over-s.fits > contextStep; line = !line {
		next := s.fits + (s.over-s.fits)/2
		if line {
			next = s.straight()
		}
		first, last := s.fits/contextStep+1, (s.over-1)/contextStep
		if first > last {
			break
		}
		if !s.ask(min(max(next/contextStep, first), last) * contextStep) {
			return
		}
	}
	for s.over-s.fits > 1 {
		next := s.fits + (s.over-s.fits)/2
		if s.fits > 0 && s.fits%contextStep == 0 {
			next = s.fits + 1
		}
		if !s.ask(next) {
			return
		}
	}
}

// straight is where a line would meet the limit: between the two ends, or down from the upper one.
func (s *contextSearch) straight() uint32 {
	switch {
	case s.fits > 0:
		return s.fits + uint32(float64(s.over-s.fits)*float64(s.limit-s.fitsBytes)/float64(s.overBytes-s.fitsBytes))
	case s.overSlope > 0:
		return uint32(max(float64(s.over)-float64(s.overBytes-s.limit)/s.overSlope, 1))
	}
	return s.over / 2
}

func (s *contextSearch) ask(tokens uint32) bool {
	total, err := s.total(tokens)
	switch {
	case err != nil:
		return false
	case total <= s.limit:
		s.fits, s.fitsBytes = tokens, total
	default:
		s.over, s.overBytes = tokens, total
	}
	return true
}

// planAt asks for the plan of the same composition with another context.
func (p *Planned) planAt(ctx context.Context, tokens uint32) (*cladev1.Plan, error) {
	spec := proto.Clone(p.spec).(*cladev1.ModelSpec)
	spec.Composition.Context = &tokens
	if most := spec.Composition.MaxGeneration; most != nil {
		*most = min(*most, tokens)
	}
	return p.process.Plan(ctx, &cladev1.PlanRequest{Model: spec})
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
		return p.refuse(r, p.largest(ctx, r.most()))
	}
	return nil
}
