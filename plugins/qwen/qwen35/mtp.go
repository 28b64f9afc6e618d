package qwen35

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// The kinds of draft that a head is opened as, as the contract spells them.
const (
	besideMTP  = "mtp"            // a folder of its own
	bundledMTP = "checkpoint-mtp" // among the model's tensors
)

// heads are the draft networks of the graphs, whose config is read by config.
func heads(config func(artifact.Config) (Config, error)) map[string]engine.ReadHead {
	out := map[string]engine.ReadHead{}
	for _, kind := range []string{besideMTP, bundledMTP} {
		out[kind] = func(target, head *artifact.Artifact, parsed artifact.Config) (engine.Head, error) {
			c, err := config(parsed)
			if err != nil {
				return engine.Head{}, err
			}
			return readMTP(target, head, c, kind)
		}
	}
	return out
}

// readMTP understands a head that was made for a model of config c.
func readMTP(target, head *artifact.Artifact, c Config, kind string) (engine.Head, error) {
	l, err := c.layoutOfMTP(target, head, kind)
	if err != nil {
		return engine.Head{}, err
	}
	if err := checkMTP(target.Config(), head, kind); err != nil {
		return engine.Head{}, err
	}
	quantization, err := weights.ReadQuantization(head.Config())
	if err != nil {
		return engine.Head{}, err
	}
	modules := map[string]weights.Module{}
	for path, m := range quantization.Modules {
		modules[strings.TrimSuffix(mtpName(path+".weight", kind), ".weight")] = m
	}
	set, err := weights.Match(head, c.mtpParams(l), weights.Rules{
		Name: func(stored string) string { return mtpName(stored, kind) }, Quantization: weights.Quantization{Modules: modules},
	})
	if err != nil {
		return engine.Head{}, err
	}
	caches := []kv.Spec{{Heads: c.KVHeads, HeadDim: c.HeadDim}}
	return engine.Head{
		Weights: set, Caches: caches, TokenBytes: c.mtpTokenBytes,
		Build: func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType, target engine.Model) engine.Drafter {
			return &drafter{kind: kind, head: newMTP(s, c, l, w, dtype, target), caches: caches, kernels: w.Packed(fcName) != nil}
		},
	}, nil
}

// checkMTP refuses a head whose config, in which mlx-vlm keeps the model's text config, describes another model or another network.
func checkMTP(model artifact.Config, head *artifact.Artifact, kind string) error {
	own := head.Config()
	for _, name := range []string{
		"hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size",
		"attention_bias", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size", "norm_topk_prob",
		"rope_parameters.rope_theta", "rope_parameters.partial_rotary_factor",
	} {
		if kind != besideMTP {
			break
		}
		is, wants := textField(own, name), textField(model, name)
		if is != nil && wants != nil && numeric(is) != numeric(wants) {
			return contract.Errorf(contract.InvalidArgument, "draft", "%s is a head of another model: its %s is %v, the model's %v",
				filepath.Base(head.Path), name, is, wants).WithNext("use the head that was made for the model")
		}
	}
	if v, _ := textField(own, "mtp_use_dedicated_embeddings").(bool); v {
		return contract.Errorf(contract.UnsupportedModel, own.Name()+": mtp_use_dedicated_embeddings", "a head with embeddings of its own is not run")
	}
	if v := textField(own, "mtp_num_hidden_layers"); v != nil && fmt.Sprint(v) != "1" {
		return contract.Errorf(contract.UnsupportedModel, own.Name()+": mtp_num_hidden_layers", "a head of %v layers is not run, but of 1", v)
	}
	return nil
}

// numeric makes numbers that are equal equal.
func numeric(v any) any {
	if n, ok := v.(int64); ok {
		return float64(n)
	}
	return v
}

// textField is a field of the text config, or of a config that has none.
func textField(c artifact.Config, name string) any {
	if v, ok := c.Lookup("text_config." + name); ok {
		return v
	}
	v, _ := c.Lookup(name)
	return v
}

