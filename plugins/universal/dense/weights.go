package dense

import (
	"fmt"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/weights"
)

// Params lists every parameter of the graph under its Hugging Face name; what a row renames is renamed before.
func (c Config) Params() []weights.Param {
	l := list{}
	l.add("model.embed_tokens.weight", c.VocabSize, c.HiddenSize)
	for i := range c.Layers {
		layer := layerName(i)
		for _, name := range c.Norms.names() {
			c.norm(&l, layer+name)
		}
		c.attention(&l, layer+"self_attn.")
		if !c.Ungated {
			l.linear(layer+"mlp.gate_proj", c.IntermediateSize, c.HiddenSize, c.MLPBias)
		}
		l.linear(layer+"mlp.up_proj", c.IntermediateSize, c.HiddenSize, c.MLPBias)
		l.linear(layer+"mlp.down_proj", c.HiddenSize, c.IntermediateSize, c.MLPBias)
	}
	c.norm(&l, "model.norm")
	if !c.Tied {
		l.linear("lm_head", c.VocabSize, c.HiddenSize, "")
	}
	return l
}

func layerName(i int) string { return fmt.Sprintf("model.layers.%d.", i) }

// names lists the norms of a layer once each.
func (n Norms) names() []string {
	var out []string
	for _, name := range []string{n.Attn, n.AttnOut, n.MLP, n.MLPOut} {
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

// list is parameters in the order they are declared.
type list []weights.Param

func (l *list) add(name string, shape ...int) {
	*l = append(*l, weights.Param{Name: name, Shape: shape})
}

func (l *list) linear(path string, rows, cols int, bias Switch) {
	l.add(path+".weight", rows, cols)
	if bias == always {
		l.add(path+".bias", rows)
	}
}

func (c Config) norm(l *list, path string) {
	l.add(path+".weight", c.HiddenSize)
	if c.NormBias == always {
		l.add(path+".bias", c.HiddenSize)
	}
}

// attention lists what stands under self_attn.
func (c Config) attention(l *list, path string) {
	if c.Latent {
		c.latents(l, path)
		return
	}
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	l.linear(path+"q_proj", q, c.HiddenSize, c.QKVBias)
	l.linear(path+"k_proj", kv, c.HiddenSize, c.QKVBias)
	l.linear(path+"v_proj", kv, c.HiddenSize, c.QKVBias)
	l.linear(path+"o_proj", c.HiddenSize, q, c.OBias)
	switch c.QKNorm {
	case perHead:
		l.add(path+"q_norm.weight", c.HeadDim)
		l.add(path+"k_norm.weight", c.HeadDim)
	case fullWidth:
		l.add(path+"q_norm.weight", q)
		l.add(path+"k_norm.weight", kv)
	case headLayers:
		*l = append(*l, weights.Param{Name: path + "q_norm.weight", Shape: []int{c.Heads, c.HeadDim}, Plain: true},
			weights.Param{Name: path + "k_norm.weight", Shape: []int{c.KVHeads, c.HeadDim}, Plain: true})
	case headTensors:
		for _, name := range headNames(path+"q_layernorm", c.Heads) {
			l.add(name, c.HeadDim)
		}
		for _, name := range headNames(path+"k_layernorm", c.KVHeads) {
			l.add(name, c.HeadDim)
		}
	case noQKNorm:
	}
}

// headNames are the norms of each head in tensors of their own.
func headNames(path string, heads int) []string {
	out := make([]string, heads)
	for i := range out {
		out[i] = fmt.Sprintf("%s.norms.%d.weight", path, i)
	}
	return out
}

// Match finds the graph's parameters in an artifact. A head that only the file's tensors tell of is settled in c.
func Match(a *artifact.Artifact, c *Config) (*weights.Set, error) {
	quantization, err := weights.ReadQuantization(a.Config())
	if err != nil {
		return nil, err
	}
	names := c.names(a)
	c.readStored(names)
	quantization.Modules = names.modules(quantization.Modules)
	params := c.Params()
	if names.gguf {
		if params, err = c.divisors(a, c.ordered(params)); err != nil {
			return nil, err
		}
	}
	return weights.Match(a, c.fused(names, params), weights.Rules{Name: names.graph, Quantization: quantization})
}

// readStored settles what only the names in the file tell.
func (c *Config) readStored(n names) {
	if c.Head == ifStored || n.gguf && c.Head != tied {
		c.Tied = !n.has("lm_head.weight")
	}
	if row := rows[c.kind]; n.gguf {
		if row.QKNormIf != "" {
			c.QKNorm = noQKNorm
			if n.has(layerName(0) + "self_attn.q_norm.weight") {
				c.QKNorm = headLayers
			}
		}
		if row.Parallel.If != "" && row.Parallel.If != always && !n.has(layerName(0)+row.Norms.MLP+".weight") {
			c.Parallel.If, c.Norms.MLP = always, ""
		}
		if c.Norm == rmsPlusOne {
			c.Norm = rms // the converter has added the one
		}
		c.QKVBias = n.bias(row.QKVBias, "self_attn.q_proj", "self_attn.qkv_proj")
		c.OBias = n.bias(row.OBias, "self_attn.o_proj")
		c.MLPBias = n.bias(row.MLPBias, "mlp.down_proj")
	}
}

// fused points parameters that the file holds in one tensor to their rows there.
func (c Config) fused(n names, params []weights.Param) []weights.Param {
	q, kv, groups := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, 1
	if c.GroupedQKV && !n.gguf { // the converter puts all queries first
		groups = c.KVHeads
	}
	pieces := map[string]struct {
		of          string
		rows, first int
		groups      int
	}{
		"self_attn.q_proj": {"self_attn.qkv_proj", q + 2*kv, 0, groups},
		"self_attn.k_proj": {"self_attn.qkv_proj", q + 2*kv, q / groups, groups},
		"self_attn.v_proj": {"self_attn.qkv_proj", q + 2*kv, (q + kv) / groups, groups},
		"mlp.gate_proj":    {"mlp.gate_up_proj", 2 * c.IntermediateSize, 0, 1},
		"mlp.up_proj":      {"mlp.gate_up_proj", 2 * c.IntermediateSize, c.IntermediateSize, 1},
	}
	for i := range params {
		layer, module, end := split(params[i].Name)
		p, ok := pieces[module]
		if of := layer + p.of + "." + end; ok && n.has(of) {
			params[i].Part = &weights.Part{Of: of, Rows: p.rows, Groups: p.groups, First: p.first}
		}
	}
	return params
}

// ordered says which parameters a GGUF holds in interleaved rope order.
func (c Config) ordered(params []weights.Param) []weights.Param {
	for i := range params {
		switch _, module, _ := split(params[i].Name); {
		case !c.GGUF.Interleaved || c.Rope.Traditional: // a graph that rotates interleaved pairs wants the rows as they lie
		case module == "self_attn.q_proj":
			params[i].InterleavedHeads = c.Heads
		case module == "self_attn.k_proj":
			params[i].InterleavedHeads = c.KVHeads
		}
	}
	return params
}
