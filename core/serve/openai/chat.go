package openai

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// API answers the OpenAI endpoints.
type API struct {
	models Models
	now    func() time.Time
}

// New makes the API over models.
func New(models Models) *API { return &API{models: models, now: time.Now} }

// Routes are the endpoints, by method and path.
func (a *API) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/chat/completions": a.chat,
		"POST /v1/completions":      a.complete,
		"POST /v1/embeddings":       a.embed,
		"POST /v1/responses":        refuseResponses,
		"GET /v1/models":            a.listModels,
		"GET /v1/models/{id...}":    a.getModel,
	}
}

func (a *API) chat(w http.ResponseWriter, r *http.Request) {
	a.answer(w, r, "chatcmpl-", parseChat, chatShape{})
}

// answer serves one generating endpoint: read, find the model, make the prompts, run every choice.
func (a *API) answer(w http.ResponseWriter, r *http.Request, prefix string, parse func([]byte) (*chatRequest, error), s shape) {
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	q, err := parse(body)
	if err != nil {
		WriteError(w, err)
		return
	}
	model, card, release, err := a.models.Get(r.Context(), q.model)
	if err != nil {
		WriteError(w, err)
		return
	}
	defer release()
	prompts, err := s.prompts(model, q)
	if err != nil {
		WriteError(w, err)
		return
	}
	for i := range prompts {
		prompts[i].Call = q.forced
	}
	id, err := newID(prefix)
	if err != nil {
		WriteError(w, err)
		return
	}
	c := completion{id: id, created: a.now().Unix(), model: card.ID, logprobs: q.logprobs, shape: s}
	if q.stream {
		c.stream(w, r, model, prompts, q)
		return
	}
	c.answer(w, r, model, prompts, q)
}

// readBody reads a request; false when it was refused.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		Refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", err.Error())
	case err != nil:
		WriteError(w, contract.Errorf(contract.InvalidArgument, "body", "%w", err))
	}
	return body, err == nil
}

// refuseResponses says what to use instead, where clients try this endpoint first.
func refuseResponses(w http.ResponseWriter, _ *http.Request) {
	WriteError(w, contract.Errorf(contract.UnsupportedOption, "/v1/responses", "is not served yet").WithNext("use POST /v1/chat/completions or /v1/messages"))
}

func newID(prefix string) (string, error) {
	var b [12]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", contract.Errorf(contract.Internal, "completion id", "%w", err)
	}
	return prefix + hex.EncodeToString(b[:]), nil
}

// completion is what every object of one response repeats.
type completion struct {
	id       string
	created  int64
	model    string
	logprobs bool
	shape    shape
}

// shape is how one endpoint writes what the other writes too.
type shape interface {
	// object is the name of a whole response, or of a chunk.
	object(chunk bool) string
	prompts(m Model, q *chatRequest) ([]generate.Prompt, error)
	// whole is a finished choice.
	whole(c *choice, r generate.Result)
	logprobs(tokens []generate.TokenLogprobs) any
	// piece is a streamed one; first says that nothing of the choice was sent before.
	piece(c *choice, d generate.Delta, calls int, first bool)
	// last is the end of a streamed one.
	last(c *choice, first bool)
}

type response struct {
	ID                string     `json:"id"`
	Object            string     `json:"object"`
	Created           int64      `json:"created"`
	Model             string     `json:"model"`
	SystemFingerprint string     `json:"system_fingerprint,omitempty"`
	Choices           []choice   `json:"choices"`
	Usage             *usage     `json:"usage,omitempty"`
	Clade             *cladeInfo `json:"clade,omitempty"`
}

// cladeInfo says what made the response, and what had to be mended to read the model's calls.
type cladeInfo struct {
	generate.Provenance
	// Repairs of tool calls, by the call's id.
	Repairs map[string][]string `json:"tool_call_repairs,omitempty"`
}

type choice struct {
	Index        int      `json:"index"`
	Text         *string  `json:"text,omitempty"`
	Message      *message `json:"message,omitempty"`
	Delta        *delta   `json:"delta,omitempty"`
	Logprobs     any      `json:"logprobs"`
	FinishReason *string  `json:"finish_reason"`
}

type message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
	Refusal   *string    `json:"refusal"`
}

type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning *string    `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type toolCall struct {
	Index    *int   `json:"index,omitempty"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func callOf(c generate.ToolCall, index *int) toolCall {
	out := toolCall{Index: index, ID: c.ID, Type: "function"}
	out.Function.Name, out.Function.Arguments = c.Name, c.Arguments
	return out
}

