package nn

import "github.com/clademl/clade/sdk/mlx"

// Linear is y = x Wᵀ + b.
type Linear struct {
	Weight *mlx.Array // [out, in]
	Bias   *mlx.Array // [out], or nil
}

// Forward maps [.., in] to [.., out].
func (l Linear) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	dtype := x.DType()
	wide := l.Weight.DType() != dtype
	if wide {
		x = s.AsType(x, l.Weight.DType())
	}
	wT := s.Transpose(l.Weight)
	if l.Bias == nil {
		x = s.Matmul(x, wT)
	} else {
		x = s.Addmm(s.AsType(l.Bias, x.DType()), x, wT, 1, 1)
	}
	if wide {
		x = s.AsType(x, dtype)
	}
	return x
}

// Embedding is a table of rows by token id.
type Embedding struct {
	Weight *mlx.Array // [vocab, hidden]
	// DType is what its rows are read as: the graph's compute dtype.
	DType mlx.DType
}

// Forward looks up ids [.., T] and returns [.., T, hidden].
func (e Embedding) Forward(s *mlx.Scope, ids *mlx.Array) *mlx.Array {
	return s.AsType(s.Take(e.Weight, ids, 0), e.DType)
}

// AsLinear is the output head of a model whose head is tied to its embedding.
func (e Embedding) AsLinear() Linear { return Linear{Weight: e.Weight} }

// RMSNorm is w * x / sqrt(mean(x²) + eps), statistics in float32.
type RMSNorm struct {
	Weight *mlx.Array // [hidden]
	Eps    float32
}

// Forward keeps the shape.
func (n RMSNorm) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array { return s.RMSNorm(x, n.Weight, n.Eps) }
