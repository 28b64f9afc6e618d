package kv

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// The kernel bends scores as stock operations do, to rounding, and gives a token the same bits however its sequence was cut, and whatever
// other sequence is in the pass.
func TestTheKernelBendsScoresAsStockOperationsDo(t *testing.T) {
	const total = 300
	for _, spec := range []Spec{{Heads: 1, HeadDim: dim}, {Heads: 1, HeadDim: dim, Window: 8}, {Heads: 1, HeadDim: dim, Window: 8, Keep: 4}} {
		t.Run(fmt.Sprintf("window %d, %d kept", spec.Window, spec.Keep), func(t *testing.T) {
			onWorker(t, func(s *mlx.Scope) {
				require.True(t, mlx.AttendsSoftcap(), "run make setup")
				run := func(kernels bool, softcap float32, other int, cuts ...int) (out []float32) {
					c, d := New([]Spec{spec}, kernels), New([]Spec{spec}, kernels)
					defer c.Close()
					defer d.Close()
					for i := 0; c.Offset() < total; i++ {
						n := min(cuts[i%len(cuts)], total-c.Offset())
						qkv := projections(1, c.Offset(), n)
						segments := []Segment{{Cache: c, Tokens: n}}
						if other > 0 {
							segments, qkv = append(segments, Segment{Cache: d, Tokens: other}), append(qkv, projections(2, d.Offset(), other)...)
						}
						pass := Begin(segments...)
						y := pass.Attend(s, 0, mlx.FromSlice(s, qkv, 1, pass.Tokens(), 3*dim), Attention{Heads: 1, Scale: 1, Softcap: softcap})
						pass.End()
						got, err := mlx.ToSlice[float32](s, y)
						require.NoError(t, err)
						out = append(out, got[:n*dim]...)
					}
					return out
				}
				whole := run(true, 0.7, 0, total)
				require.InDeltaSlice(t, run(false, 0.7, 0, total), whole, 1e-5)
				require.Equal(t, whole, run(true, 0.7, 0, 256, 3, 1))
				require.Equal(t, whole, run(true, 0.7, 2, 7, 70, 1))
				require.NotEqual(t, whole, run(true, 0.8, 0, total))
				require.NotEqual(t, whole, run(true, 0, 0, total))
			})
		})
	}
}