type usage struct {
	PromptTokens     uint32        `json:"prompt_tokens"`
	CompletionTokens uint32        `json:"completion_tokens"`
	TotalTokens      uint32        `json:"total_tokens"`
	PromptDetails    promptDetails `json:"prompt_tokens_details"`
	// CompletionDetails is there where tokens were drafted.
	CompletionDetails *completionDetails `json:"completion_tokens_details,omitempty"`
}

// completionDetails counts drafts as the API counts predicted output.
type completionDetails struct {
	Accepted uint32 `json:"accepted_prediction_tokens"`
	Rejected uint32 `json:"rejected_prediction_tokens"`
}

type promptDetails struct {
	CachedTokens uint32 `json:"cached_tokens"`
}

type logprobs struct {
	Content []tokenLogprob  `json:"content"`
	Refusal json.RawMessage `json:"refusal"`
}

type tokenLogprob struct {
	Token   string         `json:"token"`
	Logprob float32        `json:"logprob"`
	Bytes   []int          `json:"bytes"`
	Top     []tokenLogprob `json:"top_logprobs,omitempty"`
}

func (c completion) answer(w http.ResponseWriter, r *http.Request, model Model, prompts []generate.Prompt, q *chatRequest) {
	jobs := jobsOf(prompts, q)
	tokens := make([][]generate.TokenLogprobs, len(jobs))
	results, err := runAll(r.Context(), model, jobs, func(i int, d generate.Delta) error {
		tokens[i] = append(tokens[i], d.Logprobs...)
		return nil
	})
	if err != nil {
		WriteError(w, err)
		return
	}
	out := c.object(c.shape.object(false))
	for i, result := range results {
		ch := choice{Index: i, FinishReason: &result.Finish}
		c.shape.whole(&ch, result)
		if c.logprobs {
			ch.Logprobs = c.shape.logprobs(tokens[i])
		}
		out.Choices = append(out.Choices, ch)
	}
	out.Usage, out.Clade = usageOf(results, int(q.n)), infoOf(results)
	out.SystemFingerprint = fingerprintOf(results[0].Provenance)
	writeJSON(w, http.StatusOK, out)
}

func (c completion) object(kind string, choices ...choice) response {
	if choices == nil {
		choices = []choice{}
	}
	return response{ID: c.id, Object: kind, Created: c.created, Model: c.model, Choices: choices}
}

// usageOf sums up; the choices of one prompt share it.
func usageOf(results []generate.Result, n int) *usage {
	var out usage
	for i, r := range results {
		if i%n == 0 {
			out.PromptTokens += r.Usage.PromptTokens
			out.PromptDetails.CachedTokens += r.Usage.CachedTokens
		}
		out.CompletionTokens += r.Usage.GeneratedTokens
		if drafts := r.Usage.Speculation; drafts != nil {
			if out.CompletionDetails == nil {
				out.CompletionDetails = &completionDetails{}
			}
			out.CompletionDetails.Accepted += drafts.Accepted
			out.CompletionDetails.Rejected += drafts.Drafted - drafts.Accepted
		}
	}
	out.TotalTokens = out.PromptTokens + out.CompletionTokens
	return &out
}

func infoOf(results []generate.Result) *cladeInfo {
	out := &cladeInfo{Provenance: results[0].Provenance}
	for i, r := range results {
		if i > 0 {
			out.Notes = append(out.Notes, r.Provenance.Notes...)
			out.Resumed = out.Resumed || r.Provenance.Resumed
		}
		for _, c := range r.Calls {
			if len(c.Repairs) == 0 {
				continue
			}
			if out.Repairs == nil {
				out.Repairs = map[string][]string{}
			}
			out.Repairs[c.ID] = c.Repairs
		}
	}
	return out
}

// fingerprintOf names what the answer depends on beside the request.
func fingerprintOf(p generate.Provenance) string {
	return strings.Join([]string{p.Plugin, p.PluginVersion, p.Device, p.DType, p.GraphEntry}, "/")
}

func (chatShape) logprobs(tokens []generate.TokenLogprobs) any {
	out := &logprobs{Content: []tokenLogprob{}, Refusal: json.RawMessage("null")}
	for _, t := range tokens {
		item := oneLogprob(t.TokenLogprob)
		item.Top = []tokenLogprob{}
		for _, alt := range t.Top {
			item.Top = append(item.Top, oneLogprob(alt))
		}
		out.Content = append(out.Content, item)
	}
	return out
}

// oneLogprob gives a token's bytes even where they are only part of a character; null only for an id without a token.
func oneLogprob(t generate.TokenLogprob) tokenLogprob {
	out := tokenLogprob{Token: t.Text, Logprob: t.Logprob}
	if t.Bytes == nil {
		return out
	}
	out.Bytes = make([]int, 0, len(t.Bytes))
	for _, c := range t.Bytes {
		out.Bytes = append(out.Bytes, int(c))
	}
	return out
}
