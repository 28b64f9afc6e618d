package generate

import (
	"encoding/json"
	"time"

	"github.com/clademl/clade/core/chat/toolcall"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Why a generation ended, as the OpenAI API spells it.
const (
	FinishStop   = "stop"
	FinishLength = "length"
	// FinishToolCalls: the model ended its turn with calls of tools.
	FinishToolCalls = "tool_calls"
)

// Prompt is what a generation begins with.
type Prompt struct {
	IDs []int32
	// Reply says that the reply to a conversation follows, whose reasoning and calls are split off; else all is text.
	Reply bool
	// Inside: the prompt ends in a thought that it opened.
	Inside bool
	// Thinking is what the template was told; nil when it has no switch.
	Thinking *bool
	// Tools that were offered, as a JSON list.
	Tools json.RawMessage
	// Call holds the reply to one call of the named tool, or of any for AnyTool; "" leaves it to the model.
	Call string
	// Borders are positions in the ids where another prompt may part from this one, in ascending order.
	Borders []uint32
	// Notes say what of the request was honoured in part.
	Notes []string
}

// AnyTool is the Call of a Prompt whose reply is a call of whichever tool the model picks.
const AnyTool = "*"

// ToolCall is one call that the model made.
type ToolCall struct {
	ID string
	toolcall.Call
}

// Delta is what became final since the last one. Text may lag behind IDs: it waits for whole characters and for text that
// might begin a stop string, a thought or a call. Reasoning comes before Text, Text before Calls.
type Delta struct {
	Reasoning string
	Text      string
	Calls     []ToolCall
	IDs       []int32
	Logprobs  []TokenLogprobs
}

// TokenLogprobs is one generated token's log probability and its alternatives, likeliest first.
type TokenLogprobs struct {
	TokenLogprob
	Top []TokenLogprob
}

// TokenLogprob is one token. Text holds U+FFFD where the token is only part of a character; Bytes are what it adds to a text,
// nil for a model without text.
type TokenLogprob struct {
	ID      int32
	Text    string
	Bytes   []byte
	Logprob float32
}

// Result of a generation that ended well.
type Result struct {
	Text      string
	Reasoning string
	Calls     []ToolCall
	IDs       []int32
	// NoText says why there is no Text: the model has no tokenizer. Empty where it has one.
	NoText string
	Finish string
	// Stop is the stop string that ended it, if one did.
	Stop       string
	Usage      Usage
	Provenance Provenance
}

// Usage counts tokens and times.
type Usage struct {
	PromptTokens    uint32        `json:"prompt_tokens"`
	CachedTokens    uint32        `json:"cached_tokens"`
	GeneratedTokens uint32        `json:"generated_tokens"`
	Queue           time.Duration `json:"queue_ns"`
	Prefill         time.Duration `json:"prefill_ns"`
	Decode          time.Duration `json:"decode_ns"`
	// Speculation is nil where nothing was drafted and nothing could be.
	Speculation *Speculation `json:"speculation,omitempty"`
}

// Speculation counts tokens that were drafted in so many forwards of the model, and those that it agreed with.
type Speculation struct {
	Rounds      uint32 `json:"rounds"`
	Drafted     uint32 `json:"drafted"`
	Accepted    uint32 `json:"accepted"`
	TargetCalls uint32 `json:"target_calls"`
	// Parked is why nothing was drafted any more at the end; empty while drafting promised something.
	Parked string `json:"parked,omitempty"`
}

// Provenance says what produced the tokens.
type Provenance struct {
	Plugin        string   `json:"plugin"`
	PluginVersion string   `json:"plugin_version"`
	Device        string   `json:"device"`
	DType         string   `json:"dtype"`
	GraphEntry    string   `json:"graph_entry"`
	Kernels       []string `json:"kernels"`
	Runtime       string   `json:"runtime"`
	Deterministic bool     `json:"deterministic"`
	Resumed       bool     `json:"resumed"`
	Seed          *uint64  `json:"seed,omitempty"`
	Threads       uint32   `json:"threads"`
	Notes         []string `json:"notes,omitempty"`
	// Adapters as id:scale, in the order in which their changes are added.
	Adapters []string `json:"adapters,omitempty"`
	// DraftKind is what drafted tokens; empty without.
	DraftKind string `json:"draft_kind,omitempty"`
}

// UsageOf reads the contract's usage.
func UsageOf(u *cladev1.Usage) Usage {
	out := Usage{
		PromptTokens: u.GetPromptTokens(), CachedTokens: u.GetCachedTokens(), GeneratedTokens: u.GetGeneratedTokens(),
		Queue: time.Duration(u.GetQueueNs()), Prefill: time.Duration(u.GetPrefillNs()), Decode: time.Duration(u.GetDecodeNs()),
	}
	if u.GetDrafted() > 0 || u.GetDraftParked() != "" {
		out.Speculation = &Speculation{u.GetDraftRounds(), u.GetDrafted(), u.GetAccepted(), u.GetTargetCalls(), u.GetDraftParked()}
	}
	return out
}

// ProvenanceOf reads the contract's provenance; notes come first.
func ProvenanceOf(p *cladev1.Provenance, notes []string) Provenance {
	out := Provenance{
		Plugin: p.GetPlugin(), PluginVersion: p.GetPluginVersion(), Device: p.GetDevice(), DType: p.GetDtype(),
		GraphEntry: p.GetGraphEntry(), Kernels: append([]string{}, p.GetKernels()...), Runtime: p.GetRuntime(), Deterministic: p.GetDeterministic(),
		Resumed: p.GetResumed(), Threads: p.GetThreads(), Adapters: p.GetAdapters(), DraftKind: p.GetDraftKind(), Notes: append(append([]string(nil), notes...), p.GetNotes()...),
	}
	if p != nil {
		out.Seed = p.Seed
	}
	return out
}
