// Package generate is the settings of one generation: who may set them, in which order they win, what goes to the plugin,
// and what comes back.
//
// Precedence, strongest first: the request, the server's flags, the model's generation_config.json, the family's record,
// and last the defaults here: greedy, and as many tokens as the context leaves.
//
// generation_config.json counts as its authors' own library reads it: its sampling values apply only when it says
// do_sample: true; else its default is greedy. A request that gives a temperature samples, whatever the file says. Where reasoning is
// switched off, the temperature of the files or the family is bounded by the family's cap.
//
// Invariants: a setting that the plugin does not declare is refused when a person asked for it, and reported as a note when
// only the model's files did; nothing is dropped in silence. Not for: running the generation (core/loader).
package generate

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Settings of a generation; an absent field is left to the next layer.
type Settings struct {
	MaxTokens   *uint32
	Temperature *float64
	TopP        *float64
	TopK        *uint32
	MinP        *float64
	TypicalP    *float64
	// XTCProbability is how often the likeliest tokens above XTCThreshold are left out, all but the least likely of them.
	XTCProbability, XTCThreshold *float64
	Repetition                   *Penalty
	Presence                     *Penalty
	Frequency                    *Penalty
	LogitBias                    map[int32]float64
	Seed                         *uint64
	MinTokens                    *uint32
	IgnoreEOS                    *bool
	// Stop strings, matched on decoded text and never emitted.
	Stop []string
	// Logprobs asks for the chosen token's log probability and this many alternatives.
	Logprobs *uint32
	// Constraint holds the answer to a grammar.
	Constraint *Constraint
	// Choice is the index among the choices of one request; it goes into the noise.
	Choice *uint32
	// DraftDepth is the most tokens drafted at once where the model was opened with a draft; 0 is none.
	DraftDepth *uint32
	// Adapter chooses adapters by id, joined by +, each perhaps with :scale; none is the model alone.
	Adapter *string
	// Priority orders requests that wait for the model: lower is sooner.
	Priority *int32
}

// Penalty on tokens of the last Window tokens; 0 is the whole history.
type Penalty struct {
	Value  float64
	Window uint32
}

