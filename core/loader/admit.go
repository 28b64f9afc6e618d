package loader

import (
	"fmt"
	"strings"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/sdk/contract"
)

// Context steps and the least that is worth opening when the default does not fit.
const (
	contextStep = 256
	leastFit    = 2048
)

// admit judges the plan by the budget. It returns a smaller context worth trying when nobody asked for this one, and else
// leaves the refusal in Admission, with the numbers.
func (p *Planned) admit() (smaller uint32, err error) {
	p.Admission = nil
	total := p.Plan.GetTotalBytes()
	if p.Budget == 0 || total <= p.Budget {
		return 0, nil
	}
	context, perToken := uint64(p.Plan.GetContext()), p.Plan.GetBytesPerToken()
	if p.Composition.ContextIsOpen() && perToken > 0 {
		over := total - p.Budget
		drop := (over + perToken - 1) / perToken
		if drop < context {
			fits := (context - drop) / contextStep * contextStep
			if fits >= leastFit && fits < context {
				return uint32(fits), nil
			}
		}
	}
	var lines []string
	for _, l := range p.Plan.GetLines() {
		lines = append(lines, fmt.Sprintf("%s %s", l.GetName(), config.FormatBytes(l.GetBytes())))
	}
	p.Admission = contract.Errorf(contract.MemoryAdmission, p.Model.ID, "needs %s, the budget is %s (%s)",
		config.FormatBytes(total), config.FormatBytes(p.Budget), strings.Join(lines, ", ")).
		WithNext("free memory, lower --context, or raise memory_budget")
	return 0, nil
}
