package nn

import "github.com/clademl/clade/sdk/mlx"

// Parameters is where a layer's tensors are found by name; *weights.Tensors is one.
type Parameters interface {
	// Get is an array, nil when there is none of that name or it is packed.
	Get(name string) *mlx.Array
	// Packed is a matrix in the kernels' memory, nil when it is an array.
	Packed(name string) *mlx.Packed
}

// Coded is a matrix [out, in] that a GPU's kernel decodes inside the product; a *kernels.TrellisMatrix is one.
type Coded interface {
	// Multiply maps x [.., in] to [.., out], of x's dtype.
	Multiply(s *mlx.Scope, x *mlx.Array) *mlx.Array
	// Lookup is rows by ids [..], as [.., in] of dtype.
	Lookup(s *mlx.Scope, ids *mlx.Array, dtype mlx.DType) *mlx.Array
}

// WithCoded is Parameters of which some are coded.
type WithCoded interface {
	// Coded is a matrix, nil when it is an array or packed.
	Coded(name string) Coded
}

func coded(p Parameters, name string) Coded {
	if c, ok := p.(WithCoded); ok {
		return c.Coded(name)
	}
	return nil
}

// Linear is y = x Wᵀ + b. Its matrix is an array, packed for the kernels or coded.
type Linear struct {
	Weight *mlx.Array // [out, in], nil when Packed or Coded
	Bias   *mlx.Array // [out], or nil
	Packed *mlx.Packed
	Coded  Coded

	slot *slot // where adapters change it; nil: nowhere
}

// NewLinear finds path.weight and, where there is one, path.bias. A packed weight takes its bias along. Parameters that are Boarded
// give it adapters.
func NewLinear(s *mlx.Scope, p Parameters, path string) Linear {
	l := Linear{Weight: p.Get(path + ".weight"), Bias: p.Get(path + ".bias"), Packed: p.Packed(path + ".weight"), Coded: coded(p, path+".weight"), slot: newSlot(p, path)}
	if l.Packed == nil || l.Bias == nil {
		return l
	}
	bias, err := mlx.ToSlice[float32](s, s.AsType(l.Bias, mlx.Float32))
	if err == nil {
		err = l.Packed.SetBias(bias)
	}
	if err != nil {
		_ = s.Fail(err)
	}
	return l
}

// Forward maps [.., in] to [.., out].
func (l Linear) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	cs := changes(l)
	switch {
	case len(cs) == 0:
		return l.plain(s, x)
	case l.Packed != nil && kernelTakes(cs):
		return product(s, x, mlx.PackedLinear{Weights: []*mlx.Packed{l.Packed}}, cs)
	}
	plain := func(x *mlx.Array) *mlx.Array { return l.plain(s, x) }
	return byRows(s, x, cs, plain, func(x *mlx.Array, cs []change) *mlx.Array { return addChanges(s, l.plain(s, x), x, cs, 0) })
}

