package echo

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

const maxTopLogprobs = 64

// request is a GenerateJob, checked.
type request struct {
	ids                     []int32 // the prompt, then the answer as it grows
	prompt                  int     // where the answer begins
	given                   int     // ids that the host sent
	resumed                 bool
	undrafted               bool // nothing is drafted for it
	limit, minimum          int
	stops                   []int32
	temperature, topP, minP float64
	topK                    int
	bias                    map[int32]float64
	penalties               [3]*cladev1.Penalty // repetition, presence, frequency
	seed                    uint64
	choice                  uint32
	logprobs                *cladev1.Logprobs
	noiseBase               int
	choices                 [][]int32 // of a constraint, nil without one
	heldFrom                int       // where the text that is held to them begins
}

func invalid(subject, format string, args ...any) error {
	return contract.Errorf(contract.InvalidArgument, subject, format, args...)
}

func (m *model) checkIDs(what string, ids []int32) error {
	if len(ids) == 0 {
		return invalid(what, "no token")
	}
	for i, id := range ids {
		if (id < 0 || int(id) >= m.vocab) && !m.faults.has(UncheckedIDs) {
			return invalid(what, "id %d at place %d is not in a vocabulary of %d", id, i, m.vocab)
		}
	}
	return nil
}

func (m *model) read(job *plugin.GenerateJob) (*request, error) {
	start := job.Start
	r := &request{ids: slices.Clone(job.IDs), prompt: len(job.IDs), given: len(job.IDs), logprobs: start.Logprobs, choice: start.GetChoice()}
	if err := m.checkIDs("prompt", job.IDs); err != nil {
		return nil, err
	}
	if m.faults.has(UncheckedIDs) {
		for i, id := range r.ids {
			r.ids[i] = max(0, id)
		}
	}
	if g := start.GeneratedPrefix; g != nil {
		if *g < 1 || int(*g) > len(job.IDs) {
			return nil, invalid("generated_prefix", "%d is not a position in %d ids", *g, len(job.IDs))
		}
		r.prompt, r.resumed = int(*g), true
	}
	room := m.context - len(job.IDs)
	if room < 1 && !m.faults.has(EndlessContext) {
		return nil, contract.Errorf(contract.ContextTooLong, "prompt", "%d tokens leave no room in a context of %d", len(job.IDs), m.context)
	}
	r.limit = min(m.context-r.prompt, m.maxGeneration)
	if start.MaxTokens != nil && !m.faults.has(IgnoredMaxTokens) {
		r.limit = min(r.limit, int(*start.MaxTokens))
	}
	if start.Logprobs.GetTop() > maxTopLogprobs {
		return nil, invalid("logprobs", "%d alternatives, at most %d", start.Logprobs.GetTop(), maxTopLogprobs)
	}
	if len(start.StopTokenIds) > 0 {
		if err := m.checkIDs("stop_token_ids", start.StopTokenIds); err != nil {
			return nil, err
		}
	}
	if !m.faults.has(IgnoredStop) {
		r.stops = slices.Clone(start.StopTokenIds)
	}
	if !start.GetSampling().GetIgnoreEos() {
		r.stops = append(r.stops, m.eos...)
	}
	if !m.faults.has(IgnoredMinTokens) {
		r.minimum = int(start.GetSampling().GetMinTokens())
	}
	if w := start.Speculation; w != nil {
		r.undrafted = w.Enabled != nil && !*w.Enabled
		if w.GetEnabled() && m.depth == 0 {
			return nil, unhonoured("speculation.enabled", "the model was opened without a draft")
		}
	}
	if m.faults.has(ForgetfulResume) {
		r.noiseBase = len(job.IDs)
	}
	if err := m.readConstraint(r, start.Constraint); err != nil {
		return nil, err
	}
	return r, m.readSampling(r, start.GetSampling())
}

func (m *model) readSampling(r *request, in *cladev1.Sampling) error {
	r.temperature, r.topP, r.minP, r.topK = in.GetTemperature(), in.GetTopP(), in.GetMinP(), int(in.GetTopK())
	r.seed = in.GetSeed()
	if in == nil || in.Seed == nil || m.faults.has(IgnoredSeed) {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		r.seed = binary.LittleEndian.Uint64(b[:])
	}
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	switch {
	case !finite(r.temperature) || r.temperature < 0:
		return invalid("sampling.temperature", "%g is not a number from 0 up", r.temperature)
	case in != nil && in.TopP != nil && !(r.topP > 0 && r.topP <= 1):
		return invalid("sampling.top_p", "%g is not in (0, 1]", r.topP)
	case !(r.minP >= 0 && r.minP <= 1):
		return invalid("sampling.min_p", "%g is not in [0, 1]", r.minP)
	}
	for id, v := range in.GetLogitBias() {
		if id < 0 || int(id) >= m.vocab || !finite(v) {
			return invalid("sampling.logit_bias", "%g for id %d is not a number for a token of a vocabulary of %d", v, id, m.vocab)
		}
	}
	if !m.faults.has(IgnoredBias) {
		r.bias = in.GetLogitBias()
	}
	r.penalties = [3]*cladev1.Penalty{in.GetRepetition(), in.GetPresence(), in.GetFrequency()}
	for i, name := range []string{"repetition", "presence", "frequency"} {
		if p := r.penalties[i]; p != nil && (!finite(p.Value) || i == 0 && p.Value <= 0) {
			return invalid("sampling."+name, "%g is no penalty", p.Value)
		}
	}
	return nil
}
