package kernels

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

// The graph of MLX's operations has the decoder's bits, along both axes.
func TestTheTrellisGraphHasTheDecodersBits(t *testing.T) {
	dir := os.Getenv("CLADE_RUNTIME")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "bin", "runtime", "cpu")
	}
	r, err := mlx.Open(dir)
	require.NoError(t, err, "run make setup")
	w, err := r.NewWorker(mlx.CPU)
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	const out, in = 64, 32
	for _, f := range []quant.Trellis{{Bits: 2, Block: 32, State: 16, Axis: 1}, {Bits: 3, Block: 64, State: 16, Axis: 0}, {Bits: 4, Block: 16, State: 32, Axis: 1}} {
		blocks := out * in / f.Block
		rings, scales := make([]byte, blocks*f.RingBytes()), make([]float32, blocks)
		for i := range rings {
			rings[i] = byte(i*i*7 + i>>3)
		}
		for i := range scales {
			scales[i] = 0.1 + float32(i)/7
		}
		want, lines := make([]float32, out*in), out
		if f.Axis == 0 {
			lines = out / f.Block
		}
		for i, each := 0, len(want)/lines; i < lines; i++ {
			n := each / f.Block
			f.Row(want[i*each:(i+1)*each], rings[i*n*f.RingBytes():], scales[i*n:(i+1)*n])
		}
		require.NoError(t, w.Do(context.Background(), func(s *mlx.Scope) error {
			words := mlx.FromBytes(s, mlx.Uint32, []int{blocks, f.RingBytes() / 4}, rings)
			got, err := mlx.ToSlice[float32](s, DecodeTrellis(s, words, mlx.FromSlice(s, scales), f, out, in))
			require.Equal(t, want, got, "%+v", f)
			return err
		}))
	}
}
