package kv

import (
	"fmt"

	"github.com/clademl/clade/sdk/mlx"
)

// Donor is what a layer of a cache shows to a network that attends over it without keys of its own, such as a draft network.
type Donor struct {
	// Keys and Values [1, Heads, End-Start, HeadDim] of the positions [Start, End), in DType; coded ones are decoded. They are the
	// scope's.
	Keys, Values *mlx.Array
	// Start is the oldest position that is shown: one that no query sees any more may be left out. End is one behind the newest.
	Start, End int
	// Offset is the position of the next token of the sequence.
	Offset int
	DType  mlx.DType
	window int
}

// Donor is the view of layer i, behind a forward that has been committed.
func (c *Cache) Donor(s *mlx.Scope, i int) (Donor, error) {
	if i < 0 || i >= len(c.layers) {
		return Donor{}, fmt.Errorf("donor: layer %d of %d", i, len(c.layers))
	}
	l, ok := c.layers[i].(attended)
	if !ok || len(l.arrays()) == 0 {
		return Donor{}, fmt.Errorf("donor: layer %d holds no keys", i)
	}
	spec := c.specs[i]
	if spec.Latent {
		return Donor{}, fmt.Errorf("donor: layer %d keeps latents, and no heads' keys", i)
	}
	if spec.Keep > 0 {
		return Donor{}, fmt.Errorf("donor: layer %d keeps tokens beside its window", i)
	}
	d := Donor{End: c.offset, Offset: c.offset, window: spec.Window}
	if spec.Window > 0 {
		d.Start = max(0, c.offset-spec.Window+1)
	}
	if d.Start == d.End {
		return Donor{}, fmt.Errorf("donor: a window of %d shows nothing to the next token", spec.Window)
	}
	d.Keys, d.Values = l.view(s, d.Start, d.End)
	d.DType = d.Keys.DType()
	return d, s.Err()
}

// least are the lowest finite values of the dtypes that masks have: what is masked stays a number, and adds nothing.
var least = map[mlx.DType]float64{mlx.Float32: -3.4028234e38, mlx.BFloat16: -3.3895314e38, mlx.Float16: -65504}

// Mask is added to the scores [.., queries, End-Start] of queries at the positions from Offset on, in DType: 0 where a query may look,
// the lowest finite value where its window has gone on. It is selected, never multiplied: a finite value times the mask's would be
// infinite in float16.
func (d Donor) Mask(s *mlx.Scope, queries int) *mlx.Array {
	zero := s.Scalar(0, d.DType)
	if d.window == 0 {
		return s.BroadcastTo(zero, queries, d.End-d.Start)
	}
	rows := s.ExpandDims(s.Arange(float64(d.Offset), float64(d.Offset+queries), 1, mlx.Int32), 1)
	cols := s.ExpandDims(s.Arange(float64(d.Start), float64(d.End), 1, mlx.Int32), 0)
	seen := s.Less(rows, s.Add(cols, s.Scalar(float64(d.window), mlx.Int32)))
	return s.Where(seen, zero, s.Scalar(least[d.DType], d.DType))
}
