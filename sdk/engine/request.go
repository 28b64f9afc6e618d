package engine

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// request is a GenerateJob, checked.
type request struct {
	ids      []int32
	source   *source
	prompt   int // how many of them are prompt; the others were generated before a restart
	resumed  bool
	priority int32
	limit    int     // most tokens to generate, before a restart too
	minimum  int     // no stop before so many
	stops    []int32 // ids that end the generation
	sampling sampling
	logprobs *cladev1.Logprobs // nil: not asked for
	narrowed *cladev1.Constraint
	depth    int   // most tokens drafted at once; 0: none, -1: as many as the engine likes
	remember bool  // read from and add to the prefix cache
	borders  []int // positions at which another request may part from this one
	choices  bool  // it is one of several of its prompt
	control  <-chan *cladev1.Control
}

// sampling is how a token is picked. Zero values leave a step out.
type sampling struct {
	temperature, topP, minP, typicalP float64
	xtcProbability, xtcThreshold      float64
	topK                              int
	bias                              map[int32]float64
	repetition                        penalty
	presence                          penalty
	frequency                         penalty
	noise                             Noise
}

// penalty looks back at Window tokens, all of them when it is 0. Off is a value that changes nothing.
type penalty struct {
	on     bool
	value  float64
	window int
}

// defaultXTCThreshold is what those who brought XTC up recommend (oobabooga/text-generation-webui#6335).
const defaultXTCThreshold = 0.1

// maxTopLogprobs is more than any caller means.
const maxTopLogprobs = 64

// check reads a job and refuses what cannot be.
func (e *Engine) check(job *plugin.GenerateJob) (*request, error) {
	start := job.Start
	r := &request{
		ids: job.IDs, prompt: len(job.IDs), control: job.Control, logprobs: start.Logprobs, priority: start.GetPriority(),
		resumed: start.GeneratedPrefix != nil, narrowed: start.Constraint,
		remember: start.PrefixCache == nil || *start.PrefixCache, choices: start.Choice != nil,
	}
	err := e.checkIDs("prompt", job.IDs)
	if err != nil {
		return nil, err
	}
	if r.source, err = e.checkSource(job.Media); err != nil {
		return nil, err
	}
	for _, p := range start.RestorePoints {
		if int(p) > len(job.IDs) || p == 0 {
			return nil, invalid("restore_points", "%d is not a position behind some of %d ids", p, len(job.IDs))
		}
		r.borders = append(r.borders, int(p))
	}
	if r.resumed {
		if r.prompt = int(start.GetGeneratedPrefix()); r.prompt < 1 || r.prompt > len(job.IDs) {
			return nil, invalid("generated_prefix", "%d is not between a prompt's end and that of %d ids", r.prompt, len(job.IDs))
		}
	}
	if at := start.KvConversionOffset; at != nil && int(*at) != e.config.KVStart {
		return nil, invalid("kv_conversion_offset", "the resumed run converted its cache at token %d, this one does at %d", *at, e.config.KVStart)
	}
	room := e.config.Context - r.prompt
	if room < 1 || len(job.IDs) > e.config.Context {
		return nil, contract.Errorf(contract.ContextTooLong, "prompt", "%d tokens leave no room in a context of %d", len(job.IDs), e.config.Context).
			WithNext("shorten it, or open the model with a larger context")
	}
	r.limit = room
	if e.config.MaxGeneration > 0 {
		r.limit = min(r.limit, e.config.MaxGeneration)
	}
	if start.MaxTokens != nil {
		r.limit = min(r.limit, int(*start.MaxTokens))
	}
	if start.Logprobs.GetTop() > maxTopLogprobs {
		return nil, invalid("logprobs", "%d alternatives, at most %d", start.Logprobs.GetTop(), maxTopLogprobs)
	}
	if err := e.checkIDs("stop_token_ids", start.StopTokenIds); err != nil && len(start.StopTokenIds) > 0 {
		return nil, err
	}
	r.stops = slices.Clone(start.StopTokenIds)
	if !start.GetSampling().GetIgnoreEos() {
		for _, id := range e.config.EOS {
			if int(id) < e.layout.Vocab { // a config may name one that the table has no row for
				r.stops = append(r.stops, id)
			}
		}
	}
	if r.depth, err = e.checkSpeculation(start.Speculation); err != nil {
		return nil, err
	}
	r.minimum = int(start.GetSampling().GetMinTokens())
	r.sampling, err = e.readSampling(start)
	return r, err
}

