package family

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Schema is the version of the record schema that this package reads.
const Schema = 1

// manifestLimit bounds a plugin.yaml in bytes.
const manifestLimit = 1 << 20

// JSONSchema is plugin.schema.json (JSON Schema 2020-12) of plugin.yaml.
//
//go:embed plugin.schema.json
var JSONSchema []byte

// Manifest is a plugin.yaml.
type Manifest struct {
	Schema int `yaml:"schema" json:"schema"`
	// Name is the plugin's: the folder, and clade-<name> the executable.
	Name    string `yaml:"name" json:"name"`
	Version string `yaml:"version" json:"version"`
	Title   string `yaml:"title,omitempty" json:"title,omitempty"`
	Licence string `yaml:"licence,omitempty" json:"licence,omitempty"`
	// Contract lists the contract majors the plugin speaks.
	Contract []uint32 `yaml:"contract" json:"contract"`
	// Runtime lists the MLX versions the plugin works with.
	Runtime  Runtime   `yaml:"runtime,omitempty" json:"runtime,omitzero"`
	Families []*Record `yaml:"families,omitempty" json:"families,omitempty"`
	// Profiles are of exact artifacts; Implementations are graphs for other families' graph ids, or for one artifact.
	Profiles        []Profile        `yaml:"profiles,omitempty" json:"profiles,omitempty"`
	Implementations []Implementation `yaml:"implementations,omitempty" json:"implementations,omitempty"`
}

// Runtime names runtime versions.
type Runtime struct {
	MLX  []string `yaml:"mlx,omitempty" json:"mlx,omitempty"`
	MLXC []string `yaml:"mlxc,omitempty" json:"mlxc,omitempty"`
}

// Record is one family.
type Record struct {
	// Graph is the family's graph id; a third-party id holds a slash (example.org/x).
	Graph string `yaml:"graph" json:"graph"`
	// Label is the spelling in lists of what is supported (gemma4*, MiniCPM5).
	Label string `yaml:"label" json:"label"`
	Tier  Tier   `yaml:"tier" json:"tier"`
	// Order ranks first-party targeted families; ties and third-party families go by graph id.
	Order  int    `yaml:"order,omitempty" json:"order,omitempty"`
	Status Status `yaml:"status" json:"status"`
	// Since is the version that brings an announced family.
	Since string `yaml:"since,omitempty" json:"since,omitempty"`

	// ModelTypes are the types as the records' readers know them, after Remaps.
	ModelTypes []string          `yaml:"model_types" json:"model_types"`
	Remaps     map[string]string `yaml:"remaps,omitempty" json:"remaps,omitempty"`
	// Accepts must all hold for a config; AcceptsType for a bare type. An empty AcceptsType never holds: the family
	// needs more than the type.
	Accepts     []Clause  `yaml:"accepts" json:"accepts"`
	AcceptsType []Clause  `yaml:"accepts_type,omitempty" json:"accepts_type,omitempty"`
	Requires    []Require `yaml:"requires,omitempty" json:"requires,omitempty"`
	Config      Dialect   `yaml:"config" json:"config"`

	Loaders        []string       `yaml:"loaders" json:"loaders"`
	Loop           Loop           `yaml:"loop" json:"loop"`
	Fidelity       Fidelity       `yaml:"fidelity" json:"fidelity"`
	Specialization Specialization `yaml:"specialization" json:"specialization"`
	// Profile is the id of the profile for the first loader; the others append "-" and the loader.
	Profile      string   `yaml:"profile" json:"profile"`
	Capabilities []string `yaml:"capabilities" json:"capabilities"`
	// Text says who turns text into ids: host, or plugin when the plugin serves Tokenize itself.
	Text        TextOwner   `yaml:"text,omitempty" json:"text,omitempty"`
	Transcribes bool        `yaml:"transcribes,omitempty" json:"transcribes,omitempty"`
	Cache       CacheKind   `yaml:"cache,omitempty" json:"cache,omitempty"`
	MoE         *MoE        `yaml:"moe,omitempty" json:"moe,omitempty"`
	Training    Training    `yaml:"training,omitempty" json:"training,omitzero"`
	Embedding   *Embedding  `yaml:"embedding,omitempty" json:"embedding,omitempty"`
	Sentinels   *Sentinels  `yaml:"sentinels,omitempty" json:"sentinels,omitempty"`
	Media       *Media      `yaml:"media,omitempty" json:"media,omitempty"`
	Generation  Generation  `yaml:"generation,omitempty" json:"generation,omitzero"`
	Template    string      `yaml:"chat_template,omitempty" json:"chat_template,omitempty"`
	Composition Composition `yaml:"composition,omitempty" json:"composition,omitzero"`
	// MTPTensors begins the names of a bundled multi-token-prediction head's tensors, which the graph drafts with (checkpoint-mtp).
	MTPTensors string `yaml:"mtp_tensors,omitempty" json:"mtp_tensors,omitempty"`
	// Paging says that the graph can keep its full-attention caches in pages.
	Paging      bool        `yaml:"paging,omitempty" json:"paging,omitempty"`
	Fingerprint Fingerprint `yaml:"fingerprint" json:"fingerprint"`
	// FingerprintFields are the canonical keys hashed when Fingerprint is fields.
	FingerprintFields []string `yaml:"fingerprint_fields,omitempty" json:"fingerprint_fields,omitempty"`
	// GraphKeys are known fingerprints of this family's graph tables.
	GraphKeys []GraphKey `yaml:"graph_keys,omitempty" json:"graph_keys,omitempty"`
}

