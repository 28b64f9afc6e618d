package dense

import (
	"regexp"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/weights"
)

// names gives the graph's names of a file's tensors.
type names struct {
	config Config
	gguf   bool
	rules  []string // pairs of a part of a stored name and what stands for it
	stored map[string]bool
}

func (c Config) names(a *artifact.Artifact) names {
	n := names{config: c, gguf: a.Format == artifact.GGUF, rules: c.Renames, stored: map[string]bool{}}
	if n.gguf {
		n.rules = c.ggufRules()
	}
	for _, t := range a.Tensors() {
		name := n.graph(t.Name)
		n.stored[name] = true
		if path, packed := strings.CutSuffix(name, ".qweight"); packed { // AutoAWQ's
			n.stored[path+".weight"] = true
		}
	}
	return n
}

func (n names) has(name string) bool { return n.stored[name] }

// bias reports whether modules have one: always if the architecture's do, else if one of these of the first layer has.
func (n names) bias(row Switch, modules ...string) Switch {
	for _, module := range modules {
		if row == always || n.has(layerName(0)+module+".bias") {
			return always
		}
	}
	return ""
}

// graph is the graph's name of a stored tensor, "" for one that mlx-lm's sanitize drops: precomputed rotary frequencies, and the copy
// of a tied head.
func (n names) graph(stored string) string {
	name := stored
	for i := 0; i < len(n.rules); i += 2 {
		if strings.Contains(name, n.rules[i]) {
			if n.rules[i+1] == "" {
				return ""
			}
			name = strings.Replace(name, n.rules[i], n.rules[i+1], 1)
		}
	}
	if strings.HasSuffix(name, "rotary_emb.inv_freq") || (n.config.Tied && !n.gguf && strings.HasPrefix(name, "lm_head.")) {
		return ""
	}
	return name
}

// modules renames the paths of a quantization block as its tensors are renamed.
func (n names) modules(stored map[string]weights.Module) map[string]weights.Module {
	if stored == nil {
		return nil
	}
	out := map[string]weights.Module{}
	for path, m := range stored {
		if name := n.graph(path + ".weight"); name != "" {
			path = strings.TrimSuffix(name, ".weight")
		}
		out[path] = m
	}
	return out
}

// ggufRules are llama.cpp's tensor names (gguf-py, tensor_mapping.py). Norms stand there by their place in the layer.
func (c Config) ggufRules() []string {
	rules := []string{
		ggufShort, "", "token_embd.", "model.embed_tokens.", "output_norm.", "model.norm.", "blk.", "model.layers.",
		"attn_q_norm.", "self_attn.q_norm.", "attn_k_norm.", "self_attn.k_norm.",
		"attn_qkv.", "self_attn.qkv_proj.", "attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.",
		"attn_q_a_norm.", "self_attn.q_a_layernorm.", "attn_kv_a_norm.", "self_attn.kv_a_layernorm.", "attn_q_a.", "self_attn.q_a_proj.",
		"attn_q_b.", "self_attn.q_b_proj.", "attn_kv_a_mqa.", "self_attn.kv_a_proj_with_mqa.", "attn_kv_b.", "self_attn.kv_b_proj.",
		"attn_output.", "self_attn.o_proj.", "output.", "lm_head.",
	}
	for _, norm := range [][2]string{
		{"attn_norm.", c.Norms.Attn}, {"post_attention_norm.", c.Norms.AttnOut}, {"ffn_norm.", c.Norms.MLP}, {"post_ffw_norm.", c.Norms.MLPOut},
	} {
		if norm[1] != "" {
			rules = append(rules, "."+norm[0], "."+norm[1]+".")
		}
	}
	up := "mlp.up_proj."
	if c.GGUF.FusedUp {
		up = "mlp.gate_up_proj."
	}
	return append(rules, "ffn_gate.", "mlp.gate_proj.", "ffn_up.", up, "ffn_down.", "mlp.down_proj.")
}

var layered = regexp.MustCompile(`^(model\.layers\.\d+\.)?(.+)\.(\w+)$`)

// split is a name's layer with its dot, module and ending.
func split(name string) (layer, module, end string) {
	m := layered.FindStringSubmatch(name)
	if m == nil {
		return "", "", name
	}
	return m[1], m[2], m[3]
}