// mtpPrefix begins the graph's names of a head's tensors.
const (
	mtpPrefix = "mtp."
	mtpLayer  = mtpPrefix + "layers.0."
	fcName    = mtpPrefix + "fc.weight"
)

// mtpName is the graph's name of a stored tensor; "" for what is not the head's. mlx-vlm drops the prefix where the head has a file of
// its own.
func mtpName(stored, kind string) string {
	name := strings.TrimPrefix(stored, "language_model.")
	switch {
	case strings.HasPrefix(name, mtpPrefix):
		return expertName(name)
	case kind == besideMTP:
		return expertName(mtpPrefix + stored)
	}
	return ""
}

// layoutOfMTP looks how a head lies in its file. A head in a file of its own has norms less 1 iff its names begin with "mtp.", as in
// mlx-vlm 0.7.10. Of one that is bundled, the model's convolutions and the file's metadata say the same: mlx-vlm believes the latter
// alone, so a file in which they differ, or whose converted model has no metadata of MLX's, would be read in two ways.
func (c Config) layoutOfMTP(target, head *artifact.Artifact, kind string) (layout, error) {
	l := layout{norms: map[string]mlx.DType{}}
	first, hfNames := "", false
	for _, t := range head.Tensors() {
		name := mtpName(t.Name, kind)
		if name == "" {
			continue
		}
		first, hfNames = cmp.Or(first, t.Name), hfNames || strings.HasPrefix(t.Name, mtpPrefix)
		if len(t.Shape) == 1 && isShiftedMTP(name) {
			l.norms[name] = storedAs(t.DType)
		}
		l.experts = max(l.experts, expertsOf(name))
	}
	switch l.shifted = hfNames; {
	case first == "":
		return l, contract.Errorf(contract.InvalidArgument, "draft", "%s has no MTP head: none of its tensors is named %s", filepath.Base(head.Path), mtpPrefix+"*").
			WithNext("name a head's folder with --draft, or use --draft ngram")
	case kind == besideMTP || !hfNames:
		return l, nil
	}
	l.shifted = c.layoutOf(target).shifted
	if format := head.Metadata()["format"]; l.shifted == (format == "mlx") {
		return l, contract.Errorf(contract.UnsupportedModel, filepath.Base(head.Path)+": "+first,
			"the head's norms may be stored less 1 or not: the model's convolutions are in %s, the file's format is %q", l.of(), format).
			WithNext("convert the model again with mlx-vlm, or split the head off")
	}
	return l, nil
}

// of names the layout.
func (l layout) of() string {
	if l.shifted {
		return "Hugging Face's layout"
	}
	return "MLX's layout"
}

// isShiftedMTP tells the norms of a head that Hugging Face stores less 1: all.
func isShiftedMTP(name string) bool {
	return isShifted(name) || name == mtpPrefix+"norm.weight" || strings.HasPrefix(name, mtpPrefix+"pre_fc_norm_")
}

// mtpParams lists every parameter of a head.
func (c Config) mtpParams(l layout) []weights.Param {
	p := paramList{config: c, layout: l}
	p.matrix(strings.TrimSuffix(fcName, ".weight"), c.HiddenSize, 2*c.HiddenSize)
	p.vector(mtpPrefix+"pre_fc_norm_embedding.weight", c.HiddenSize)
	p.vector(mtpPrefix+"pre_fc_norm_hidden.weight", c.HiddenSize)
	p.attention(mtpLayer)
	p.block(mtpLayer)
	p.vector(mtpPrefix+"norm.weight", c.HiddenSize)
	return p.out
}

// mtpTokenBytes counts what one token holds in a head: that of a layer that attends, the joined norms before it, and its share of the
// states that wait for a step (a step is of two tokens at least).
func (c Config) mtpTokenBytes(context int, dtype mlx.DType, packed bool) int64 {
	c.Delta = kv.DeltaShape{}
	return c.tokenBytes(context, dtype, packed) + int64(4+waitingTokens/2)*int64(c.HiddenSize)*int64(dtype.Size())
}
