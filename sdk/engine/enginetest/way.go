//go:build !device

package enginetest

import (
	"testing"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// Device is where tests compute. Built with the tag device they do so on the runtime's GPU, on which MLX's own operations and the kernels
// that are sources are all there is (native/device).
const Device = mlx.CPU

// BothWays runs fn at float32 on the kernels and on MLX's own operations.
func BothWays(t *testing.T, fn func(t *testing.T, target weights.Target)) {
	k := Kernels(t)
	t.Run("kernels", func(t *testing.T) { fn(t, weights.Target{DType: mlx.Float32, Kernels: k}) })
	t.Run("stock", func(t *testing.T) { fn(t, weights.Target{DType: mlx.Float32}) })
}
