package engine

import (
	"strconv"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
)

// placement is where a composition puts the computing threads and the packed weights.
type placement struct {
	pin  []int // processors; empty: anywhere
	node int   // memory node, mlx.Anywhere or mlx.Interleave
}

func readPlacement(c *cladev1.Composition, threads int) (placement, error) {
	p := placement{node: mlx.Anywhere}
	for _, cpu := range c.GetPin() {
		p.pin = append(p.pin, int(cpu))
	}
	if n := len(p.pin); n > 0 && n < threads {
		return p, invalid("pin", "%d processors for %d threads", n, threads)
	}
	switch numa := c.GetNuma(); {
	case c.Numa == nil:
	case numa == "interleave":
		p.node = mlx.Interleave
	default:
		node, err := strconv.ParseUint(numa, 10, 16)
		if err != nil {
			return p, invalid("numa", "%q is not interleave or a memory node", numa)
		}
		p.node = int(node)
	}
	return p, nil
}

// place tells the kernels, which ask the system; a plan already refuses what it has not. Stock operations have one thread and
// memory of MLX's: nothing here can put them anywhere.
func (d *draft) place() error {
	if d.library == nil {
		if len(d.pin) > 0 {
			return unhonoured("pin", "only the kernels' threads can be pinned, and this model runs without")
		}
		if d.node != mlx.Anywhere {
			return unhonoured("numa", "only the kernels' weights can be placed, and this model runs without")
		}
		return nil
	}
	if err := d.library.Pin(d.pin...); err != nil {
		return contract.Errorf(contract.UnsupportedOption, "pin", "%w", err).WithNext("name processors that this process may use, or none")
	}
	// The default asks nothing, so that a library without placement serves it.
	if d.node == mlx.Anywhere && !d.library.Places() {
		return nil
	}
	if err := d.library.Place(d.node); err != nil {
		return contract.Errorf(contract.UnsupportedOption, "numa", "%w", err).WithNext("name a memory node of this machine, or none")
	}
	return nil
}