// Tier says whether a family was written for its models or takes whatever its table covers.
type Tier string

// The tiers.
const (
	Targeted Tier = "targeted"
	Generic  Tier = "generic"
)

// Status says whether this version of the plugin runs the family.
type Status string

// The states.
const (
	Available Status = "available"
	Announced Status = "announced"
)

// Loop is how a family generates.
type Loop string

// The loops.
const (
	Autoregressive Loop = "autoregressive"
	Diffusion      Loop = "diffusion"
	EncoderDecoder Loop = "encoder-decoder"
)

// Fidelity is the oracle a family is held to.
type Fidelity string

// The fidelities.
const (
	L1MLXLM      Fidelity = "l1-mlx-lm"
	L1MLXWhisper Fidelity = "l1-mlx-whisper"
	L2MLXOptiQ   Fidelity = "l2-mlx-optiq"
	L3Measured   Fidelity = "l3-measured"
)

// Specialization of a record; "artifact" belongs to exact profiles alone.
type Specialization string

// The specializations of a record.
const (
	Dedicated  Specialization = "dedicated"
	GenericUse Specialization = "generic"
)

// TextOwner says who owns text.
type TextOwner string

// The owners; empty is the host.
const (
	HostText   TextOwner = "host"
	PluginText TextOwner = "plugin"
)

// CacheKind says what grows with the context; empty is attention.
type CacheKind string

// The cache kinds.
const (
	AttentionCache CacheKind = "attention"
	NoCache        CacheKind = "none"
)

// Fingerprint says how a graph identifies the configs it was written for.
type Fingerprint string

// The fingerprint modes.
const (
	FingerprintConfig Fingerprint = "config"
	FingerprintFields Fingerprint = "fields"
	FingerprintPlugin Fingerprint = "plugin"
)

// MoE names the canonical keys of a mixture; when names a boolean that must be true, empty for always.
type MoE struct {
	When    string `yaml:"when,omitempty" json:"when,omitempty"`
	Experts string `yaml:"experts" json:"experts"`
	TopK    string `yaml:"top_k" json:"top_k"`
}

// Training defaults, in tokens.
type Training struct {
	Context int `yaml:"context,omitempty" json:"context,omitempty"`
}

// Embedding is declared exactly when the graph gives embeddings.
type Embedding struct {
	// Terminator ends every text; the tokenizer holds it as one token.
	Terminator string `yaml:"terminator" json:"terminator"`
	// Instruction is how a task is put before a text, with {instruction} and {text}; "": not at all.
	Instruction string `yaml:"instruction,omitempty" json:"instruction,omitempty"`
	// MinDimensions is the least width that embeddings may be cut to, as models trained for it allow; 0: none.
	MinDimensions int `yaml:"min_dimensions,omitempty" json:"min_dimensions,omitempty"`
}

