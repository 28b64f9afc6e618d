package compose

import (
	"sort"

	"github.com/clademl/clade/sdk/family"
)

// What the generic estimate stands on (reference/behaviour.md 2.11). A plugin's plan replaces it: the estimate is for models
// whose plugin is not there.
const (
	// usableShare is the part of the machine's memory that a model may take when no budget is set.
	usableShare = 0.75
	// transientBytes is what a prefill keeps for each token of a chunk.
	transientBytes = 550_000
	// EstimateChunk is the prefill chunk of the estimate.
	EstimateChunk = 2048
	// denseEfficiency and mixtureEfficiency are the shares of read bandwidth that decoding reaches.
	denseEfficiency   = 0.82
	mixtureEfficiency = 0.76
)

// FitInput is what an estimate needs.
type FitInput struct {
	Geometry family.Geometry
	// Heads are the query heads, whose scores are written down where attention is not fused.
	Heads       int64
	WeightBytes int64
	// AuxiliaryBytes are the weights of what goes with the model; Draft the caches of drafts, stored as they compute.
	AuxiliaryBytes int64
	Draft          []family.Geometry
	KV             family.KV
	// ElementBytes is the size of the compute dtype.
	ElementBytes int64
	// Context in tokens; 0 for a model where nothing grows with it.
	Context int64
	// MaxContext is the most positions the model was made for; 0: it does not say.
	MaxContext int64
	// MachineBytes is all memory, BudgetBytes what was set; the latter wins when it is not 0.
	MachineBytes, BudgetBytes uint64
}

// Fit says what opening the model would take, without asking its plugin. It is an estimate.
type Fit struct {
	WeightBytes    int64 `json:"weight_bytes"`
	KVBytes        int64 `json:"kv_bytes"`
	TransientBytes int64 `json:"transient_bytes"`
	ScoreBytes     int64 `json:"score_bytes"`
	AuxiliaryBytes int64 `json:"auxiliary_bytes,omitempty"`
	TotalBytes     int64 `json:"total_bytes"`
	UsableBytes    int64 `json:"usable_bytes"`
	Context        int64 `json:"context"`
	Fits           bool  `json:"fits"`
	// LargestContext is the most tokens that fit; 0 when the weights alone do not.
	LargestContext int64 `json:"largest_context"`
}

// Estimate adds weights, caches, prefill transients and scores up and compares them with what is usable.
func Estimate(in FitInput) Fit {
	f := Fit{Context: in.Context, WeightBytes: in.WeightBytes, UsableBytes: int64(in.BudgetBytes)}
	if f.UsableBytes == 0 {
		f.UsableBytes = int64(float64(in.MachineBytes) * usableShare)
	}
	f.KVBytes, f.TransientBytes, f.ScoreBytes = in.grows(in.Context)
	f.AuxiliaryBytes = in.auxiliary(in.Context)
	f.TotalBytes = in.WeightBytes + f.KVBytes + f.TransientBytes + f.ScoreBytes + f.AuxiliaryBytes
	f.Fits = f.TotalBytes <= f.UsableBytes
	most := in.MaxContext
	if in.Context == 0 {
		return f // nothing grows with a context
	}
	if most == 0 {
		most = max(in.Context, DefaultContext)
	}
	// What grows does so with the context, so the first context that is too large ends the search.
	f.LargestContext = int64(sort.Search(int(most), func(i int) bool {
		kv, transient, scores := in.grows(int64(i) + 1)
		return in.WeightBytes+kv+transient+scores+in.auxiliary(int64(i)+1) > f.UsableBytes
	}))
	return f
}

func (in *FitInput) grows(context int64) (kv, transient, scores int64) {
	return in.Geometry.SchemeBytes(context, 1, in.KV, in.ElementBytes), min(EstimateChunk, context) * transientBytes,
		in.Geometry.ScoreBytes(in.Heads, EstimateChunk, context)
}

// auxiliary is what goes with the model: its weights, and the caches of a draft, which sees the same tokens.
func (in *FitInput) auxiliary(context int64) int64 {
	total := in.AuxiliaryBytes
	for _, g := range in.Draft {
		total += g.SchemeBytes(context, 1, family.KV{Plain: family.NativeKV}, in.ElementBytes)
	}
	return total
}

// SpeedInput is what one decoded token reads.
type SpeedInput struct {
	WeightBytes int64
	// ExpertBytes of the weights are routed experts; All and Used are the mixture's counts, 0 for a dense model.
	ExpertBytes, All, Used int64
	KVBytes                int64
	// BytesPerSecond is the read bandwidth, as measured.
	BytesPerSecond float64
}

// TokensPerSecond estimates decoding by what a token reads: of a mixture only the experts it uses. 0 when nothing is known.
func TokensPerSecond(in SpeedInput) float64 {
	active, share := float64(in.WeightBytes), denseEfficiency
	if in.All > 0 {
		active += float64(in.ExpertBytes)*float64(in.Used)/float64(in.All) - float64(in.ExpertBytes)
		share = mixtureEfficiency
	}
	if read := active + float64(in.KVBytes); read > 0 {
		return in.BytesPerSecond / read * share
	}
	return 0
}