// plain is Forward without adapters.
func (l Linear) plain(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if l.Packed != nil {
		return s.PackedLinear(x, mlx.PackedLinear{Weights: []*mlx.Packed{l.Packed}})
	}
	if l.Coded != nil {
		y := l.Coded.Multiply(s, x)
		if l.Bias != nil {
			y = s.Add(y, s.AsType(l.Bias, y.DType()))
		}
		return y
	}
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

// AddTo is h + Forward(x), one kernel when packed.
func (l Linear) AddTo(s *mlx.Scope, h, x *mlx.Array) *mlx.Array {
	if cs := changes(l); l.Packed != nil && (len(cs) == 0 || kernelTakes(cs)) {
		return product(s, x, mlx.PackedLinear{Weights: []*mlx.Packed{l.Packed}, Residual: h}, cs)
	}
	return s.Add(h, l.Forward(s, x))
}

// packed is the layers' matrices, nil unless the kernels hold them all.
func packed(layers []Linear) []*mlx.Packed {
	out := make([]*mlx.Packed, len(layers))
	for i, l := range layers {
		if out[i] = l.Packed; out[i] == nil {
			return nil
		}
	}
	return out
}

// Project is norm(x) through each layer, the results side by side: [.., in] to [.., sum of out]. One kernel when packed.
func Project(s *mlx.Scope, norm RMSNorm, x *mlx.Array, layers ...Linear) *mlx.Array {
	w, cs := packed(layers), changes(layers...)
	fused := mlx.PackedLinear{Weights: w, Norm: norm.Weight, Eps: norm.Eps}
	if w != nil && (len(cs) == 0 || kernelTakes(cs)) {
		return product(s, x, fused, cs)
	}
	apart := func(x *mlx.Array, cs []change) *mlx.Array {
		x = norm.Forward(s, x)
		parts := make([]*mlx.Array, len(layers))
		for i, l := range layers {
			parts[i] = addChanges(s, l.plain(s, x), x, cs, i)
		}
		return s.Concat(-1, parts...)
	}
	plain := func(x *mlx.Array) *mlx.Array {
		if w != nil {
			return s.PackedLinear(x, fused)
		}
		return apart(x, nil)
	}
	if len(cs) == 0 {
		return plain(x)
	}
	return byRows(s, x, cs, plain, apart)
}

// SwiGLU is silu(gate(norm(x))) * up(norm(x)): [.., in] to [.., out]. One kernel when packed.
func SwiGLU(s *mlx.Scope, norm RMSNorm, x *mlx.Array, gate, up Linear) *mlx.Array {
	return gated(s, norm, x, gate, up, mlx.SiLU, s.SiLU)
}

// GeGLU is gelu_tanh(gate(norm(x))) * up(norm(x)): [.., in] to [.., out]. One kernel when packed.
func GeGLU(s *mlx.Scope, norm RMSNorm, x *mlx.Array, gate, up Linear) *mlx.Array {
	return gated(s, norm, x, gate, up, mlx.GELUTanh, func(x *mlx.Array) *mlx.Array { return GELUTanh(s, x) })
}

// gated is act(gate(norm(x))) * up(norm(x)); kernel is act's.
func gated(s *mlx.Scope, norm RMSNorm, x *mlx.Array, gate, up Linear, kernel mlx.Gate, act func(*mlx.Array) *mlx.Array) *mlx.Array {
	w, cs := packed([]Linear{gate, up}), changes(gate, up)
	fused := mlx.PackedLinear{Weights: w, Gate: kernel, Norm: norm.Weight, Eps: norm.Eps}
	if w != nil && (len(cs) == 0 || kernelTakes(cs)) {
		return product(s, x, fused, cs)
	}
	apart := func(x *mlx.Array, cs []change) *mlx.Array {
		x = norm.Forward(s, x)
		return s.Mul(act(addChanges(s, gate.plain(s, x), x, cs, 0)), addChanges(s, up.plain(s, x), x, cs, 1))
	}
	plain := func(x *mlx.Array) *mlx.Array {
		if w != nil {
			return s.PackedLinear(x, fused)
		}
		return apart(x, nil)
	}
	if len(cs) == 0 {
		return plain(x)
	}
	return byRows(s, x, cs, plain, apart)
}

// Embedding is a table of rows by token id. Its matrix is an array, packed for the kernels or coded.
type Embedding struct {
	Weight *mlx.Array // [vocab, hidden], nil when Packed or Coded
	Packed *mlx.Packed
	Coded  Coded
	// DType is what its rows are read as: the graph's compute dtype.
	DType mlx.DType
}

// NewEmbedding finds path.weight.
func NewEmbedding(p Parameters, path string, dtype mlx.DType) Embedding {
	return Embedding{Weight: p.Get(path + ".weight"), Packed: p.Packed(path + ".weight"), Coded: coded(p, path+".weight"), DType: dtype}
}

// Forward looks up ids [.., T] and returns [.., T, hidden].
func (e Embedding) Forward(s *mlx.Scope, ids *mlx.Array) *mlx.Array {
	if e.Packed != nil {
		return s.PackedEmbed(ids, e.Packed, e.DType)
	}
	if e.Coded != nil {
		return e.Coded.Lookup(s, ids, e.DType)
	}
	return s.AsType(s.Take(e.Weight, ids, 0), e.DType)
}

// Head is a model's output head: the layer at path, or, where the model ties the two, the embedding's own matrix.
func (e Embedding) Head(s *mlx.Scope, p Parameters, path string, tied bool) Linear {
	if tied {
		return Linear{Weight: e.Weight, Packed: e.Packed, Coded: e.Coded}
	}
	return NewLinear(s, p, path)
}