// Or fills the absent fields of s from next.
func (s Settings) Or(next Settings) Settings {
	s.MaxTokens = or(s.MaxTokens, next.MaxTokens)
	s.Temperature = or(s.Temperature, next.Temperature)
	s.TopP = or(s.TopP, next.TopP)
	s.TopK = or(s.TopK, next.TopK)
	s.MinP = or(s.MinP, next.MinP)
	s.TypicalP = or(s.TypicalP, next.TypicalP)
	s.XTCProbability = or(s.XTCProbability, next.XTCProbability)
	s.XTCThreshold = or(s.XTCThreshold, next.XTCThreshold)
	s.Priority = or(s.Priority, next.Priority)
	s.DraftDepth = or(s.DraftDepth, next.DraftDepth)
	s.Repetition = or(s.Repetition, next.Repetition)
	s.Presence = or(s.Presence, next.Presence)
	s.Frequency = or(s.Frequency, next.Frequency)
	s.Seed = or(s.Seed, next.Seed)
	s.MinTokens = or(s.MinTokens, next.MinTokens)
	s.IgnoreEOS = or(s.IgnoreEOS, next.IgnoreEOS)
	s.Logprobs = or(s.Logprobs, next.Logprobs)
	s.Constraint = or(s.Constraint, next.Constraint)
	s.Adapter = or(s.Adapter, next.Adapter)
	s.Choice = or(s.Choice, next.Choice)
	if s.LogitBias == nil {
		s.LogitBias = next.LogitBias
	}
	if s.Stop == nil {
		s.Stop = next.Stop
	}
	return s
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// Bounds of values that no model could accept otherwise.
const (
	maxTemperature = 100
	maxStops       = 64
	// MaxTopLogprobs is the most alternatives a request may ask for, as in the OpenAI API.
	MaxTopLogprobs = 20
)

// Check refuses values that no model could accept, naming the field as the command line and the API spell it.
func (s Settings) Check() error {
	for _, f := range []struct {
		name      string
		value     *float64
		low, high float64
	}{
		{"temperature", s.Temperature, 0, maxTemperature},
		{"top_p", s.TopP, 0, 1},
		{"min_p", s.MinP, 0, 1},
		{"typical_p", s.TypicalP, 0, 1},
		{"xtc_probability", s.XTCProbability, 0, 1},
		{"xtc_threshold", s.XTCThreshold, 0, 0.5},
	} {
		if f.value != nil && (math.IsNaN(*f.value) || *f.value < f.low || *f.value > f.high) {
			return contract.Errorf(contract.InvalidArgument, f.name, "is %g; want %g to %g", *f.value, f.low, f.high)
		}
	}
	if s.TopP != nil && *s.TopP == 0 {
		return contract.Errorf(contract.InvalidArgument, "top_p", "is 0, which keeps no token; want more than 0, to 1")
	}
	if s.TypicalP != nil && *s.TypicalP == 0 {
		return contract.Errorf(contract.InvalidArgument, "typical_p", "is 0, which keeps no token; want more than 0, to 1")
	}
	for _, p := range []struct {
		name    string
		penalty *Penalty
		low     float64
	}{{"repetition_penalty", s.Repetition, 0}, {"presence_penalty", s.Presence, -100}, {"frequency_penalty", s.Frequency, -100}} {
		if p.penalty != nil && (math.IsNaN(p.penalty.Value) || p.penalty.Value < p.low || p.penalty.Value > 100 || (p.name == "repetition_penalty" && p.penalty.Value == 0)) {
			return contract.Errorf(contract.InvalidArgument, p.name, "is %g, out of range", p.penalty.Value)
		}
	}
	for id, bias := range s.LogitBias {
		if id < 0 || math.IsNaN(bias) || bias < -100 || bias > 100 {
			return contract.Errorf(contract.InvalidArgument, "logit_bias", "token %d has bias %g; want a token id and -100 to 100", id, bias)
		}
	}
	if s.MaxTokens != nil && *s.MaxTokens == 0 {
		return contract.Errorf(contract.InvalidArgument, "max_tokens", "is 0; want at least 1")
	}
	if s.Logprobs != nil && *s.Logprobs > MaxTopLogprobs {
		return contract.Errorf(contract.InvalidArgument, "top_logprobs", "is %d; want at most %d", *s.Logprobs, MaxTopLogprobs)
	}
	if len(s.Stop) > maxStops || slices.Contains(s.Stop, "") {
		return contract.Errorf(contract.InvalidArgument, "stop", "want at most %d texts, none empty", maxStops)
	}
	if s.Adapter != nil {
		if _, err := contract.ParseAdapters(*s.Adapter); err != nil {
			return contract.Errorf(contract.InvalidArgument, "lora", "%w", err)
		}
	}
	return s.Constraint.check()
}

// option is one setting as the contract spells it: its path in GenerateStart, how clients spell it, and how it is written.
type option struct {
	path  string
	field string
	set   func(s Settings) bool
	write func(s Settings, start *cladev1.GenerateStart)
	clear func(s *Settings)
}

var options = append(constraintOptions(), []option{
	{
		"sampling.temperature", "temperature", func(s Settings) bool { return s.Temperature != nil },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.Temperature = s.Temperature }, func(s *Settings) { s.Temperature = nil },
	},
	{
		"sampling.top_p", "top_p", func(s Settings) bool { return s.TopP != nil && *s.TopP < 1 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.TopP = s.TopP }, func(s *Settings) { s.TopP = nil },
	},
	{
		"sampling.top_k", "top_k", func(s Settings) bool { return s.TopK != nil && *s.TopK > 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.TopK = s.TopK }, func(s *Settings) { s.TopK = nil },
	},
	{
		"sampling.min_p", "min_p", func(s Settings) bool { return s.MinP != nil && *s.MinP > 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.MinP = s.MinP }, func(s *Settings) { s.MinP = nil },
	},
	{
		"sampling.typical_p", "typical_p", func(s Settings) bool { return s.TypicalP != nil && *s.TypicalP < 1 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.TypicalP = s.TypicalP }, func(s *Settings) { s.TypicalP = nil },
	},
	{
		"sampling.xtc_probability", "xtc_probability", func(s Settings) bool { return s.XTCProbability != nil && *s.XTCProbability > 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.XtcProbability = s.XTCProbability }, func(s *Settings) { s.XTCProbability = nil },
	},
	{
		"sampling.xtc_threshold", "xtc_threshold", func(s Settings) bool { return s.XTCThreshold != nil },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.XtcThreshold = s.XTCThreshold }, func(s *Settings) { s.XTCThreshold = nil },
	},
	{
		"priority", "priority", func(s Settings) bool { return s.Priority != nil && *s.Priority != 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Priority = s.Priority }, func(s *Settings) { s.Priority = nil },
	},
	{
		"speculation.depth", "speculative.n_max", func(s Settings) bool { return s.DraftDepth != nil },
		func(s Settings, g *cladev1.GenerateStart) { g.Speculation = &cladev1.Speculation{Depth: s.DraftDepth} }, func(s *Settings) { s.DraftDepth = nil },
	},
	{
		"adapter", "lora", func(s Settings) bool { return s.Adapter != nil },
		func(s Settings, g *cladev1.GenerateStart) { g.Adapter = s.Adapter }, func(s *Settings) { s.Adapter = nil },
	},
	{
		"sampling.repetition", "repetition_penalty", func(s Settings) bool { return s.Repetition != nil && s.Repetition.Value != 1 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.Repetition = s.Repetition.proto() }, func(s *Settings) { s.Repetition = nil },
	},
	{
		"sampling.presence", "presence_penalty", func(s Settings) bool { return s.Presence != nil && s.Presence.Value != 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.Presence = s.Presence.proto() }, func(s *Settings) { s.Presence = nil },
	},
	{
		"sampling.frequency", "frequency_penalty", func(s Settings) bool { return s.Frequency != nil && s.Frequency.Value != 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.Frequency = s.Frequency.proto() }, func(s *Settings) { s.Frequency = nil },
	},
	{
		"sampling.logit_bias", "logit_bias", func(s Settings) bool { return len(s.LogitBias) > 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.LogitBias = maps.Clone(s.LogitBias) }, func(s *Settings) { s.LogitBias = nil },
	},
	{
		"sampling.seed", "seed", func(s Settings) bool { return s.Seed != nil },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.Seed = s.Seed }, func(s *Settings) { s.Seed = nil },
	},
	{
		"sampling.min_tokens", "min_tokens", func(s Settings) bool { return s.MinTokens != nil && *s.MinTokens > 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.MinTokens = s.MinTokens }, func(s *Settings) { s.MinTokens = nil },
	},
	{
		"sampling.ignore_eos", "ignore_eos", func(s Settings) bool { return s.IgnoreEOS != nil && *s.IgnoreEOS },
		func(s Settings, g *cladev1.GenerateStart) { g.Sampling.IgnoreEos = s.IgnoreEOS }, func(s *Settings) { s.IgnoreEOS = nil },
	},
	{
		"choice", "n", func(s Settings) bool { return s.Choice != nil && *s.Choice > 0 },
		func(s Settings, g *cladev1.GenerateStart) { g.Choice = s.Choice }, func(s *Settings) { s.Choice = nil },
	},
	{
		"logprobs", "logprobs", func(s Settings) bool { return s.Logprobs != nil },
		func(s Settings, g *cladev1.GenerateStart) { g.Logprobs = &cladev1.Logprobs{Top: *s.Logprobs} }, func(s *Settings) { s.Logprobs = nil },
	},
}...)