// Sentinels are marker texts that the tokenizer holds as one token each.
type Sentinels struct {
	ToolCall  *Pair `yaml:"tool_call,omitempty" json:"tool_call,omitempty"`
	Reasoning *Pair `yaml:"reasoning,omitempty" json:"reasoning,omitempty"`
}

// Pair opens and closes.
type Pair struct {
	Open  string `yaml:"open" json:"open"`
	Close string `yaml:"close" json:"close"`
}

// Media are placeholder texts and the config keys whose ids win over them.
type Media struct {
	Image *MediaTokens `yaml:"image,omitempty" json:"image,omitempty"`
	Audio *MediaTokens `yaml:"audio,omitempty" json:"audio,omitempty"`
}

// MediaTokens of one kind. When names a config object that must be there.
type MediaTokens struct {
	When     string `yaml:"when,omitempty" json:"when,omitempty"`
	Soft     string `yaml:"soft" json:"soft"`
	Begin    string `yaml:"begin" json:"begin"`
	End      string `yaml:"end" json:"end"`
	SoftKey  string `yaml:"soft_key,omitempty" json:"soft_key,omitempty"`
	BeginKey string `yaml:"begin_key,omitempty" json:"begin_key,omitempty"`
	EndKey   string `yaml:"end_key,omitempty" json:"end_key,omitempty"`
}

// Generation defaults. An unset EnableThinking leaves it to the template.
type Generation struct {
	EnableThinking        *bool    `yaml:"enable_thinking,omitempty" json:"enable_thinking,omitempty"`
	NoThinkTemperatureCap *float64 `yaml:"no_think_temperature_cap,omitempty" json:"no_think_temperature_cap,omitempty"`
	// What a request samples with where neither it, the server nor the model's files say.
	Temperature       *float64 `yaml:"temperature,omitempty" json:"temperature,omitempty"`
	TopP              *float64 `yaml:"top_p,omitempty" json:"top_p,omitempty"`
	TopK              *uint32  `yaml:"top_k,omitempty" json:"top_k,omitempty"`
	MinP              *float64 `yaml:"min_p,omitempty" json:"min_p,omitempty"`
	RepetitionPenalty *float64 `yaml:"repetition_penalty,omitempty" json:"repetition_penalty,omitempty"`
}

// Composition defaults that differ from the host's own.
type Composition struct {
	KV            string `yaml:"kv,omitempty" json:"kv,omitempty"`
	Rows          int    `yaml:"rows,omitempty" json:"rows,omitempty"`
	Context       int    `yaml:"context,omitempty" json:"context,omitempty"`
	MaxGeneration int    `yaml:"max_generation,omitempty" json:"max_generation,omitempty"`
}

// Defaults of what a record leaves unset.
const (
	DefaultTrainingContext       = 4096
	DefaultNoThinkTemperatureCap = 0.7
)

// TrainingContext is the record's, or the default.
func (r *Record) TrainingContext() int {
	if r.Training.Context > 0 {
		return r.Training.Context
	}
	return DefaultTrainingContext
}

// NoThinkTemperatureCap bounds the configured temperature when thinking is off.
func (r *Record) NoThinkTemperatureCap() float64 {
	if c := r.Generation.NoThinkTemperatureCap; c != nil {
		return *c
	}
	return DefaultNoThinkTemperatureCap
}

// ParseManifest reads a plugin.yaml, or its JSON form, and checks everything that can be checked without a model.
func ParseManifest(data []byte) (*Manifest, error) {
	if len(data) > manifestLimit {
		return nil, fmt.Errorf("plugin.yaml: %d bytes, the limit is %d", len(data), manifestLimit)
	}
	m := &Manifest{}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(m); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("is empty")
		}
		return nil, fmt.Errorf("plugin.yaml: %w", err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("plugin.yaml: holds more than one document")
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("plugin.yaml: %w", err)
	}
	return m, nil
}

// JSON is the canonical form: keys in the order of the schema, no spaces. Equal manifests give equal text.
func (m *Manifest) JSON() string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		// check refused every value that JSON cannot write.
		return "{}"
	}
	return string(bytes.TrimSpace(out.Bytes()))
}
