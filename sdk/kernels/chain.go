package kernels

import (
	"errors"
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// testLinearChain compares the chain with the four layers that it is, bit for bit.
func testLinearChain(s *mlx.Scope, k *mlx.Kernels) error {
	const in, hidden, inter = 32, 64, 96
	var held []*mlx.Packed
	defer func() {
		for _, p := range held {
			p.Close()
		}
	}()
	weight := func(rows, cols int) (*mlx.Packed, error) {
		p, _, err := packedWave(s, k, float64(len(held)), rows, cols)
		if err == nil {
			held = append(held, p)
		}
		return p, err
	}
	shapes := [][2]int{{hidden, in}, {inter, hidden}, {inter, hidden}, {hidden, inter}, {48, hidden}, {16, hidden}}
	for _, shape := range shapes {
		if _, err := weight(shape[0], shape[1]); err != nil {
			return err
		}
	}
	norm, nextNorm := wave(s, 4, hidden), wave(s, 5, hidden)
	for _, rows := range []int{1, 20} {
		o, h := wave(s, 6, rows, in), wave(s, 7, rows, hidden)
		sum, projected := s.PackedChain(o, h, mlx.PackedChain{
			O: held[0], Gate: held[1], Up: held[2], Down: held[3], Act: mlx.SiLU, MLPNorm: norm, Next: held[4:], NextNorm: nextNorm, Eps: 1e-5,
		})
		a := s.PackedLinear(o, mlx.PackedLinear{Weights: held[:1], Residual: h})
		b := s.PackedLinear(a, mlx.PackedLinear{Weights: held[1:3], Gate: mlx.SiLU, Norm: norm, Eps: 1e-5})
		want := s.PackedLinear(b, mlx.PackedLinear{Weights: held[3:4], Residual: a})
		wantNext := s.PackedLinear(want, mlx.PackedLinear{Weights: held[4:], Norm: nextNorm, Eps: 1e-5})
		if err := errors.Join(same(s, sum, want), same(s, projected, wantNext)); err != nil {
			return fmt.Errorf("%d rows: %w", rows, err)
		}
	}
	return nil
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
