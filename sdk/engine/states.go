package engine

import (
	"fmt"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
)

// stateCopies is how many states of a row there are at most: that behind its last token, the one that the step in flight makes of it,
// and the one that the cache can go back to.
const stateCopies = 3

// stateBytes is what the layers with a state keep of one sequence, and how many layers those are.
func (l Layout) stateBytes(dtype mlx.DType) (bytes int64, layers int) {
	for _, spec := range l.Caches {
		if n := spec.StateBytes(dtype); n > 0 {
			bytes, layers = bytes+n, layers+1
		}
	}
	return bytes, layers
}

// planStates is the line of the rows' states; nil where no layer has one. They take the same however many tokens there are.
func (d *draft) planStates() *cladev1.MemoryLine {
	bytes, layers := d.Layout.stateBytes(d.dtype)
	if layers == 0 {
		return nil
	}
	return &cladev1.MemoryLine{
		Name: "states", Bytes: uint64(int64(d.rows) * stateCopies * bytes),
		Detail: fmt.Sprintf("%d of %d bytes in %d layers for each of %d rows, whatever their tokens", stateCopies, bytes, layers, d.rows),
	}
}
