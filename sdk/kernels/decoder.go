package kernels

import (
	"errors"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// Decoder is all layers of a decoder, for graphs that are written with it.
var Decoder = Kernel{
	Name: "decoder",
	Signature: "h [1, T, hidden], keys and values of every layer, T at most 8: of each layer attention and a gated MLP behind their norms, added to h " +
		"-> [1, T, hidden]; the bits of linear and attend-caches",
	Devices:  []string{"cpu"},
	Fallback: "linear, attend-caches and linear, layer by layer",
}

// testDecoder compares two layers for two sequences with the operations that they are, bit for bit.
func testDecoder(s *mlx.Scope, k *mlx.Kernels) error {
	const heads, dim, hidden, inter, tokens = 2, 32, 64, 96, 2
	var held []*mlx.Packed
	defer func() {
		for _, p := range held {
			p.Close()
		}
	}()
	var failure error
	weight := func(rows, cols int) *mlx.Packed {
		p, _, err := packedWave(s, k, float64(len(held)), rows, cols)
		if err != nil {
			failure = err
			return nil
		}
		held = append(held, p)
		return p
	}
	caches := func() [][]mlx.CacheSequence {
		out := make([][]mlx.CacheSequence, 2)
		for i := range out {
			for range 2 {
				pair := mlx.CachePair{Keys: s.Zeros([]int{1, 1, 256, dim}, mlx.Float32), Values: s.Zeros([]int{1, 1, 256, dim}, mlx.Float32)}
				out[i] = append(out[i], mlx.CacheSequence{Offset: 3, Tokens: tokens, Pairs: []mlx.CachePair{pair}, Tiles: [][2]int32{{0, 0}}})
			}
		}
		return out
	}
	layers := make([]mlx.DecoderLayer, 2)
	for i := range layers {
		layers[i] = mlx.DecoderLayer{
			Q: weight(heads*dim, hidden), K: weight(dim, hidden), V: weight(dim, hidden), O: weight(hidden, heads*dim),
			Gate: weight(inter, hidden), Up: weight(inter, hidden), Down: weight(hidden, inter),
			AttentionNorm: wave(s, 4, hidden), MLPNorm: wave(s, 5, hidden), QNorm: wave(s, 6, dim), KNorm: wave(s, 7, dim),
		}
	}
	if failure != nil {
		return failure
	}
	const eps = 1e-5
	inv := s.Exp(s.MulScalar(s.Arange(0, -dim/2, -1, mlx.Float32), 0.5))
	args := mlx.PackedAttention{
		Heads: heads, KVHeads: 1, HeadDim: dim, RopeDims: dim, RopeScale: 1, RopeMScale: 1, InvFreq: inv, Scale: 0.2, NormEps: eps,
	}
	x := wave(s, 8, 1, 2*tokens, hidden)
	d := s.NewDecoder(layers, mlx.SiLU, eps)
	defer d.Close()
	got, _ := s.Decode(d, x, caches(), 0, args)
	want, lent := x, caches()
	for i, l := range layers {
		qkv := s.PackedLinear(want, mlx.PackedLinear{Weights: []*mlx.Packed{l.Q, l.K, l.V}, Norm: l.AttentionNorm, Eps: eps})
		args.QNorm, args.KNorm = l.QNorm, l.KNorm
		o, _ := s.AttendCaches(qkv, lent[i], 0, args)
		want = s.PackedLinear(o, mlx.PackedLinear{Weights: []*mlx.Packed{l.O}, Residual: want})
		act := s.PackedLinear(want, mlx.PackedLinear{Weights: []*mlx.Packed{l.Gate, l.Up}, Gate: mlx.SiLU, Norm: l.MLPNorm, Eps: eps})
		want = s.PackedLinear(act, mlx.PackedLinear{Weights: []*mlx.Packed{l.Down}, Residual: want})
	}
	return same(s, got, want)
}

// same holds two float32 arrays to the same bits.
func same(s *mlx.Scope, got, want *mlx.Array) error {
	g, err := mlx.Bytes(s, got)
	if err != nil {
		return err
	}
	w, err := mlx.Bytes(s, want)
	if err != nil {
		return err
	}
	if !slices.Equal(g, w) {
		return errors.New("has other bits than the layers alone")
	}
	return nil
}
