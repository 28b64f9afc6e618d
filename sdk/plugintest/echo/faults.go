package echo

import "slices"

// Fault is one seeded error.
type Fault string

// The faults that a graph, a cache, a scheduler or a sampler can have.
const (
	// WrongMask lets a row see a token of the row beside it.
	WrongMask Fault = "wrong mask"
	// LeakedSlot keeps a cancelled request's slot.
	LeakedSlot Fault = "leaked slot"
	// LateCancel looks for a cancel only when the answer is complete.
	LateCancel Fault = "late cancel"
	// LyingPlan states half of the weights.
	LyingPlan Fault = "lying plan"
	// DriftingPlan states another sum each time.
	DriftingPlan Fault = "drifting plan"
	// StaleCache restores one token more than the sequences share.
	StaleCache Fault = "stale cache"
	// ForgetfulResume counts positions of noise from the resumed prompt's end.
	ForgetfulResume Fault = "forgetful resume"
	// IgnoredStop ignores stop_token_ids, IgnoredBias logit_bias, IgnoredSeed the seed, IgnoredWindow the window of a penalty,
	// IgnoredMinTokens min_tokens, IgnoredMaxTokens max_tokens.
	IgnoredStop      Fault = "ignored stop_token_ids"
	IgnoredBias      Fault = "ignored logit_bias"
	IgnoredSeed      Fault = "ignored seed"
	IgnoredWindow    Fault = "ignored window"
	IgnoredMinTokens Fault = "ignored min_tokens"
	IgnoredMaxTokens Fault = "ignored max_tokens"
	// IgnoredConstraint takes a choice and answers freely; ForgetfulConstraint begins it anew in a resumed answer.
	IgnoredConstraint   Fault = "ignored constraint"
	ForgetfulConstraint Fault = "forgetful constraint"
	// ChunkBorder forgets the state at a border of prefill chunks.
	ChunkBorder Fault = "chunk border"
	// WrongLogprobs gives logits where log probabilities are due.
	WrongLogprobs Fault = "wrong logprobs"
	// WrongUsage counts one token too many.
	WrongUsage Fault = "wrong usage"
	// UncheckedIDs takes ids outside the vocabulary.
	UncheckedIDs Fault = "unchecked ids"
	// EndlessContext takes a prompt that fills the context.
	EndlessContext Fault = "endless context"
	// GrowingMemory keeps something of every request.
	GrowingMemory Fault = "growing memory"
	// BlindOpen opens a file that lacks the weights.
	BlindOpen Fault = "blind open"
	// ReadingPlan reads the weights to plan.
	ReadingPlan Fault = "reading plan"
	// ShiftedScore gives the logits of another position.
	ShiftedScore Fault = "shifted score"
	// IgnoredBudget opens a plan that exceeds its budget.
	IgnoredBudget Fault = "ignored budget"
	// RashDraft takes drafts without asking the model.
	RashDraft Fault = "rash draft"
	// IgnoredAdapter answers as the model alone, BlindChoice where the adapter is unknown; SharedCache restores what another adapter
	// computed; HalfAdapter takes one whose values are not numbers; TwiceLoaded loads two of one name; EagerUnload does not wait for
	// the requests that have it, LostAdapter takes it from them.
	IgnoredAdapter Fault = "ignored choice of adapters"
	BlindChoice    Fault = "blind choice"
	SharedCache    Fault = "shared cache"
	HalfAdapter    Fault = "half adapter"
	TwiceLoaded    Fault = "twice loaded"
	EagerUnload    Fault = "eager unload"
	LostAdapter    Fault = "lost adapter"
	// LooseValues takes values of a composition that it does not have.
	LooseValues Fault = "loose values"
)

type faults []Fault

func (f faults) has(x Fault) bool { return slices.Contains(f, x) }