func (p *Penalty) proto() *cladev1.Penalty {
	return &cladev1.Penalty{Value: p.Value, Window: p.Window}
}

// Layers are the sources of settings, strongest first.
type Layers struct {
	Request Settings
	Server  Settings
	// Model is what generation_config.json asks for.
	Model  Settings
	Family Settings
	// NoThinking: reasoning is switched off. Then TemperatureCap bounds what the files and the family ask for, never what a person
	// asked for.
	NoThinking     bool
	TemperatureCap float64
}

// Resolved is what one generation runs with.
type Resolved struct {
	Settings
	// Notes name what the model's files asked for and the plugin cannot do.
	Notes []string

	declared func(path string) bool
}

// Resolve merges the layers for a plugin that declares the given option paths. It draws a seed when a sampled generation
// has none. MaxTokens stays absent when nobody set it.
func Resolve(l Layers, declared func(path string) bool) (Resolved, error) {
	asked := l.Request.Or(l.Server)
	if err := asked.Check(); err != nil {
		return Resolved{}, err
	}
	for _, o := range options {
		if o.set(asked) && !declared(o.path) && !harmless(o, asked) {
			return Resolved{}, contract.Errorf(contract.UnsupportedOption, o.field, "the model's plugin does not honour it")
		}
	}
	files := l.Model.Or(l.Family)
	if err := files.Check(); err != nil {
		return Resolved{}, contract.Errorf(contract.ArtifactCorrupt, "generation_config.json", "%w", err)
	}
	if l.NoThinking && files.Temperature != nil && *files.Temperature > l.TemperatureCap {
		files.Temperature = &l.TemperatureCap
	}
	var notes []string
	for _, o := range options {
		if o.set(files) && !declared(o.path) && !harmless(o, files) {
			notes = append(notes, fmt.Sprintf("generation_config.json asks for %s, which the plugin does not honour", o.field))
			o.clear(&files)
		}
	}
	out := Resolved{Settings: asked.Or(files), Notes: notes, declared: declared}
	if out.Temperature == nil {
		out.Temperature = proto.Float64(0)
	}
	if out.Seed == nil && *out.Temperature > 0 {
		seed, err := drawSeed()
		if err != nil {
			return Resolved{}, err
		}
		out.Seed = &seed
	}
	return out, nil
}

