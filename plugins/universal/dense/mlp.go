package dense

import (
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// MLP is down(act(gate(x)) * up(x)), or down(act(up(x))).
type MLP struct {
	GateProj, UpProj, DownProj nn.Linear

	act     Act
	ungated bool
}

func (b builder) mlp() MLP {
	m := MLP{UpProj: b.linear("mlp.up_proj"), DownProj: b.linear("mlp.down_proj"), act: b.c.Act, ungated: b.c.Ungated}
	if !m.ungated {
		m.GateProj = b.linear("mlp.gate_proj")
	}
	return m
}

// Forward maps h [1, T, H] to what stands in front of DownProj, [1, T, I].
func (m MLP) Forward(s *mlx.Scope, norm nn.Norm, h *mlx.Array) *mlx.Array {
	if m.ungated {
		return m.act.of(s, project(s, norm, h, m.UpProj))
	}
	h, fused := before(s, norm, h)
	switch m.act {
	case silu:
		return nn.SwiGLU(s, fused, h, m.GateProj, m.UpProj)
	case geluTanh:
		return nn.GeGLU(s, fused, h, m.GateProj, m.UpProj)
	case gelu:
	}
	h = fused.Forward(s, h)
	return s.Mul(m.act.of(s, m.GateProj.Forward(s, h)), m.UpProj.Forward(s, h))
}

// of is the activation of x.
func (a Act) of(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	switch a {
	case gelu:
		return nn.GELU(s, x)
	case geluTanh:
		return nn.GELUTanh(s, x)
	case silu:
	}
	return s.SiLU(x)
}
