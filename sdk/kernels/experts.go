package kernels

import (
	"fmt"

	"github.com/clademl/clade/sdk/mlx"
)

// Mixture is Experts with the norm and the router before them.
var Mixture = Kernel{
	Name: "mixture",
	Signature: "h [.., hidden], norm [hidden], router [experts, hidden], gate, up and down as of experts -> [.., hidden]; the bits of linear and " +
		"experts",
	Devices:  []string{"cpu"},
	Fallback: "MLX's norm, linear and experts",
}

// testMixture compares the kernel with the operations that it is.
func testMixture(s *mlx.Scope, k *mlx.Kernels) error {
	const experts, topK, hidden, width = 4, 2, 32, 32
	var held []*mlx.Packed
	defer func() {
		for _, p := range held {
			p.Close()
		}
	}()
	var wideRouter *mlx.Array
	for i, rows := range []int{experts, experts * width, experts * width, experts * hidden} {
		p, w, err := packedWave(s, k, float64(20+i), rows, map[bool]int{true: width, false: hidden}[i == 3])
		if err != nil {
			return err
		}
		held = append(held, p)
		if i == 0 {
			wideRouter = w
		}
	}
	norm := wave(s, 25, hidden)
	for _, rows := range []int{1, 9} {
		h := wave(s, 26, rows, hidden)
		e := mlx.PackedExperts{Gate: held[1], Up: held[2], Down: held[3], Experts: experts, TopK: topK, Normalize: true}
		got := s.PackedMixture(h, norm, 1e-5, held[0], e)
		x := s.RMSNorm(h, norm, 1e-5)
		e.Residual = h
		if err := agree(s, got, s.PackedExperts(x, s.Matmul(x, s.Transpose(wideRouter)), e)); err != nil {
			return fmt.Errorf("%d rows: %w", rows, err)
		}
	}
	return nil
}

// testExperts compares the kernel with every expert's result weighted by a probability that is 0 where it was not picked.
func testExperts(s *mlx.Scope, k *mlx.Kernels) error {
	const experts, topK, in, width, rows = 4, 2, 32, 32, 9
	gate, wideGate, err := packedWave(s, k, 11, experts*width, in)
	if err != nil {
		return err
	}
	defer gate.Close()
	up, wideUp, err := packedWave(s, k, 12, experts*width, in)
	if err != nil {
		return err
	}
	defer up.Close()
	down, wideDown, err := packedWave(s, k, 13, experts*in, width)
	if err != nil {
		return err
	}
	defer down.Close()
	x, logits, residual := wave(s, 14, rows, in), wave(s, 15, rows, experts), wave(s, 16, rows, in)
	got := s.PackedExperts(x, logits, mlx.PackedExperts{
		Gate: gate, Up: up, Down: down, Experts: experts, TopK: topK, Normalize: true, Residual: residual,
	})
	p := s.Softmax(logits, -1, true)
	least := s.SliceAxis(s.Sort(p, -1), -1, experts-topK, experts-topK+1) // [rows, 1]
	p = s.Where(s.GreaterEqual(p, least), p, s.Zeros([]int{rows, experts}, mlx.Float32))
	p = s.Div(p, s.Sum(p, -1, true))
	want := residual
	for e := range experts {
		part := func(w *mlx.Array, n int) *mlx.Array { return s.Transpose(s.SliceAxis(w, 0, e*n, (e+1)*n)) }
		h := s.Mul(s.SiLU(s.Matmul(x, part(wideGate, width))), s.Matmul(x, part(wideUp, width)))
		want = s.Add(want, s.Mul(s.Matmul(h, part(wideDown, in)), s.SliceAxis(p, -1, e, e+1)))
	}
	return agree(s, got, want)
}
