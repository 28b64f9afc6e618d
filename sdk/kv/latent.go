package kv

import (
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// kernelWidth is what the width of a head is a multiple of for the kernels.
const kernelWidth = 16

// LatentSpec is what a layer of multi-head latent attention keeps of a token: one row for all heads, of which the first rope columns
// rotate, then the rank columns of the latent that keys and values are made of, then zeros up to what the kernels take.
func LatentSpec(rank, rope int) Spec {
	return Spec{Heads: 1, HeadDim: (rope + rank + kernelWidth - 1) / kernelWidth * kernelWidth, Latent: true}
}

// LatentAttention is attention over such rows with the expansion of keys and values absorbed: a query is brought to the latent instead
// of every key to the query, and the sum of latents to the values instead of every value to the sum. Prefill and decoding are the same.
type LatentAttention struct {
	Attention                  // Rope rotates the first columns of queries and rows
	Keys, Values nn.HeadLinear // [Heads, Plain, Rank] and [Heads, Rank, Value]
}

// AttendLatent takes queries [1, T, Heads * (Plain + Rotated)], of which the last channels of a head rotate, and rows
// [1, T, Rank + Rotated] of layer i, in this order both, and returns the attention [1, T, Heads * Value].
func (p *Pass) AttendLatent(s *mlx.Scope, i int, q, row *mlx.Array, a LatentAttention) *mlx.Array {
	spec, rank, plain := p.segments[0].Cache.specs[i], a.Keys.Out(), a.Keys.In()
	if s.Err() != nil {
		return q
	}
	rotated := row.Dim(-1) - rank
	if want := []int{1, p.tokens, a.Heads * (plain + rotated)}; !slices.Equal(q.Shape(), want) || !spec.Latent || spec.HeadDim != LatentSpec(rank, rotated).HeadDim {
		_ = s.Fail(fmt.Errorf("attend: layer %d got latents of %d, rows of %d and queries %v, not %v", i, rank, row.Dim(-1), q.Shape(), want))
		return q
	}
	// Rotating columns come first, where the kernels rotate them.
	absorbed := s.Reshape(a.Keys.Forward(s, q, 0), 1, p.tokens, a.Heads, rank)
	turning := s.SliceAxis(s.Reshape(q, 1, p.tokens, a.Heads, plain+rotated), -1, plain, plain+rotated)
	wide := []*mlx.Array{turning, absorbed}
	all := []*mlx.Array{nil, s.SliceAxis(row, -1, rank, rank+rotated), s.SliceAxis(row, -1, 0, rank)}
	if pad := spec.HeadDim - rotated - rank; pad > 0 {
		wide = append(wide, s.Zeros([]int{1, p.tokens, a.Heads, pad}, q.DType()))
		all = append(all, s.Zeros([]int{1, p.tokens, pad}, q.DType()))
	}
	all[0] = s.Reshape(s.Concat(-1, wide...), 1, p.tokens, -1)
	return a.Values.Forward(s, p.Attend(s, i, s.Concat(-1, all...), a.Attention), rotated)
}
