package lora

import (
	"math"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// MaxRank is far above what anybody trains.
const MaxRank = 1024

// Format is who wrote an adapter.
type Format string

// The formats.
const (
	MLX  Format = "mlx-lm"
	PEFT Format = "peft"
)

// maxScale is far beyond what leaves a model sensible: below it float32 holds the scale, and its product with a change.
const maxScale = 1e6

// Settings are what an adapter_config.json says of its tensors.
type Settings struct {
	Format Format
	// Rank of modules that Ranks does not name; Scale follows from it, and from Alphas.
	Rank int

	scale   float64 // of mlx-lm
	alpha   float64 // of PEFT
	rooted  bool    // alpha is divided by the root of the rank
	ranks   map[string]float64
	alphas  map[string]float64
	targets []string // modules that may be adapted; empty: any
}

// ParseSettings reads the config of an adapter.
func ParseSettings(c artifact.Config) (Settings, error) {
	r := reader{config: c}
	var out Settings
	if _, ok := c.Map()["peft_type"]; ok {
		out = r.peft()
	} else {
		out = r.mlx()
	}
	return out, r.err
}

// scaleOf is what the product of a module of some rank is multiplied by.
func (s Settings) scaleOf(path string, rank int) float64 {
	if s.Format == MLX {
		return s.scale
	}
	alpha := s.alpha
	if v, ok := matching(s.alphas, path); ok {
		alpha = v
	}
	if s.rooted {
		return alpha / math.Sqrt(float64(rank))
	}
	return alpha / float64(rank)
}

// scaledBy is the config's field that a module's scale follows from.
func (s Settings) scaledBy(path string) string {
	if s.Format == MLX {
		return mlxParameters + ".scale"
	}
	if _, ok := matching(s.alphas, path); ok {
		return "alpha_pattern"
	}
	return "lora_alpha"
}

func (s Settings) rankOf(path string) int {
	if v, ok := matching(s.ranks, path); ok {
		return int(v)
	}
	return s.Rank
}

// adapts reports whether the config means the module.
func (s Settings) adapts(path string) bool {
	return len(s.targets) == 0 || slices.ContainsFunc(s.targets, func(t string) bool { return endsIn(path, t) })
}

// endsIn reports whether path is name, or ends in it behind a dot.
func endsIn(path, name string) bool { return path == name || strings.HasSuffix(path, "."+name) }

// matching is the entry whose key is the longest end of path.
func matching(entries map[string]float64, path string) (value float64, ok bool) {
	longest := ""
	for key, v := range entries {
		if endsIn(path, key) && (!ok || len(key) > len(longest)) {
			longest, value, ok = key, v, true
		}
	}
	return value, ok
}

// reader keeps the first error.
type reader struct {
	config artifact.Config
	err    error
}

func (r *reader) fail(kind contract.Kind, path, format string, args ...any) {
	if r.err == nil {
		r.err = contract.Errorf(kind, r.config.Name()+": "+path, format, args...)
	}
}

func (r *reader) keep(err error) {
	if r.err == nil && err != nil {
		r.err = err
	}
}

func (r *reader) rank(path string) int {
	v, _, err := r.config.Int(path)
	r.keep(err)
	if v < 1 || v > MaxRank {
		r.fail(contract.ArtifactCorrupt, path, "%d is no rank from 1 to %d", v, MaxRank)
		return 1
	}
	return int(v)
}

func (r *reader) number(path string) float64 {
	v, ok, err := r.config.Float(path)
	r.keep(err)
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		r.fail(contract.ArtifactCorrupt, path, "must be a number")
	}
	return v
}

func (r *reader) strings(path string) []string {
	v, _, err := r.config.Strings(path)
	r.keep(err)
	return v
}

// mlxParameters is the object in which mlx_lm.lora says a change's rank, scale and modules.
const mlxParameters = "lora_parameters"

