package nn

import "github.com/clademl/clade/sdk/mlx"

// sorted is from how many picks on mlx-lm brings the rows of one expert together before it multiplies.
const sorted = 64

// Experts is a mixture of gated MLPs: each row goes through the TopK that Router finds likeliest, weighted by their probabilities.
type Experts struct {
	Router         Linear // [experts, hidden]
	Gate, Up, Down Linear // [experts, width, hidden], [experts, hidden, width]; packed, the experts' rows one after another
	Experts, TopK  int
	// Normalize makes the probabilities of those picked sum to 1.
	Normalize bool
}

// AddTo is h + the mixture of norm(h), for h [1, T, hidden].
func (e Experts) AddTo(s *mlx.Scope, norm RMSNorm, h *mlx.Array) *mlx.Array {
	w := packed([]Linear{e.Gate, e.Up, e.Down, e.Router})
	if w == nil || norm.Weight == nil || !mlx.Mixes() {
		return e.apart(s, norm, h)
	}
	whole := func(h *mlx.Array) *mlx.Array {
		return s.PackedMixture(h, norm.Weight, norm.Eps, w[3], mlx.PackedExperts{
			Gate: w[0], Up: w[1], Down: w[2], Experts: e.Experts, TopK: e.TopK, Normalize: e.Normalize,
		})
	}
	cs := changes(e.Router)
	if len(cs) == 0 {
		return whole(h)
	}
	return byRows(s, h, cs, whole, func(h *mlx.Array, cs []change) *mlx.Array {
		x := norm.Forward(s, h)
		return e.routed(s, x, addChanges(s, e.Router.plain(s, x), x, cs, 0), h)
	})
}

// apart is AddTo in operations of their own.
func (e Experts) apart(s *mlx.Scope, norm RMSNorm, h *mlx.Array) *mlx.Array {
	x := norm.Forward(s, h)
	return e.routed(s, x, e.Router.Forward(s, x), h)
}

// routed is h + the mixture of x, whose logits [1, T, experts] are known.
func (e Experts) routed(s *mlx.Scope, x, logits, h *mlx.Array) *mlx.Array {
	if w := packed([]Linear{e.Gate, e.Up, e.Down}); w != nil {
		return s.PackedExperts(x, logits, mlx.PackedExperts{
			Gate: w[0], Up: w[1], Down: w[2], Experts: e.Experts, TopK: e.TopK, Normalize: e.Normalize, Residual: h,
		})
	}
	probabilities := s.Softmax(logits, -1, true)
	// Of equal ones those with the higher number are picked.
	picked := s.SliceAxis(s.ArgPartition(probabilities, -e.TopK, -1), -1, e.Experts-e.TopK, e.Experts) // [1, T, k]
	scores := s.TakeAlongAxis(probabilities, picked, -1)
	if e.Normalize {
		scores = s.Div(scores, s.Sum(scores, -1, true))
	}
	y := e.mix(s, x, picked) // [1, T, k, hidden]
	return s.Add(h, s.AsType(s.Sum(s.Mul(y, s.ExpandDims(scores, -1)), -2, false), h.DType()))
}

// mix is each picked expert's MLP of its row, [1, T, k, hidden]. The matrices are float32, whatever x is: MLX gathers no others on
// the CPU.
func (e Experts) mix(s *mlx.Scope, x, picked *mlx.Array) *mlx.Array {
	dtype, rows := x.DType(), x.Dim(1)
	k := e.TopK
	x = s.Reshape(x, rows, 1, 1, -1)    // [T, 1, 1, hidden]
	picked = s.Reshape(picked, rows, k) // [T, k]
	var back *mlx.Array
	together := rows*k >= sorted
	if together {
		flat := s.Reshape(picked, rows*k)
		order := s.ArgSort(flat, -1)
		back = s.ArgSort(order, -1)
		row := s.FloorDivide(order, s.Scalar(float64(k), mlx.Uint32))
		x = s.Take(s.Reshape(x, rows, 1, -1), row, 0) // [T k, 1, hidden]
		picked = s.Take(flat, order, 0)
	}
	gather := func(x *mlx.Array, w Linear) *mlx.Array {
		y := s.GatherMM(s.AsType(x, w.Weight.DType()), s.Swapaxes(w.Weight, -1, -2), nil, picked, together)
		return s.AsType(y, dtype)
	}
	up, gate := gather(x, e.Up), gather(x, e.Gate)
	y := gather(s.Mul(s.SiLU(gate), up), e.Down)
	if together {
		y = s.Take(y, back, 0)
	}
	return s.Reshape(y, 1, rows, k, -1)
}