// harmless is a setting whose value asks for what every plugin does anyway: greedy is always there, neither a seed nor a choice
// changes anything in a greedy run, a plugin that does not draft drafts nothing, and one without adapters has none.
func harmless(o option, s Settings) bool {
	if o.path == "speculation.depth" && *s.DraftDepth == 0 || o.path == "adapter" && *s.Adapter == contract.NoAdapter {
		return true
	}
	greedy := s.Temperature == nil || *s.Temperature == 0
	return greedy && (o.path == "sampling.temperature" || o.path == "sampling.seed" || o.path == "choice")
}

// Start writes the resolved settings as the contract's explicit record: every declared setting that has a value.
func (r Resolved) Start(requestID string, stopIDs []int32, maxTokens uint32) *cladev1.GenerateStart {
	start := &cladev1.GenerateStart{
		RequestId: requestID, Sampling: &cladev1.Sampling{}, MaxTokens: &maxTokens, StopTokenIds: stopIDs,
	}
	for _, o := range options {
		if o.set(r.Settings) && r.declared(o.path) {
			o.write(r.Settings, start)
		}
	}
	return start
}

// drawSeed draws 53 random bits: a JSON client keeps such a number exactly.
func drawSeed() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, contract.Errorf(contract.Internal, "seed", "%w", err)
	}
	return binary.LittleEndian.Uint64(b[:]) >> 11, nil
}
