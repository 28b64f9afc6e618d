package main

import (
	"context"
	"fmt"

	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// delta is one gated delta network behind its projections, of the 0.8B model's shape: the kernel, or MLX's operations in its place.
func (b bench) delta(rows int, kernel bool) error {
	shape := kv.DeltaShape{KeyHeads: 16, ValueHeads: 16, KeyDim: 128, ValueDim: 128, Taps: 4}
	name, n := "gated-delta", copies
	if !kernel {
		name, n = "gated-delta-stock", 1 // thousands of operations
	}
	return b.worker.Do(context.Background(), func(s *mlx.Scope) error {
		fill := func(v float64, dims ...int) *mlx.Array {
			return s.Keep(s.Full(dims, s.Scalar(v, mlx.Float32), mlx.Float32))
		}
		d := kv.GatedDelta{
			DeltaShape: shape, Conv: fill(0.25, shape.Taps, shape.Channels()), ALog: fill(0.5, shape.ValueHeads), DtBias: fill(-2, shape.ValueHeads),
			Norm: nn.RMSNorm{Weight: fill(1, shape.ValueDim), Eps: 1e-6},
		}
		x := fill(0.5, 1, rows, shape.Width())
		caches := make([]*kv.Cache, n)
		for i := range caches {
			caches[i] = kv.New([]kv.Spec{shape.Spec()}, kernel)
		}
		defer func() {
			for _, a := range []*mlx.Array{d.Conv, d.ALog, d.DtBias, d.Norm.Weight, x} {
				a.Close()
			}
			for _, c := range caches {
				c.Close()
			}
		}()
		state := float64(shape.ValueHeads * shape.KeyDim * shape.ValueDim)
		return b.times(s, n, result{
			Name: fmt.Sprintf("%s/rows%d", name, rows), Bytes: 2 * 4 * state, Flops: 8 * state * float64(rows),
		}, func(s *mlx.Scope, i int) *mlx.Array {
			p := caches[i].Begin(rows)
			y := p.GatedDelta(s, 0, x, d)
			p.End()
			return y
		})
	})
}
