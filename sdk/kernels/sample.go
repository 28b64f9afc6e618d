package kernels

import (
	"fmt"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// Sample picks tokens.
var Sample = Kernel{
	Name: "sample",
	Signature: "logits [n, vocab] f32, bias, history, mask and settings of each row -> ids [n], log probabilities [n, 1 + alternatives]; " +
		"no result depends on threads, level or other rows",
	Devices:  []string{"cpu"},
	Fallback: "a graph of MLX's operations for each row, which sorts the vocabulary",
}

// testSample compares what is decided by one score with MLX's operations, and the noise with its frozen values.
func testSample(s *mlx.Scope, _ *mlx.Kernels) error {
	const rows, vocab = 3, 5000
	logits, top := wave(s, 9, rows, vocab), 2
	greedy := mlx.Sampling{Repetition: 1, Logprobs: &top}
	narrow := mlx.Sampling{Repetition: 1, TopK: 1, Temperature: 1, Seed: 3} // the lowest of the likeliest is left, whatever the noise
	bent := mlx.Sampling{Repetition: 1, Bias: map[int32]float64{4321: 9}}
	tokens, told, values := s.PackedSample(logits, []mlx.Sampling{greedy, narrow, bent})
	got, err := mlx.ToSlice[int32](s, tokens)
	if err != nil {
		return err
	}
	want, err := mlx.ToSlice[int32](s, s.AsType(s.Argmax(logits, 1, false), mlx.Int32))
	if err != nil {
		return err
	}
	if want[2] = 4321; !slices.Equal(got, want) {
		return fmt.Errorf("picks %v, the fallback %v", got, want)
	}
	ids, err := mlx.ToSlice[int32](s, told)
	if err != nil {
		return err
	}
	if ids[0] != got[0] || ids[1] != got[0] {
		return fmt.Errorf("tells of %v for %d", ids[:2], got[0])
	}
	row := s.SliceAxis(logits, 0, 0, 1)
	likeliest := s.Sub(s.Max(row, 1, false), s.Reshape(s.LogSumExp(row, 1, true), 1))
	if err := agree(s, s.Reshape(s.SliceAxis(s.SliceAxis(values, 0, 0, 1), 1, 0, 1), 1), likeliest); err != nil {
		return err
	}
	return testNoise(s)
}

// testNoise has the frozen noise of ids 0 and 1 (seed, choice and position 0) decide between scores that lie just too near, and just
// far enough.
func testNoise(s *mlx.Scope) error {
	const first, second = 2.0616612, -0.015734952
	apart := float32(first - second)
	logits := mlx.FromSlice(s, []float32{0, apart - 1e-5, 0, apart + 1e-5}, 2, 2)
	noisy := mlx.Sampling{Repetition: 1, Temperature: 1}
	tokens, _, _ := s.PackedSample(logits, []mlx.Sampling{noisy, noisy})
	got, err := mlx.ToSlice[int32](s, tokens)
	if err != nil {
		return err
	}
	if !slices.Equal(got, []int32{0, 1}) {
		return fmt.Errorf("noise picks %v, its frozen values [0 1] (%g apart)", got, math.Abs(first-second))
	}
	return nil
}