// checkSpeculation reads what a request says of drafts: how many at once at most, -1 where it leaves that to the engine.
func (e *Engine) checkSpeculation(wish *cladev1.Speculation) (depth int, err error) {
	switch {
	case wish.GetEnabled() && e.speculation == nil:
		return 0, unhonoured("speculation.enabled", "the model was opened without a draft").WithNext("open it with one, or leave this out")
	case wish != nil && wish.Enabled != nil && !*wish.Enabled:
		return 0, nil
	case wish != nil && wish.Depth != nil:
		return int(*wish.Depth), nil
	}
	return -1, nil
}

// checkIDs refuses ids outside the vocabulary: MLX does not check indices.
func (e *Engine) checkIDs(what string, ids []int32) error {
	if len(ids) == 0 {
		return invalid(what, "no token")
	}
	for i, id := range ids {
		if id < 0 || int(id) >= e.layout.Vocab {
			return invalid(what, "id %d at place %d is not in a vocabulary of %d", id, i, e.layout.Vocab)
		}
	}
	return nil
}

func (e *Engine) readSampling(start *cladev1.GenerateStart) (sampling, error) {
	in := start.GetSampling()
	out := sampling{
		temperature: in.GetTemperature(), topP: in.GetTopP(), minP: in.GetMinP(), topK: int(in.GetTopK()),
		typicalP: in.GetTypicalP(), xtcProbability: in.GetXtcProbability(), xtcThreshold: in.GetXtcThreshold(),
		bias: in.GetLogitBias(), noise: Noise{Seed: in.GetSeed(), Choice: start.GetChoice()},
	}
	if in != nil && in.XtcThreshold == nil {
		out.xtcThreshold = defaultXTCThreshold
	}
	if in.GetSeed() == 0 && (in == nil || in.Seed == nil) {
		out.noise.Seed = drawSeed()
	}
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	switch {
	case !finite(out.temperature) || out.temperature < 0:
		return out, invalid("sampling.temperature", "%g is not a number from 0 up", out.temperature)
	case in != nil && in.TopP != nil && !(out.topP > 0 && out.topP <= 1):
		return out, invalid("sampling.top_p", "%g is not in (0, 1]", out.topP)
	case !(out.minP >= 0 && out.minP <= 1):
		return out, invalid("sampling.min_p", "%g is not in [0, 1]", out.minP)
	case in != nil && in.TypicalP != nil && !(out.typicalP > 0 && out.typicalP <= 1):
		return out, invalid("sampling.typical_p", "%g is not in (0, 1]", out.typicalP)
	case !(out.xtcProbability >= 0 && out.xtcProbability <= 1):
		return out, invalid("sampling.xtc_probability", "%g is not in [0, 1]", out.xtcProbability)
	case !(out.xtcThreshold >= 0 && out.xtcThreshold <= 0.5):
		return out, invalid("sampling.xtc_threshold", "%g is not in [0, 0.5]", out.xtcThreshold)
	}
	for id, v := range out.bias {
		if id < 0 || int(id) >= e.layout.Vocab || !finite(v) {
			return out, invalid("sampling.logit_bias", "%g for id %d is not a number for a token of a vocabulary of %d", v, id, e.layout.Vocab)
		}
	}
	for _, p := range []struct {
		name string
		in   *cladev1.Penalty
		out  *penalty
	}{
		{"sampling.repetition", in.GetRepetition(), &out.repetition},
		{"sampling.presence", in.GetPresence(), &out.presence},
		{"sampling.frequency", in.GetFrequency(), &out.frequency},
	} {
		if p.in == nil {
			continue
		}
		if !finite(p.in.Value) || (p.out == &out.repetition && p.in.Value <= 0) {
			return out, invalid(p.name, "%g is no penalty", p.in.Value)
		}
		neutral := 0.0
		if p.out == &out.repetition {
			neutral = 1
		}
		*p.out = penalty{on: p.in.Value != neutral, value: p.in.Value, window: int(p.in.Window)}
	}
	return out, nil
}

func invalid(subject, format string, args ...any) error {
	return contract.Errorf(contract.InvalidArgument, subject, format, args...)
}

// drawSeed is for a request without one; the seed is reported in its provenance.
func drawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.LittleEndian.Uint64(b[:])
}
