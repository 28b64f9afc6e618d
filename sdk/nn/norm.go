package nn

import (
	"math"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/mlx"
)

// Norm is a norm over the last axis.
type Norm interface {
	Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array
}

// RMSNorm is w * x / sqrt(mean(x²) + eps), statistics in float32. The zero RMSNorm leaves x as it is.
type RMSNorm struct {
	Weight *mlx.Array // [hidden], or nil
	Eps    float32
}

// Forward keeps the shape.
func (n RMSNorm) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if n == (RMSNorm{}) {
		return x
	}
	return s.RMSNorm(x, n.Weight, n.Eps)
}

// LayerNorm is w * (x - mean(x)) / sqrt(var(x) + eps) + b, statistics in float32.
type LayerNorm struct {
	Weight, Bias *mlx.Array // [hidden], or nil
	Eps          float32
}

// Forward keeps the shape.
func (n LayerNorm) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	return s.LayerNorm(x, n.Weight, n.Bias, n.Eps)
}

// GELU is x (1 + erf(x/√2)) / 2.
func GELU(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	return s.DivScalar(s.Mul(x, s.AddScalar(s.Erf(s.DivScalar(x, math.Sqrt2)), 1)), 2)
}

// GELUTanh is 0.5x (1 + tanh(√(2/π) (x + 0.044715x³))).
func GELUTanh(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	inner := s.MulScalar(s.Add(x, s.MulScalar(s.PowScalar(x, 3), 0.044715)), math.Sqrt(2/math.Pi))
	return s.Mul(s.MulScalar(x, 0.5), s.AddScalar(s.Tanh(inner), 1))
}

// Bounds of a norm's epsilon: models are published with 1e-12 to 1e-3. None at all divides by zero where a row is zero, and a large one
// leaves no trace of the row.
const (
	minEps = 1e-15
	maxEps = 0.1
)

// ReadEps reads the epsilon of norms.
func ReadEps(f *artifact.Fields, path string) float32 {
	v := f.Float(path)
	if !(v >= minEps && v <= maxEps) {
		f.Corrupt(path, "%g is no epsilon of a norm: want %g to %g", v, minEps, maxEps)
	}
	return float32(v)
}
