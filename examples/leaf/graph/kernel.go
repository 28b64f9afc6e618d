package graph

import (
	"fmt"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
)

// SquaredReLU is the family's own kernel: lib/leaf.cpp.
var SquaredReLU = kernels.Kernel{
	Name:      "leaf-squared-relu",
	Signature: "x [..] f32, bf16 or f16 -> max(x, 0)^2 [..]",
	Devices:   []string{"cpu"},
	Fallback:  "MLX's maximum and square",
}

// Library is lib/libleaf.so with the digest that the binary was linked with.
func Library(sha256 string) kernels.Own {
	return kernels.Own{
		File: "libleaf.so", SHA256: sha256,
		Kernels: []kernels.OwnKernel{{Kernel: SquaredReLU, Operation: "leaf_squared_relu", Test: testSquaredReLU}},
	}
}

// squaredReLU is max(x, 0)^2, by the kernel where there is one.
func squaredReLU(s *mlx.Scope, op *mlx.Operation, x *mlx.Array) *mlx.Array {
	if op != nil {
		return s.Call(op, nil, x)
	}
	return s.Square(s.MaximumScalar(x, 0))
}

// testSquaredReLU holds the kernel to its fallback, bit for bit, in every dtype: both round the product once.
func testSquaredReLU(s *mlx.Scope, op *mlx.Operation) error {
	values := make([]float32, 3*37)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)*0.7) * 3)
	}
	for _, dtype := range []mlx.DType{mlx.Float32, mlx.BFloat16, mlx.Float16} {
		x := s.AsType(mlx.FromSlice(s, values, 3, 37), dtype)
		got, err := mlx.ToSlice[float32](s, s.AsType(squaredReLU(s, op, x), mlx.Float32))
		if err != nil {
			return err
		}
		want, err := mlx.ToSlice[float32](s, s.AsType(squaredReLU(s, nil, x), mlx.Float32))
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s in %v differs from its fallback", SquaredReLU.Name, dtype)
		}
	}
	return nil
}
