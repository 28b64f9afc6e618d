package family

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// Match is the outcome of a record's clauses over a config.
type Match struct {
	OK bool
	// Type is true when there are clauses about model_type and all of them held, so that a failure is a near miss.
	Type bool
	// Failed are the clauses that did not hold, in words: "minicpm5 wants hidden_size 1536, this has 1537".
	Failed []string
}

// Remap is the type the family reads modelType as.
func (r *Record) Remap(modelType string) string {
	if to, ok := r.Remaps[modelType]; ok {
		return to
	}
	return modelType
}

// Match tests the accepts clauses.
func (r *Record) Match(cfg artifact.Config) Match {
	v, _ := r.view(cfg, artifact.Config{})
	m := Match{OK: true}
	wrongType := false
	for i := range r.Accepts {
		c := &r.Accepts[i]
		m.Type = m.Type || c.Path == modelTypeKey
		if c.holds(v) {
			continue
		}
		m.OK = false
		wrongType = wrongType || c.Path == modelTypeKey
		m.Failed = append(m.Failed, r.Graph+" wants "+c.words(v))
	}
	m.Type = m.Type && !wrongType
	return m
}

// MatchType tests accepts_type over a bare type.
func (r *Record) MatchType(modelType string) bool {
	if len(r.AcceptsType) == 0 {
		return false
	}
	v := view{canon: artifact.NewConfig("", map[string]any{modelTypeKey: r.Remap(modelType)})}
	for i := range r.AcceptsType {
		if !r.AcceptsType[i].holds(v) {
			return false
		}
	}
	return true
}

// modelTypeKey is the key that names an architecture.
const modelTypeKey = "model_type"

// Check tests the requires clauses of a config that matched: the model is of this family, and broken or a variant that
// the family does not run.
func (r *Record) Check(cfg artifact.Config) error {
	v, _ := r.view(cfg, artifact.Config{})
	return r.require(r.Requires, v)
}

func (r *Record) require(list []Require, v view) error {
	for i := range list {
		q := &list[i]
		if q.When != "" && v.at(q.When) == nil || q.holds(v) {
			continue
		}
		kind := contract.ArtifactCorrupt
		if q.Kind == "unsupported-model" {
			kind = contract.UnsupportedModel
		}
		return contract.Errorf(kind, v.raw.Name()+": "+q.Path, "%s (%s wants %s)", q.Message, r.Graph, q.words(v))
	}
	return nil
}

// Parsed is a config read through a record's dialect.
type Parsed struct {
	artifact.Config
	Record *Record
	// KV is the artifact's kv_config.json; nil when it has none.
	KV []artifact.KVLayer
	// VisionSidecar is true when a vision tower lies in a file of its own.
	VisionSidecar bool
}

// JSON is the canonical config, keys sorted.
func (p Parsed) JSON() string {
	text, err := p.MarshalJSON()
	if err != nil {
		// A Config holds only what JSON can write.
		return "{}"
	}
	return string(text)
}

// Parse reads the artifact's config, generation config and kv_config.json.
func (r *Record) Parse(a *artifact.Artifact) (Parsed, error) {
	p, err := r.ParseConfig(a.Config(), a.GenerationConfig())
	if err != nil {
		return Parsed{}, err
	}
	p.VisionSidecar = a.VisionSidecar()
	p.KV, err = a.KVConfig()
	return p, err
}

// ParseConfig reads a config and a generation config, which may be empty. A value that a rule or a requirement cannot
// take is ArtifactCorrupt naming file and field.
func (r *Record) ParseConfig(cfg, generation artifact.Config) (Parsed, error) {
	v, err := r.view(cfg, generation)
	if err != nil {
		return Parsed{}, err
	}
	if err := r.require(r.Requires, v); err != nil {
		return Parsed{}, err
	}
	for _, part := range slices.Backward(r.parts(cfg)) {
		if err := r.require(part.Require, v); err != nil {
			return Parsed{}, err
		}
	}
	return Parsed{Config: v.canon, Record: r}, nil
}

