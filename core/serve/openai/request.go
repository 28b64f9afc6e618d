package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// chatRequest is a body that was understood completely.
type chatRequest struct {
	model        string
	conversation chat.Conversation
	prompt       []completionPrompt // of /v1/completions
	stream       bool
	includeUsage bool
	settings     generate.Settings
	n            uint32
	choice       toolChoice
	forced       string // the Call of the prompt
	oneCall      bool   // parallel_tool_calls: false

	// maxCompletion is set when max_completion_tokens was, which beats max_tokens.
	maxCompletion *uint32
	logprobs      bool
	topLogprobs   *uint32
}

// field reads one known field; its value is never null.
type field func(q *chatRequest, name string, raw json.RawMessage) error

// fields are the body's known fields; every other is refused by name.
var fields = map[string]field{
	"model":                 into(func(q *chatRequest) *string { return &q.model }, "a text"),
	"messages":              readMessages,
	"stream":                into(func(q *chatRequest) *bool { return &q.stream }, "true or false"),
	"stream_options":        readStreamOptions,
	"max_tokens":            pointer(func(q *chatRequest) **uint32 { return &q.settings.MaxTokens }, "a positive whole number"),
	"max_completion_tokens": pointer(func(q *chatRequest) **uint32 { return &q.maxCompletion }, "a positive whole number"),
	"temperature":           pointer(func(q *chatRequest) **float64 { return &q.settings.Temperature }, "a number"),
	"top_p":                 pointer(func(q *chatRequest) **float64 { return &q.settings.TopP }, "a number"),
	"top_k":                 pointer(func(q *chatRequest) **uint32 { return &q.settings.TopK }, "a whole number"),
	"min_p":                 pointer(func(q *chatRequest) **float64 { return &q.settings.MinP }, "a number"),
	"typical_p":             pointer(func(q *chatRequest) **float64 { return &q.settings.TypicalP }, "a number"),
	"xtc_probability":       pointer(func(q *chatRequest) **float64 { return &q.settings.XTCProbability }, "a number"),
	"xtc_threshold":         pointer(func(q *chatRequest) **float64 { return &q.settings.XTCThreshold }, "a number"),
	"speculative.n_max":     pointer(func(q *chatRequest) **uint32 { return &q.settings.DraftDepth }, "a whole number, 0 for no drafts"),
	loraField:               readLoRA,
	"priority":              pointer(func(q *chatRequest) **int32 { return &q.settings.Priority }, "a whole number"),
	"min_tokens":            pointer(func(q *chatRequest) **uint32 { return &q.settings.MinTokens }, "a whole number"),
	"ignore_eos":            pointer(func(q *chatRequest) **bool { return &q.settings.IgnoreEOS }, "true or false"),
	"repetition_penalty":    penalty(func(q *chatRequest) **generate.Penalty { return &q.settings.Repetition }),
	"presence_penalty":      penalty(func(q *chatRequest) **generate.Penalty { return &q.settings.Presence }),
	"frequency_penalty":     penalty(func(q *chatRequest) **generate.Penalty { return &q.settings.Frequency }),
	"seed":                  readSeed,
	"stop":                  readStop,
	"logit_bias":            readLogitBias,
	"logprobs":              into(func(q *chatRequest) *bool { return &q.logprobs }, "true or false"),
	"top_logprobs":          pointer(func(q *chatRequest) **uint32 { return &q.topLogprobs }, "a whole number from 0 to 20"),
	"chat_template_kwargs":  into(func(q *chatRequest) *map[string]any { return &q.conversation.Kwargs }, "an object"),
	"reasoning_effort":      into(func(q *chatRequest) *string { return &q.conversation.Effort }, "a text"),
	"documents":             readDocuments,
	"n":                     into(func(q *chatRequest) *uint32 { return &q.n }, "a whole number from 1"),
	"tools":                 readTools,
	"tool_choice":           readToolChoice,
	"parallel_tool_calls":   readParallel,

	"response_format": readResponseFormat,
	"modalities":      only("output other than text", `["text"]`),
	"store":           only("storing completions", `false`),
	"service_tier":    only("service tiers", `"auto"`, `"default"`),

	"structured_outputs": readStructuredOutputs, "guided_json": guided["guided_json"], "guided_regex": guided["guided_regex"],
	"guided_choice": guided["guided_choice"], "guided_grammar": guided["guided_grammar"],

	"user": harmless, "metadata": harmless, "safety_identifier": harmless, "prompt_cache_key": harmless,
}

// parseChat reads a body; every error names the field.
func parseChat(body []byte) (*chatRequest, error) {
	q, tree, err := parse(body, fields)
	if err != nil {
		return nil, err
	}
	if len(q.conversation.Messages) == 0 {
		return nil, badField(contract.InvalidArgument, "messages", "want at least one message")
	}
	if err := q.finishTools(); err != nil {
		return nil, err
	}
	return q, q.finish(tree)
}

func parse(body []byte, fields map[string]field) (*chatRequest, map[string]json.RawMessage, error) {
	if !utf8.Valid(body) { // the decoder would put other characters in its place
		return nil, nil, badField(contract.InvalidArgument, "body", "is not UTF-8 text")
	}
	tree, err := object("body", body)
	if err != nil {
		return nil, nil, err
	}
	q := &chatRequest{n: 1}
	for _, name := range sortedKeys(tree) {
		read, ok := fields[name]
		switch {
		case !ok:
			return nil, nil, badField(contract.UnsupportedOption, name, "unknown or unsupported field")
		case isNull(tree[name]):
			continue
		}
		if err := read(q, name, tree[name]); err != nil {
			return nil, nil, err
		}
	}
	return q, tree, nil
}

