package graph

import (
	"fmt"
	"math"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Graph is the entry of the family's graph table.
func Graph() engine.Graph {
	return engine.Graph{
		ID: "leaf", Kernels: []string{kernels.Linear.Name, kernels.Embed.Name, kernels.Attend.Name, SquaredReLU.Name}, Read: read,
	}
}

// read understands a model from its headers.
func read(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
	c, err := ReadConfig(parsed)
	if err != nil {
		return engine.Blueprint{}, err
	}
	set, err := weights.Match(a, c.params(), weights.Rules{Name: func(stored string) string { return stored }})
	if err != nil {
		return engine.Blueprint{}, err
	}
	return engine.Blueprint{
		Layout: engine.Layout{Vocab: c.VocabSize, Caches: c.Caches()}, Weights: set, EOS: c.EOS, MaxPositions: c.MaxPositions,
		TokenBytes: c.tokenBytes,
		Build:      func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model { return newModel(s, c, w, dtype) },
	}, nil
}

// tokenBytes counts what one token of an evaluation holds at the widest place of a block; the float32 that the kernels widen
// their input to is in it.
func (c Config) tokenBytes(context int, dtype mlx.DType, _ bool) int64 {
	attention := 2*int64(c.Heads)*int64(context) + 3*int64(c.Heads)*int64(c.HeadDim)
	wide := 4*int64(c.HiddenSize) + max(attention, 4*int64(c.IntermediateSize))
	return wide*int64(dtype.Size()) + 4*int64(c.HiddenSize+c.IntermediateSize)
}

func layer(i int) string { return fmt.Sprintf("layers.%d.", i) }

// params lists every tensor of a checkpoint.
func (c Config) params() []weights.Param {
	heads, kvHeads := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	out := []weights.Param{
		{Name: "embed.weight", Shape: []int{c.VocabSize, c.HiddenSize}}, {Name: "norm.weight", Shape: []int{c.HiddenSize}},
	}
	for i := range c.Layers {
		for _, p := range []weights.Param{
			{Name: "attention_norm.weight", Shape: []int{c.HiddenSize}},
			{Name: "q_proj.weight", Shape: []int{heads, c.HiddenSize}},
			{Name: "k_proj.weight", Shape: []int{kvHeads, c.HiddenSize}},
			{Name: "v_proj.weight", Shape: []int{kvHeads, c.HiddenSize}},
			{Name: "o_proj.weight", Shape: []int{c.HiddenSize, heads}},
			{Name: "mlp_norm.weight", Shape: []int{c.HiddenSize}},
			{Name: "up_proj.weight", Shape: []int{c.IntermediateSize, c.HiddenSize}},
			{Name: "down_proj.weight", Shape: []int{c.HiddenSize, c.IntermediateSize}},
		} {
			out = append(out, weights.Param{Name: layer(i) + p.Name, Shape: p.Shape})
		}
	}
	return out
}

// Model is an open leaf. It owns its tensors.
type Model struct {
	Embed  nn.Embedding
	Blocks []Block
	Norm   nn.RMSNorm
	LMHead nn.Linear // tied

	rope    *nn.Rope
	tensors *weights.Tensors
}

// Block is h + attention(norm(h)), then h + down(relu(up(norm(h)))^2).
type Block struct {
	AttentionNorm, MLPNorm     nn.RMSNorm
	QProj, KProj, VProj, OProj nn.Linear
	UpProj, DownProj           nn.Linear

	attention kv.Attention
	layer     int
	squared   *mlx.Operation // nil: the fallback
}

// newModel builds the graph over loaded tensors, which it takes over.
func newModel(s *mlx.Scope, c Config, w *weights.Tensors, dtype mlx.DType) *Model {
	norm := func(name string) nn.RMSNorm { return nn.RMSNorm{Weight: w.Get(name + ".weight"), Eps: c.RMSNormEps} }
	m := &Model{Embed: nn.NewEmbedding(w, "embed", dtype), Norm: norm("norm"), rope: nn.NewRope(s, c.Rope), tensors: w}
	m.LMHead = m.Embed.Head(s, w, "lm_head", true)
	for i := range c.Layers {
		linear := func(name string) nn.Linear { return nn.NewLinear(s, w, layer(i)+name) }
		m.Blocks = append(m.Blocks, Block{
			AttentionNorm: norm(layer(i) + "attention_norm"), MLPNorm: norm(layer(i) + "mlp_norm"),
			QProj: linear("q_proj"), KProj: linear("k_proj"), VProj: linear("v_proj"), OProj: linear("o_proj"),
			UpProj: linear("up_proj"), DownProj: linear("down_proj"), layer: i,
			attention: kv.Attention{Heads: c.Heads, Scale: float32(math.Pow(float64(c.HeadDim), -0.5)), Rope: m.rope},
		})
	}
	return m
}

// UseKernels takes the kernels of lib/ that the plan has as native.
func (m *Model) UseKernels(operations map[string]*mlx.Operation) {
	for i := range m.Blocks {
		m.Blocks[i].squared = operations[SquaredReLU.Name]
	}
}

// Forward maps ids [1, T] to normed hidden states [1, T, H].
func (m *Model) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	h := m.Embed.Forward(s, ids)
	for _, b := range m.Blocks {
		h = b.forward(s, h, pass)
	}
	return m.Norm.Forward(s, h)
}

func (b Block) forward(s *mlx.Scope, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	qkv := nn.Project(s, b.AttentionNorm, h, b.QProj, b.KProj, b.VProj) // [1, T, (Hq + 2 Hkv) D]
	h = b.OProj.AddTo(s, h, pass.Attend(s, b.layer, qkv, b.attention))
	up := nn.Project(s, b.MLPNorm, h, b.UpProj) // [1, T, I]
	return b.DownProj.AddTo(s, h, squaredReLU(s, b.squared, up))
}

// Unembed maps hidden states [.., H] to logits [.., vocab].
func (m *Model) Unembed(s *mlx.Scope, hidden *mlx.Array) *mlx.Array {
	return m.LMHead.Forward(s, hidden)
}

// Close frees the parameters.
func (m *Model) Close() {
	m.rope.Close()
	m.tensors.Close()
}