// view applies the dialect. After an error it still holds what could be read, for the clauses.
func (r *Record) view(cfg, generation artifact.Config) (view, error) {
	tree := map[string]any{}
	v := view{raw: cfg, generation: generation, canon: artifact.NewConfig(cfg.Name(), tree)}
	maps.Copy(tree, r.Config.source(cfg).Map())
	delete(tree, modelTypeKey)
	if t, ok := cfg.Lookup(modelTypeKey); ok {
		if s, isText := t.(string); isText {
			t = r.Remap(s)
		}
		tree[modelTypeKey] = t
	}
	parts := r.parts(cfg)
	for _, part := range parts {
		rename(tree, part.Rename)
	}
	for _, part := range parts {
		for key, d := range part.Defaults {
			if tree[key] == nil {
				tree[key] = d
			}
		}
	}
	var first error
	for _, part := range parts {
		for i := range part.Derive {
			rule := &part.Derive[i]
			got, err := rules[rule.Rule].apply(rule, v)
			switch {
			case err != nil && first == nil:
				first = r.broken(cfg, err)
			case err == nil && got != nil:
				tree[rule.To] = got
			}
		}
	}
	return v, first
}

// rename moves keys; one that is there under both names has the old one's value.
func rename(tree map[string]any, names map[string]string) {
	for _, from := range slices.Sorted(maps.Keys(names)) {
		if got, ok := tree[from]; ok {
			delete(tree, from)
			tree[names[from]] = got
		}
	}
}

func (r *Record) broken(cfg artifact.Config, err error) error {
	var field *fieldError
	if errors.As(err, &field) {
		return contract.Errorf(contract.ArtifactCorrupt, cfg.Name()+": "+field.path, "%s", field.why)
	}
	return contract.Errorf(contract.ArtifactCorrupt, cfg.Name(), "%w", err)
}

func (d *Dialect) source(cfg artifact.Config) artifact.Config {
	for _, from := range d.From {
		if from == "$" {
			return cfg
		}
		if sub, ok := cfg.Sub(from); ok {
			return sub
		}
	}
	return artifact.Config{}
}

// LoadProfile is the family profile for one artifact format.
type LoadProfile struct {
	ID             string
	Loader         string
	Loop           Loop
	Graph          string
	Fidelity       Fidelity
	Specialization Specialization
	Capabilities   []string
}

// ProfileFor is the profile that opens an artifact of the given format: the record's own id for its first loader,
// id-loader for the others. GGUF is measured, whatever the record's oracle. A format that the record does not list is
// UnsupportedModelLoad.
func (r *Record) ProfileFor(format artifact.Format) (LoadProfile, error) {
	i := slices.Index(r.Loaders, string(format))
	if i < 0 {
		return LoadProfile{}, contract.Errorf(contract.UnsupportedModelLoad, r.Profile,
			"%s opens %s, not %s", r.Graph, show(anys(r.Loaders)), format)
	}
	p := LoadProfile{
		ID: r.Profile, Loader: r.Loaders[i], Loop: r.Loop, Graph: r.Graph, Fidelity: r.Fidelity,
		Specialization: r.Specialization, Capabilities: r.requiredCapabilities(r.Loaders[i]),
	}
	if i > 0 {
		p.ID = fmt.Sprintf("%s-%s", r.Profile, p.Loader)
	}
	if format == artifact.GGUF {
		p.Fidelity = L3Measured
	}
	return p, nil
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// loaderCapability is what the engine must have to open a format.
var loaderCapability = map[string]string{"safetensors": "safetensors", "gguf": "gguf", "colibri": "colibri-container"}

func (r *Record) requiredCapabilities(loader string) []string {
	out := append([]string{loaderCapability[loader], string(r.Loop)}, r.Capabilities...)
	slices.Sort(out)
	return slices.Compact(out)
}
