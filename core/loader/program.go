package loader

import (
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// Program is an auxiliary program that an entry of the graph table names.
type Program struct {
	ID        string
	Available bool
	// Reason says why it cannot run here, or that nobody asked for it.
	Reason string
}

// auxiliaryDevices begins the device strings beside which auxiliary programs exist: those of Apple's GPUs, whose machines
// have a neural engine.
const auxiliaryDevices = "metal-"

// Programs lists the auxiliary programs of the graph that runs. One that cannot run here is listed and never an error.
func (p *Planned) Programs() []Program {
	var out []Program
	for _, id := range p.programsOf(p.Plan.GetGraphEntry()) {
		one := Program{ID: id, Reason: p.unavailable()}
		if one.Reason == "" && !slices.Contains(p.Composition.Proto.GetPrograms(), id) {
			one.Reason = "nobody asked for it (--program " + id + ")"
		}
		one.Available = one.Reason == ""
		out = append(out, one)
	}
	return out
}

// unavailable says why no program can run here; empty when they can.
func (p *Planned) unavailable() string {
	if device := p.Plan.GetDevice(); !strings.HasPrefix(device, auxiliaryDevices) {
		return "no auxiliary processor beside device " + orOpen(device)
	}
	return ""
}

// programsOf lists the programs of an entry of the table.
func (p *Planned) programsOf(entry string) []string {
	for _, e := range tableOf(p.Describe, p.Family.Record.Graph).GetEntries() {
		if e.GetId() == entry {
			return e.GetPrograms()
		}
	}
	return nil
}

// bindPrograms freezes which of the programs that a person asked for run, now that the device and the graph are known. A name
// that the graph does not have is refused; a program that cannot run here is told of.
func (p *Planned) bindPrograms() (bool, error) {
	wished := p.choices.Programs
	if len(wished) == 0 {
		return false, nil
	}
	entry := p.Plan.GetGraphEntry()
	have := p.programsOf(entry)
	var use, why []string
	for _, id := range wished {
		switch reason := p.unavailable(); {
		case !slices.Contains(have, id):
			names := "none"
			if len(have) > 0 {
				names = strings.Join(have, ", ")
			}
			return false, contract.Errorf(contract.InvalidArgument, "program", "%q is not one of graph %s: %s", id, entry, names)
		case reason != "":
			why = append(why, id+": "+reason)
		case !slices.Contains(use, id):
			use = append(use, id)
		}
	}
	return p.Composition.UsePrograms(use, why)
}
