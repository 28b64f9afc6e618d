package family

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

var (
	pluginName    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	graphName     = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9._-]*)?$`)
	fingerprintRE = regexp.MustCompile(`^[0-9a-f]{16}$`)
	versionRE     = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
)

// loaders a record may list.
var loaderNames = []string{"safetensors", "gguf", "colibri"}

func (m *Manifest) check() error {
	switch {
	case m.Schema != Schema:
		return fmt.Errorf("schema %d, this version reads %d", m.Schema, Schema)
	case !pluginName.MatchString(m.Name):
		return fmt.Errorf("name %q: want lower-case letters, digits and dashes", m.Name)
	case !versionRE.MatchString(m.Version):
		return fmt.Errorf("version %q: want a semantic version", m.Version)
	case len(m.Contract) == 0:
		return fmt.Errorf("contract: at least one version is needed")
	case len(m.Families)+len(m.Implementations)+len(m.Profiles) == 0:
		return fmt.Errorf("families: at least one record is needed, or a profile or an implementation")
	}
	seen := map[string]bool{}
	for i, r := range m.Families {
		if r == nil {
			return fmt.Errorf("families[%d]: is empty", i)
		}
		if err := r.check(); err != nil {
			return fmt.Errorf("family %q: %w", r.Graph, err)
		}
		if seen[r.Graph] {
			return fmt.Errorf("family %q: declared twice", r.Graph)
		}
		seen[r.Graph] = true
	}
	if err := m.checkLists(); err != nil {
		return err
	}
	if _, err := json.Marshal(m); err != nil {
		return fmt.Errorf("holds a value that JSON cannot write: %w", err)
	}
	return nil
}

func oneOf[T ~string](field string, v T, allowed ...T) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	return fmt.Errorf("%s %q: want one of %s", field, v, strings.Join(words, ", "))
}

func (r *Record) check() error {
	for _, err := range []error{
		oneOf("tier", r.Tier, Targeted, Generic),
		oneOf("status", r.Status, Available, Announced),
		oneOf("loop", r.Loop, Autoregressive, Diffusion, EncoderDecoder),
		oneOf("fidelity", r.Fidelity, L1MLXLM, L1MLXWhisper, L2MLXOptiQ, L3Measured),
		oneOf("specialization", r.Specialization, Dedicated, GenericUse),
		oneOf("text", r.Text, "", HostText, PluginText),
		oneOf("cache", r.Cache, "", AttentionCache, NoCache),
		oneOf("fingerprint", r.Fingerprint, FingerprintConfig, FingerprintFields, FingerprintPlugin),
		r.checkNames(),
		r.checkLists(),
		r.Generation.check(),
	} {
		if err != nil {
			return err
		}
	}
	return r.Config.check()
}

func (r *Record) checkNames() error {
	switch {
	case !graphName.MatchString(r.Graph):
		return fmt.Errorf("graph: want lower-case letters, digits, dots and dashes, or example.org/name")
	case r.Label == "":
		return fmt.Errorf("label: is empty")
	case r.Profile == "":
		return fmt.Errorf("profile: is empty")
	case (r.Status == Announced) != (r.Since != ""):
		return fmt.Errorf("since: an announced family names the version that brings it, an available one does not")
	case r.Since != "" && !versionRE.MatchString(r.Since):
		return fmt.Errorf("since %q: want a semantic version", r.Since)
	case (r.Fingerprint == FingerprintFields) != (len(r.FingerprintFields) > 0):
		return fmt.Errorf("fingerprint_fields: belong to fingerprint fields, and only to it")
	case r.MoE != nil && (r.MoE.Experts == "" || r.MoE.TopK == ""):
		return fmt.Errorf("moe: needs experts and top_k")
	case r.Embedding != nil && r.Embedding.Terminator == "":
		return fmt.Errorf("embedding: needs a terminator")
	case r.Embedding != nil && r.Embedding.MinDimensions < 0:
		return fmt.Errorf("embedding.min_dimensions: is negative")
	case r.Embedding != nil && r.Embedding.Instruction != "" && !both(r.Embedding.Instruction, "{instruction}", "{text}"):
		return fmt.Errorf("embedding.instruction: wants {instruction} and {text}, once each")
	case r.Transcribes && r.Loop != EncoderDecoder:
		return fmt.Errorf("transcribes: only an encoder-decoder transcribes")
	}
	return nil
}

// both reports whether a and b stand in text, once each.
func both(text, a, b string) bool { return strings.Count(text, a) == 1 && strings.Count(text, b) == 1 }

// check holds sampling defaults to what a request could ask for.
func (g Generation) check() error {
	for _, f := range []struct {
		name      string
		value     *float64
		low, high float64
		open      bool // low itself is out
	}{
		{"no_think_temperature_cap", g.NoThinkTemperatureCap, 0, math.Inf(1), false},
		{"temperature", g.Temperature, 0, 100, false},
		{"top_p", g.TopP, 0, 1, true},
		{"min_p", g.MinP, 0, 1, false},
		{"repetition_penalty", g.RepetitionPenalty, 0, 100, true},
	} {
		if v := f.value; v != nil && (math.IsNaN(*v) || *v < f.low || *v > f.high || f.open && *v == f.low) {
			return fmt.Errorf("generation.%s: %g is out of range", f.name, *v)
		}
	}
	return nil
}

func (r *Record) checkLists() error {
	switch {
	case len(r.ModelTypes) == 0:
		return fmt.Errorf("model_types: at least one is needed")
	case len(r.Accepts) == 0:
		return fmt.Errorf("accepts: a family without clauses would take everything")
	case len(r.Loaders) == 0:
		return fmt.Errorf("loaders: at least one is needed")
	case len(r.Capabilities) == 0:
		return fmt.Errorf("capabilities: at least one is needed")
	}
	for i, l := range r.Loaders {
		if err := oneOf("loaders", l, loaderNames...); err != nil {
			return err
		}
		if slices.Contains(r.Loaders[:i], l) {
			return fmt.Errorf("loaders: %s is listed twice", l)
		}
	}
	for field, list := range map[string][]Clause{"accepts": r.Accepts, "accepts_type": r.AcceptsType} {
		for i := range list {
			if err := list[i].check(); err != nil {
				return fmt.Errorf("%s[%d]: %w", field, i, err)
			}
		}
	}
	for i, k := range r.GraphKeys {
		if !fingerprintRE.MatchString(k.Fingerprint) || k.Model == "" {
			return fmt.Errorf("graph_keys[%d]: needs a fingerprint of %d hex digits and a model", i, fingerprintDigits)
		}
	}
	if r.Composition.KV != "" {
		if _, err := ParseKV(r.Composition.KV); err != nil {
			return fmt.Errorf("composition.kv: %w", err)
		}
	}
	for i := range r.Requires {
		if err := r.Requires[i].check(); err != nil {
			return fmt.Errorf("requires[%d]: %w", i, err)
		}
	}
	return nil
}
