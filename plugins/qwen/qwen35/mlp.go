package qwen35

import (
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// feedForward is a block's second half: an MLP, or a mixture of them.
type feedForward interface {
	// AddTo maps h [1, T, H] to h + mlp(norm(h)).
	AddTo(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array) *mlx.Array
}

func (b builder) feedForward(path string) feedForward {
	if b.config.MoE == nil {
		return b.mlp(path)
	}
	c := b.config.MoE
	return MoE{
		Experts: nn.Experts{
			Router: b.linear(path + "gate"), Gate: b.linear(path + "switch_mlp.gate_proj"), Up: b.linear(path + "switch_mlp.up_proj"),
			Down: b.linear(path + "switch_mlp.down_proj"), Experts: c.Experts, TopK: c.TopK, Normalize: c.Normalize,
		},
		SharedExpert: b.mlp(path + "shared_expert."), SharedExpertGate: b.linear(path + "shared_expert_gate"),
	}
}

func (b builder) mlp(path string) MLP {
	return MLP{GateProj: b.linear(path + "gate_proj"), UpProj: b.linear(path + "up_proj"), DownProj: b.linear(path + "down_proj")}
}

// MLP is down(silu(gate(x)) * up(x)).
type MLP struct {
	GateProj, UpProj, DownProj nn.Linear
}

// AddTo maps h [1, T, H] to h + mlp(norm(h)).
func (m MLP) AddTo(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array) *mlx.Array {
	return m.DownProj.AddTo(s, h, nn.SwiGLU(s, norm, h, m.GateProj, m.UpProj))
}

// MoE is a mixture of routed experts and one that every token goes through, as far as its own gate lets it.
type MoE struct {
	nn.Experts
	SharedExpert     MLP
	SharedExpertGate nn.Linear // [1, H]
}

// AddTo maps h [1, T, H] to h + the mixture of norm(h) + sigmoid(gate(norm(h))) * shared(norm(h)).
func (m MoE) AddTo(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array) *mlx.Array {
	gate := nn.Project(s, norm, h, m.SharedExpertGate) // [1, T, 1]
	shared := m.SharedExpert.DownProj.Forward(s, nn.SwiGLU(s, norm, h, m.SharedExpert.GateProj, m.SharedExpert.UpProj))
	return s.Add(m.Experts.AddTo(s, norm, h), s.Mul(s.Sigmoid(gate), shared))
}
