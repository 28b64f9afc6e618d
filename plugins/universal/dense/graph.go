package dense

import (
	"fmt"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// revision of what the graph computes (engine.Graph).
const revision = 3

// Graph is the generic entry of a graph table.
func Graph() engine.Graph {
	return engine.Graph{ID: "dense", Revision: revision, Kernels: []string{kernels.Linear.Name, kernels.Embed.Name, kernels.Attend.Name}, Read: read}
}

func read(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
	c, err := ReadConfig(parsed, stated(a))
	if err != nil {
		return engine.Blueprint{}, err
	}
	set, err := Match(a, &c)
	if err != nil {
		return engine.Blueprint{}, err
	}
	return engine.Blueprint{
		Layout:  c.layout(),
		Weights: set, EOS: c.EOS, MaxPositions: c.MaxPositions, TokenBytes: c.tokenBytes, Notes: c.Notes, Kernels: c.kernels(), Unfused: c.unfused(), Uncertain: c.uncertain,
		Adapts: c.adapts,
		Build:  func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model { return New(s, c, w, dtype) },
	}, nil
}

// kernels names what the model uses beside the graph's own.
func (c Config) kernels() []string {
	switch {
	case c.AttentionSoftcap != 0:
		return []string{kernels.AttendSoftcap.Name}
	case c.Latent && c.Latents.absorbs():
		return []string{kernels.AttendLatent.Name, kernels.HeadLinear.Name}
	case c.Latent:
		return []string{kernels.AttendLatent.Name}
	}
	return nil
}

// bends reports whether MLX's operations bend scores: a library that lacks the kernel leaves it to them.
func (c Config) bends() bool { return c.AttentionSoftcap != 0 && !mlx.AttendsSoftcap() }

// unfused names the parts of the graph that no kernel has: MLX's operations compute them beside the kernels.
func (c Config) unfused() []string {
	var out []string
	say := func(is bool, what string) {
		if is {
			out = append(out, what)
		}
	}
	say(c.Norm == layerNorm, "layer norms")
	say(c.Norms.AttnOut != "", "norms of outputs")
	say(c.QKNorm != noQKNorm && c.QKNorm != perHead, "norms of queries and keys")
	say(c.Latent, "the order of latents")
	say(c.Latent && !c.Latents.absorbs(), "heads through matrices of their own")
	say(c.Latent && !mlx.AttendsLatent(), "attention over latents")
	say(c.QueryGrowth != 0, "queries that grow")
	say(c.Act == gelu || c.Ungated, "the activation")
	say(c.bends(), "attention with a softcap")
	say(c.EmbedScale != 1 || c.ResidualScale != 1 || c.LogitScale != 1 || c.LogitDivisor != 1 || c.HeadDivisor != 1, "multipliers")
	say(c.FinalSoftcap != 0, "the softcap of logits")
	return out
}

// uncertain says why tokens of a context depend on how a prompt is cut.
func (c Config) uncertain(context int) string {
	switch {
	case c.bends():
		return "attention with a softcap runs as stock operations"
	case c.Latent && !c.Latents.absorbs():
		return "attention over latents runs as stock operations"
	case c.Rope.Kind == nn.RopeDynamic && context > c.MaxPositions:
		return fmt.Sprintf("the base of positions grows with a sequence beyond %d tokens", c.MaxPositions)
	}
	return ""
}

// adapts are the linear layers of the blocks: the head shares its matrix with the embedding in many checkpoints.
func (c Config) adapts(module string) (string, bool) {
	if c.Latent && strings.HasSuffix(module, ".kv_b_proj") {
		return "", false // it is absorbed
	}
	return module, strings.HasPrefix(module, "model.layers.")
}

// tokenBytes counts what one token of an evaluation holds at the widest place of a block: the residual stream and norms, and
// either attention or the MLP. Stock attention keeps the scores twice, before and after softmax; the kernels widen their input
// to float32 and keep no scores.
func (c Config) tokenBytes(context int, dtype mlx.DType, packed bool) int64 {
	residual, size := 4*int64(c.HiddenSize), int64(dtype.Size())
	heads := int64(c.Heads) * int64(c.HeadDim)
	attention := 2*int64(c.Heads)*int64(context) + 3*heads
	mlp := 4 * int64(c.IntermediateSize)
	if packed && len(c.unfused()) == 0 {
		held := residual + max(int64(c.Heads+2*c.KVHeads)*int64(c.HeadDim)+heads, int64(c.IntermediateSize))
		return held*size + 4*(max(int64(c.HiddenSize), int64(c.IntermediateSize), heads)+heads)
	}
	if packed && !c.bends() {
		attention = 4 * heads
	}
	if c.AttentionSoftcap != 0 && !(packed && mlx.AttendsSoftcap()) {
		attention += 2 * int64(c.Heads) * int64(context) // bent scores beside the plain ones
	}
	if c.Latent {
		attention = c.latentValues(context, dtype, packed)
	}
	return (residual + 2*int64(c.HiddenSize) + max(attention, mlp)) * size
}
