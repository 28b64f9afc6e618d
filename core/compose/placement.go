package compose

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// nowhere is the wish for no place in particular, the default.
const nowhere = "none"

// maxProcessors bounds a list of processors: a range is written out.
const maxProcessors = 1024

// placement is where the computing threads and the packed weights are put. Whether this machine has these processors and memory
// nodes is the plugin's to say: it asks the system.
func (c *Composition) placement() error {
	text, source := nowhere, FromDefault
	if w := c.in.Wishes.Pin; w != "" && w != nowhere {
		text, source = w, FromUser
		list, err := parseProcessors(w)
		if err != nil {
			return contract.Errorf(contract.InvalidArgument, "pin", "%w", err).WithNext("list processors, such as 0-3,8, or say none")
		}
		c.pin = list
		if err := c.threadsOnPins(uint32(len(list))); err != nil {
			return err
		}
	}
	if err := c.put("pin", "pin", text, source, func() { c.Proto.Pin = c.pin }); err != nil {
		return err
	}
	text, source = nowhere, FromDefault
	if w := c.in.Wishes.NUMA; w != "" && w != nowhere {
		text, source = w, FromUser
		if _, err := strconv.ParseUint(w, 10, 16); err != nil && w != "interleave" {
			return contract.Errorf(contract.InvalidArgument, "numa", "%q is not none, interleave or the number of a memory node", w)
		}
	}
	return c.put("numa", "numa", text, source, func() {
		if text != nowhere {
			c.Proto.Numa = &text
		}
	})
}

// threadsOnPins gives every named processor a thread where nobody asked for a number of them, and refuses more threads than
// processors.
func (c *Composition) threadsOnPins(pins uint32) error {
	if w := c.in.Wishes.Threads; w > pins {
		return contract.Errorf(contract.InvalidArgument, "pin", "names %d processors for %d threads", pins, w)
	} else if w > 0 {
		return nil
	}
	return c.put("threads", "threads", strconv.FormatUint(uint64(pins), 10), FromUser, func() { c.Proto.Threads = &pins })
}

// parseProcessors reads 0-3,8 in the order that is written: the first is the evaluating thread's.
func parseProcessors(text string) ([]uint32, error) {
	var out []uint32
	for _, part := range strings.Split(text, ",") {
		low, high, ranged := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.ParseUint(low, 10, 32)
		last := first
		if err == nil && ranged {
			last, err = strconv.ParseUint(high, 10, 32)
		}
		if err != nil || last < first || last == math.MaxUint32 {
			return nil, fmt.Errorf("%q is no processor and no range of them", part)
		}
		if last-first >= maxProcessors-uint64(len(out)) {
			return nil, fmt.Errorf("%q names more than %d processors", text, maxProcessors)
		}
		for cpu := first; cpu <= last; cpu++ {
			if slices.Contains(out, uint32(cpu)) {
				return nil, fmt.Errorf("%q names processor %d twice", text, cpu)
			}
			out = append(out, uint32(cpu))
		}
	}
	return out, nil
}
