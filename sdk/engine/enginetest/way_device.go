//go:build device

package enginetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// Device is where tests compute.
const Device = mlx.GPU

// BothWays runs fn at float32 on the GPU, with the kernels that are sources.
func BothWays(t *testing.T, fn func(t *testing.T, target weights.Target)) {
	sources, err := kernels.LoadSources(Runtime(t))
	require.NoError(t, err)
	t.Run("device", func(t *testing.T) { fn(t, weights.Target{DType: mlx.Float32, Sources: sources}) })
}