// mlx reads what mlx_lm.lora writes.
func (r *reader) mlx() Settings {
	kind, given, err := r.config.String("fine_tune_type")
	r.keep(err)
	if given && kind != "lora" {
		r.fail(contract.UnsupportedOption, "fine_tune_type", "%q is no low-rank adapter that is run: only lora is", kind)
	}
	if _, ok := r.config.Lookup(mlxParameters); !ok {
		r.fail(contract.ArtifactCorrupt, mlxParameters, "is missing, and so is peft_type: it is an adapter of neither mlx-lm nor PEFT")
	}
	return Settings{
		Format: MLX, Rank: r.rank(mlxParameters + ".rank"), scale: r.number(mlxParameters + ".scale"), targets: r.strings(mlxParameters + ".keys"),
	}
}

// changedBase are initial values by which PEFT changes the base model too.
var changedBase = []string{"pissa", "olora", "loftq", "corda", "lora_ga"}

// peft reads what PEFT writes of a LoraConfig.
func (r *reader) peft() Settings {
	if kind, _, err := r.config.String("peft_type"); err != nil || kind != "LORA" {
		r.keep(err)
		r.fail(contract.UnsupportedOption, "peft_type", "%q is not run: only LORA is", kind)
	}
	for _, flag := range []string{"use_dora", "lora_bias", "fan_in_fan_out", "use_qalora", "use_bdlora"} {
		v, _ := r.config.Lookup(flag)
		if on, isFlag := v.(bool); v != nil && (!isFlag || on) {
			r.fail(contract.UnsupportedOption, flag, "is not run")
		}
	}
	if bias, given, err := r.config.String("bias"); err != nil || given && bias != "none" {
		r.keep(err)
		r.fail(contract.UnsupportedOption, "bias", "%q: adapters that change biases are not run", bias)
	}
	for _, list := range []string{
		"modules_to_save", "layer_replication", "target_parameters", "alora_invocation_tokens", "trainable_token_indices", "arrow_config",
	} {
		if v, _ := r.config.Lookup(list); !empty(v) {
			r.fail(contract.UnsupportedOption, list, "is not run")
		}
	}
	v, _ := r.config.Lookup("init_lora_weights")
	if how, ok := v.(string); ok && slices.ContainsFunc(changedBase, func(c string) bool { return strings.HasPrefix(strings.ToLower(how), c) }) {
		r.fail(contract.UnsupportedOption, "init_lora_weights", "%q changes the base model's weights too", how)
	}
	rooted, _, err := r.config.Bool("use_rslora")
	r.keep(err)
	out := Settings{
		Format: PEFT, Rank: r.rank("r"), alpha: r.number("lora_alpha"), rooted: rooted,
		ranks: r.pattern("rank_pattern"), alphas: r.pattern("alpha_pattern"),
	}
	for path, rank := range out.ranks {
		if rank != math.Trunc(rank) || rank < 1 || rank > MaxRank {
			r.fail(contract.ArtifactCorrupt, "rank_pattern", "%g of %q is no rank from 1 to %d", rank, path, MaxRank)
		}
	}
	if v, _ := r.config.Lookup("target_modules"); v != nil {
		if _, expression := v.(string); !expression { // an expression over module names says nothing that the tensors do not
			out.targets = r.strings("target_modules")
		}
	}
	return out
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	case bool:
		return !v
	}
	return false
}

// pattern reads numbers by ends of module names. PEFT takes the keys for expressions; those that are more than a name are refused.
func (r *reader) pattern(path string) map[string]float64 {
	v, _ := r.config.Lookup(path)
	entries, isObject := v.(map[string]any)
	if v != nil && !isObject {
		r.fail(contract.ArtifactCorrupt, path, "is not an object")
	}
	out := map[string]float64{}
	for key, v := range entries {
		if key == "" || strings.ContainsAny(key, `\^$*+?()[]{}|`) {
			r.fail(contract.UnsupportedOption, path, "%q is an expression, and only names are read", key)
		}
		switch v := v.(type) {
		case int64:
			out[key] = float64(v)
		case float64:
			out[key] = v
		}
		if n, ok := out[key]; !ok || math.IsNaN(n) || math.IsInf(n, 0) {
			r.fail(contract.ArtifactCorrupt, path, "%q has no number", key)
		}
	}
	return out
}
