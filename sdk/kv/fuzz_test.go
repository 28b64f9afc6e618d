package kv

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// A run that comes from a file is read or refused, and holds nothing when it is refused.
func FuzzDecodeRun(f *testing.F) {
	r, err := mlx.Open(runtimeDir())
	require.NoError(f, err, "run make setup")
	w, err := r.NewWorker(mlx.CPU)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, w.Close()) })
	late := formats[3]
	late.Start = 2
	specs := []Spec{{Heads: 1, HeadDim: wide, Format: late}, {Heads: 1, HeadDim: wide, Window: 3, Format: formats[5]}}
	specs[0].Format.Values = formats[5].Values
	require.NoError(f, w.Do(context.Background(), func(s *mlx.Scope) error {
		c := New(specs, false)
		defer c.Close()
		for i := range specs {
			c.layers[i].(attended).put(s, s.Zeros([]int{1, 1, 2, wide}, mlx.Float32), s.Zeros([]int{1, 1, 2, wide}, mlx.Float32), 0)
		}
		c.offset = 2
		run, err := c.Copy(s, 0, 2)
		require.NoError(f, err)
		defer run.Close()
		data, err := run.Encode(s)
		require.NoError(f, err)
		f.Add(data)
		f.Add(data[:len(data)-1])
		return nil
	}))
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 2, 9, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		before := mlx.LiveHandles()
		require.NoError(t, w.Do(context.Background(), func(s *mlx.Scope) error {
			c := New(specs, false)
			run, err := c.DecodeRun(s, mlx.Float32, data)
			if err == nil {
				require.LessOrEqual(t, run.Bytes(), int64(len(data)))
				run.Close()
			}
			return nil
		}))
		require.Equal(t, before, mlx.LiveHandles())
	})
}
