package tiny

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/weights/quant"
)

// The goldens of plugins/*/testdata stand on these bytes.
func TestCheckpointsAreTheSameBytesEverywhere(t *testing.T) {
	for _, c := range []struct {
		checkpoints    []Checkpoint
		oracle, digest string
	}{
		{Llama(), "plugins/universal/testdata/oracle.py", "00cd6d2c49efdc90bf9d6f6675dbc9b780e77c3a2d00873742dbf0501d744d87"},
		{Qwen35(), "plugins/qwen/testdata/qwen35.py", "396d0f062b159145f4dbe6a0a15a94a0d3b056681f45060b15d5d84ff61b324d"},
	} {
		dir := t.TempDir()
		paths, err := WriteAll(dir, c.checkpoints)
		require.NoError(t, err)
		require.Len(t, paths, len(c.checkpoints))
		h := sha256.New()
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			h.Write(data)
			return err
		}))
		require.Equal(t, c.digest, hex.EncodeToString(h.Sum(nil)), "a recipe changed: run %s again and update this digest", c.oracle)
	}
}

func TestInterleaveIsTheInverseOfTheHalfSplit(t *testing.T) {
	// One head of four rows, one column: half-split order a0 a1 b0 b1 pairs as (a0,b0), (a1,b1).
	require.Equal(t, []float32{0, 2, 1, 3}, interleave([]float32{0, 1, 2, 3}, 1, 4))
}

// Viterbi's walk through so few states comes near what the rate allows (2^-2k of the variance): closed at both ends, along both axes.
func TestTheTrellisEncoderFindsNearWalks(t *testing.T) {
	const out, in = 128, 64
	values := gaussian(5, "trellis", out*in, 0, 0.3)
	for bits, most := range map[int]float64{2: 0.095, 3: 0.029, 4: 0.0085} {
		for _, axis := range []int{0, 1} {
			f := quant.Trellis{Bits: bits, Block: 64, State: 10, Axis: axis}
			got := decodeTrellis(f, Tensor{Shape: []int{out, in}, Values: values})
			var off, all float64
			for i, v := range values {
				off, all = off+math.Pow(float64(got[i]-v), 2), all+float64(v)*float64(v)
			}
			require.LessOrEqual(t, off/all, most, "%d bits, axis %d", bits, axis)
		}
	}
}
