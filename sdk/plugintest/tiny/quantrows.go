package tiny

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/weights/quant"
)

// quantRecipe is a row's checkpoint with quantized weights.
type quantRecipe struct {
	rowRecipe
	block map[string]any // of the config
	store func(c Checkpoint, dir string) error
	heavy bool // for the longer tests
}

// DenseQuantized lists checkpoints of rows in every width and mode, fused projections and AutoAWQ's layout among them. With names only
// those are drawn.
func DenseQuantized(names ...string) []Checkpoint {
	var out []Checkpoint
	for _, r := range quantRecipes() {
		if len(names) == 0 || slices.Contains(names, r.name) {
			c := r.checkpoint()
			maps.Copy(c.Config, r.block)
			c.store = r.store
			out = append(out, c)
		}
	}
	return out
}

// DenseQuantizedNames lists the names of DenseQuantized's checkpoints: all, or those that are quick to run together.
func DenseQuantizedNames(all bool) []string {
	var out []string
	for _, r := range quantRecipes() {
		if all || !r.heavy {
			out = append(out, r.name)
		}
	}
	return out
}

// quantBlock is a block of MLX's, with entries for modules.
func quantBlock(mode string, bits, group int, modules ...any) map[string]any {
	block := with(map[string]any{"group_size": group, "bits": bits, "mode": mode}, modules...)
	return map[string]any{"quantization": block, "quantization_config": block}
}

// mlx-lm looks up rows of mxfp8 and nvfp4 as bfloat16, and what follows without a norm in between is computed so: such embeddings stay floats.
func quantRecipes() []quantRecipe {
	entry := func(bits, group int) map[string]any { return map[string]any{"group_size": group, "bits": bits} }
	phi3 := func(name string, more ...any) rowRecipe {
		return row(name, "phi3", with(with(nil, "rope_theta", 1e4), more...), rowTensors{norms: preNorms, mean: 1, fused: true, head: true})
	}
	intern := func(name string) rowRecipe {
		return row(name, "internlm2", with(nil, "bias", true, "max_position_embeddings", 512), internlm2(true))
	}
	glm := func(name string) rowRecipe {
		return row(name, "glm4", with(nil, "head_dim", 32, "attention_bias", true, "partial_rotary_factor", 0.5, "rope_theta", 10000.0),
			rowTensors{norms: glmNorms, mean: 1, qkv: true, fusedGate: true, head: true})
	}
	plain := rowTensors{norms: preNorms, mean: 1, head: true}
	awq := func(method string, more ...any) map[string]any {
		return map[string]any{"quantization_config": with(map[string]any{"quant_method": method, "bits": 4, "group_size": 32}, more...)}
	}
	return []quantRecipe{
		{rowRecipe: phi3("phi3-affine3"), block: quantBlock("affine", 3, 32,
			"model.layers.1.self_attn.qkv_proj", entry(5, 32), "model.layers.2.mlp.gate_up_proj", entry(8, 32), "model.layers.0.mlp.down_proj", false), store: quantizedStore},
		{rowRecipe: intern("internlm2-affine5"), block: quantBlock("affine", 5, 32, "model.layers.1.attention.wqkv", entry(2, 32)), store: quantizedStore},
		{rowRecipe: row("qwen3-affine2", "qwen3", with(nil, "head_dim", 32, "rope_theta", 1e6, "tie_word_embeddings", true),
			rowTensors{norms: preNorms, mean: 1, headNorms: true}), block: quantBlock("affine", 2, 32, "model.embed_tokens", entry(6, 32)), store: quantizedStore},
		{rowRecipe: row("gemma2-affine6", "gemma2", with(nil, "head_dim", 32), rowTensors{norms: fourNorms}), block: quantBlock("affine", 6, 32), store: quantizedStore},
		{
			rowRecipe: row("granite-affine8", "granite", with(granite, "attention_bias", false, "mlp_bias", false), rowTensors{norms: preNorms, mean: 1}),
			block:     quantBlock("affine", 8, 32), store: quantizedStore,
		},
		{rowRecipe: glm("glm4-mxfp4"), block: quantBlock("mxfp4", 4, 32), store: quantizedStore},
		{rowRecipe: phi3("phi3-nvfp4"), block: quantBlock("nvfp4", 4, 16, "lm_head", false), store: quantizedStore},
		{rowRecipe: intern("internlm2-mxfp8"), block: quantBlock("mxfp8", 8, 32), store: quantizedStore},
		{rowRecipe: phi3("phi3-awq"), block: awq("awq", "zero_point", true, "version", "gemm", "modules_to_not_convert", nil), store: awqStore(true)},
		{
			rowRecipe: row("qwen2-gptq", "qwen2", with(nil, "rope_theta", 1e6), rowTensors{norms: preNorms, mean: 1, qkv: true}),
			block:     awq("gptq", "desc_act", false, "sym", true), store: awqStore(false),
		},

		{
			rowRecipe: row("minicpm3-affine3", "minicpm3", latents(nil, 32, 32, 16, 16), rowTensors{norms: preNorms, mean: 1, latent: true, head: true}),
			block:     quantBlock("affine", 3, 32), store: quantizedStore, heavy: true,
		},
		{
			rowRecipe: row("starcoder2-mxfp4", "starcoder2", with(nil, "norm_epsilon", 1e-5, "rope_theta", 1e5), starcoder2),
			block:     quantBlock("mxfp4", 4, 32), store: quantizedStore, heavy: true,
		},
		{rowRecipe: row("stablelm-affine6", "stablelm", with(nil, "layer_norm_eps", 1e-5, "rope_theta", 1e4, "use_qkv_bias", false, "partial_rotary_factor", 0.25),
			rowTensors{norms: preNorms, mean: 1, normBias: true, head: true}), block: quantBlock("affine", 6, 32), store: quantizedStore, heavy: true},
		{
			rowRecipe: row("olmo2-mxfp8", "olmo2", with(nil, "rope_theta", 5e5), rowTensors{norms: postNorms, mean: 1, fullNorms: true}),
			block:     quantBlock("mxfp8", 8, 32, "model.embed_tokens", false), store: quantizedStore, heavy: true,
		},
		{
			rowRecipe: row("gemma3-nvfp4", "gemma3_text", gemma3, rowTensors{norms: fourNorms, headNorms: true}),
			block:     quantBlock("nvfp4", 4, 16, "model.embed_tokens", false), store: quantizedStore, heavy: true,
		},
		{
			rowRecipe: row("exaone4-affine2", "exaone4", exaone4("LLG", 24), rowTensors{norms: postNorms, mean: 1, headNorms: true, head: true}),
			block:     quantBlock("affine", 2, 32), store: quantizedStore, heavy: true,
		},
		{rowRecipe: row("cohere2-affine5", "cohere2", with(nil, "head_dim", 16, "layer_norm_eps", 1e-5, "logit_scale", 0.25, "sliding_window", 24),
			rowTensors{norms: preNorms[:1], mean: 1}), block: quantBlock("affine", 5, 32), store: quantizedStore, heavy: true},
		{
			rowRecipe: row("internlm2-awq", "internlm2", with(nil, "bias", false, "max_position_embeddings", 512), internlm2(false)),
			block:     awq("awq"), store: awqStore(true), heavy: true,
		},
		{
			rowRecipe: row("smollm3-awq", "smollm3", with(nil, "rope_theta", 5e6, "tie_word_embeddings", false), plain),
			block:     awq("awq", "version", "GEMM"), store: awqStore(false), heavy: true,
		},
	}
}

