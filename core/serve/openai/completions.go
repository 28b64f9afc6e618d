package openai

import (
	"encoding/json"
	"maps"
	"net/http"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// defaultCompletion is OpenAI's max_tokens of a bare completion.
const defaultCompletion = 16

// maxPrompts bounds the prompts of one completion.
const maxPrompts = 64

// completionPrompt is a text or token ids.
type completionPrompt struct {
	text string
	ids  []int32
}

// completionFields are the known fields of /v1/completions: those of chats that are about sampling, and its own.
var completionFields = func() map[string]field {
	out := maps.Clone(fields)
	for _, name := range []string{
		"messages", "chat_template_kwargs", "reasoning_effort", "documents", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens",
		"top_logprobs", "modalities",
	} {
		delete(out, name)
	}
	out["prompt"] = readPrompt
	out["echo"] = only("giving the prompt back", "false")
	out["suffix"] = only("filling in before a suffix", `""`)
	out["best_of"] = only("choosing the best of several", "1")
	out["logprobs"] = func(q *chatRequest, name string, raw json.RawMessage) error {
		top := new(uint32)
		if err := json.Unmarshal(raw, top); err != nil {
			return badField(contract.InvalidArgument, name, "want a whole number")
		}
		q.logprobs, q.topLogprobs = true, top
		return nil
	}
	return out
}()

func (a *API) complete(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, "cmpl-", parseCompletion, textShape{})
}

func parseCompletion(body []byte) (*chatRequest, error) {
	q, tree, err := parse(body, completionFields)
	if err != nil {
		return nil, err
	}
	if len(q.prompt) == 0 {
		return nil, badField(contract.InvalidArgument, "prompt", "is missing")
	}
	if q.settings.MaxTokens == nil {
		q.settings.MaxTokens = new(uint32(defaultCompletion))
	}
	return q, q.finish(tree)
}

// readPrompt reads a text, several texts, ids, or several lists of ids.
func readPrompt(q *chatRequest, name string, raw json.RawMessage) error {
	var one string
	var ids []int32
	if json.Unmarshal(raw, &one) == nil {
		q.prompt = []completionPrompt{{text: one}}
		return nil
	}
	if readIDs(raw, &ids) {
		q.prompt = []completionPrompt{{ids: ids}}
		return nil
	}
	var many []json.RawMessage
	if err := json.Unmarshal(raw, &many); err != nil || len(many) == 0 || len(many) > maxPrompts {
		return badField(contract.InvalidArgument, name, "want a text, token ids, or 1 to %d of them", maxPrompts)
	}
	for _, item := range many {
		var p completionPrompt
		if isNull(item) || json.Unmarshal(item, &p.text) != nil && !readIDs(item, &p.ids) {
			return badField(contract.InvalidArgument, name, "want texts or lists of token ids")
		}
		q.prompt = append(q.prompt, p)
	}
	return nil
}

// textShape writes bare completions.
type textShape struct{}

func (textShape) object(bool) string { return "text_completion" }

func (textShape) prompts(m Model, q *chatRequest) ([]generate.Prompt, error) {
	var out []generate.Prompt
	for _, p := range q.prompt {
		if p.ids == nil {
			var err error
			if p.ids, err = m.Encode(p.text, true); err != nil {
				return nil, err
			}
		}
		out = append(out, generate.Prompt{IDs: p.ids})
	}
	return out, nil
}

func (textShape) whole(c *choice, r generate.Result) { c.Text = &r.Text }

func (textShape) piece(c *choice, d generate.Delta, _ int, _ bool) { c.Text = &d.Text }

func (textShape) last(c *choice, _ bool) { c.Text = new(string) }

// legacyLogprobs is the old form: parallel lists.
type legacyLogprobs struct {
	Tokens  []string             `json:"tokens"`
	Chosen  []float32            `json:"token_logprobs"`
	Top     []map[string]float32 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"`
}

func (textShape) logprobs(tokens []generate.TokenLogprobs) any {
	out := legacyLogprobs{[]string{}, []float32{}, []map[string]float32{}, []int{}}
	at := 0
	for _, t := range tokens {
		top := map[string]float32{}
		for _, alt := range t.Top {
			if _, there := top[alt.Text]; !there { // several tokens may have one text; the likeliest comes first
				top[alt.Text] = alt.Logprob
			}
		}
		out.Tokens, out.Chosen, out.Top = append(out.Tokens, t.Text), append(out.Chosen, t.Logprob), append(out.Top, top)
		out.Offsets = append(out.Offsets, at)
		at += len([]rune(t.Text))
	}
	return out
}
