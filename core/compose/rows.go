package compose

import (
	"math"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// PhaseRows is the most rows a graph must carry in any phase: those that decode, or, where drafts are verified, each row
// with its draft and the token before it.
func PhaseRows(c *cladev1.Composition) uint32 {
	rows := uint64(max(c.GetRows(), 1))
	if n := rows * (uint64(c.GetDraft().GetDepth()) + 1); n > rows {
		rows = n
	}
	return uint32(min(rows, math.MaxUint32))
}