// awqStore writes the matrices of layers as AutoAWQ does, [in, out/8] words of eight codes, scales in float16 and, where they are not
// symmetric, zeros; and all the rest in float16.
func awqStore(zeros bool) func(Checkpoint, string) error {
	return func(c Checkpoint, dir string) error {
		group := c.Config["quantization_config"].(map[string]any)["group_size"].(int)
		var tensors []stored
		for _, t := range c.Tensors {
			path, isMatrix := strings.CutSuffix(t.Name, ".weight")
			if isMatrix && len(t.Shape) == 2 && strings.Contains(path, "layers.") {
				tensors = append(tensors, awqTriple(path, t, group, zeros)...)
			} else {
				tensors = append(tensors, stored{t.Name, "F16", t.Shape, encode("F16", t.Values)})
			}
		}
		return writeSafetensors(c, dir, tensors)
	}
}

func awqTriple(path string, t Tensor, group int, asymmetric bool) []stored {
	out, in := t.Shape[0], t.Shape[1]
	codes, zeros := make([]uint32, in*out/8), make([]uint32, in/group*out/8)
	scales := make([]float32, in/group*out)
	put := func(words []uint32, row, column int, v float64) {
		place := [8]int{0, 4, 1, 5, 2, 6, 3, 7}[column%8]
		words[row*out/8+column/8] |= uint32(min(max(v, 0), 15)) << (4 * place)
	}
	for o := range out {
		for g := range in / group {
			values := t.Values[o*in+g*group:][:group]
			scale, zero := max(float64(slices.Max(values)), -float64(slices.Min(values)))/7, 8.0
			if asymmetric {
				scale = float64(slices.Max(values)-slices.Min(values)) / 15
				zero = math.Round(-float64(slices.Min(values)) / scale)
			}
			scales[g*out+o] = float32(scale)
			scale = float64(quant.F16(quant.ToF16(float32(scale))))
			put(zeros, g, o, zero)
			for i, v := range values {
				put(codes, g*group+i, o, math.Round(float64(v)/scale)+zero)
			}
		}
	}
	words := func(v []uint32) []byte {
		var raw []byte
		for _, w := range v {
			raw = binary.LittleEndian.AppendUint32(raw, w)
		}
		return raw
	}
	all := []stored{
		{path + ".qweight", "I32", []int{in, out / 8}, words(codes)},
		{path + ".scales", "F16", []int{in / group, out}, encode("F16", scales)},
	}
	if asymmetric {
		all = append(all, stored{path + ".qzeros", "I32", []int{in / group, out / 8}, words(zeros)})
	}
	return all
}