// maxChoices bounds n.
const maxChoices = 16

// finish checks what fields mean together.
func (q *chatRequest) finish(tree map[string]json.RawMessage) error {
	if q.n < 1 || q.n > maxChoices {
		return badField(contract.InvalidArgument, "n", "is %d; want 1 to %d", q.n, maxChoices)
	}
	if _, ok := tree["stream_options"]; ok && !isNull(tree["stream_options"]) && !q.stream {
		return badField(contract.InvalidArgument, "stream_options", "needs stream: true")
	}
	if q.topLogprobs != nil && !q.logprobs {
		return badField(contract.InvalidArgument, "top_logprobs", "needs logprobs: true")
	}
	if q.logprobs {
		q.settings.Logprobs = new(uint32)
		if q.topLogprobs != nil {
			q.settings.Logprobs = q.topLogprobs
		}
	}
	if q.maxCompletion != nil {
		q.settings.MaxTokens = q.maxCompletion
	}
	q.conversation.Held = q.settings.Constraint != nil || q.forced != ""
	return q.settings.Check()
}

// object reads a JSON object and refuses a key given twice: which one counts would be a guess.
func object(where string, raw []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	bad := func(err error) error {
		return badField(contract.InvalidArgument, where, "not a JSON object: %w", err)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, bad(err)
	}
	switch {
	case t == nil:
		return nil, bad(errors.New("found null"))
	case t != json.Delim('{'):
		return nil, bad(fmt.Errorf("found %v", t))
	}
	tree := map[string]json.RawMessage{}
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, bad(err)
		}
		key := k.(string)
		if _, dup := tree[key]; dup {
			return nil, badField(contract.InvalidArgument, key, "given twice in %s", where)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, bad(err)
		}
		tree[key] = v
	}
	if _, err := dec.Token(); err != nil {
		return nil, bad(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, bad(errors.New("something follows it"))
	}
	return tree, nil
}

func into[T any](at func(*chatRequest) *T, want string) field {
	return func(q *chatRequest, name string, raw json.RawMessage) error {
		if err := json.Unmarshal(raw, at(q)); err != nil {
			return badField(contract.InvalidArgument, name, "want %s", want)
		}
		return nil
	}
}

func pointer[T any](at func(*chatRequest) **T, want string) field {
	return func(q *chatRequest, name string, raw json.RawMessage) error {
		v := new(T)
		if err := json.Unmarshal(raw, v); err != nil {
			return badField(contract.InvalidArgument, name, "want %s", want)
		}
		*at(q) = v
		return nil
	}
}

func penalty(at func(*chatRequest) **generate.Penalty) field {
	return func(q *chatRequest, name string, raw json.RawMessage) error {
		p := &generate.Penalty{}
		if err := json.Unmarshal(raw, &p.Value); err != nil {
			return badField(contract.InvalidArgument, name, "want a number")
		}
		*at(q) = p
		return nil
	}
}

// only accepts exactly the given values, which ask for nothing; any other needs what this version lacks.
func only(what string, allowed ...string) field {
	return func(_ *chatRequest, name string, raw json.RawMessage) error {
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil || !slices.Contains(allowed, compact.String()) {
			return badField(contract.UnsupportedOption, name, "%s is not supported", what)
		}
		return nil
	}
}

func harmless(*chatRequest, string, json.RawMessage) error { return nil }

func readSeed(q *chatRequest, name string, raw json.RawMessage) error {
	var signed int64
	var seed uint64
	if err := json.Unmarshal(raw, &seed); err != nil {
		if err := json.Unmarshal(raw, &signed); err != nil {
			return badField(contract.InvalidArgument, name, "want a whole number of 64 bits")
		}
		seed = uint64(signed) // OpenAI's seeds are signed; the bits are the seed
	}
	q.settings.Seed = &seed
	return nil
}

func readStop(q *chatRequest, name string, raw json.RawMessage) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		q.settings.Stop = []string{one}
		return nil
	}
	if err := json.Unmarshal(raw, &q.settings.Stop); err != nil {
		return badField(contract.InvalidArgument, name, "want a text or a list of texts")
	}
	return nil
}

func readLogitBias(q *chatRequest, name string, raw json.RawMessage) error {
	var byText map[string]float64
	if err := json.Unmarshal(raw, &byText); err != nil {
		return badField(contract.InvalidArgument, name, "want an object from token ids to numbers")
	}
	bias := map[int32]float64{}
	for text, v := range byText {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return badField(contract.InvalidArgument, name, "%q is not a token id", text)
		}
		bias[int32(id)] = v
	}
	q.settings.LogitBias = bias
	return nil
}

func readStreamOptions(q *chatRequest, name string, raw json.RawMessage) error {
	tree, err := object(name, raw)
	if err != nil {
		return err
	}
	for _, key := range sortedKeys(tree) {
		path := name + "." + key
		var on bool
		if !isNull(tree[key]) {
			if err := json.Unmarshal(tree[key], &on); err != nil {
				return badField(contract.InvalidArgument, path, "want true or false")
			}
		}
		switch key {
		case "include_usage":
			q.includeUsage = on
		case "include_obfuscation":
			if on {
				return badField(contract.UnsupportedOption, path, "is not supported")
			}
		default:
			return badField(contract.UnsupportedOption, path, "unknown or unsupported field")
		}
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func sortedKeys(tree map[string]json.RawMessage) []string {
	out := make([]string, 0, len(tree))
	for k := range tree {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
