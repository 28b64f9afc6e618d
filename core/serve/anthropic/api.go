package anthropic

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/sdk/contract"
)

// API answers the Anthropic endpoints.
type API struct{ models openai.Models }

// New makes the API over models.
func New(models openai.Models) *API { return &API{models} }

// Routes are the endpoints, by method and path.
func (a *API) Routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"POST " + messagesPath: a.messages, "POST " + messagesPath + "/count_tokens": a.countTokens}
}

// prepared is a request with its model and prompt.
type prepared struct {
	*request
	engine  openai.Model
	name    string
	prompt  generate.Prompt
	release func()
}

// prepare answers the client itself when it fails.
func (a *API) prepare(w http.ResponseWriter, r *http.Request, counting bool) (*prepared, bool) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			Refuse(w, http.StatusRequestEntityTooLarge, err.Error())
			return nil, false
		}
		writeError(w, contract.Errorf(contract.InvalidArgument, "body", "%w", err))
		return nil, false
	}
	q, err := read(raw, counting)
	if err != nil {
		writeError(w, err)
		return nil, false
	}
	engine, card, release, err := a.models.Get(r.Context(), q.model)
	if err != nil {
		writeError(w, err)
		return nil, false
	}
	prompt, err := engine.Prompt(q.conversation)
	if err != nil {
		release()
		writeError(w, err)
		return nil, false
	}
	prompt.Call, prompt.Notes = q.forced, append(prompt.Notes, q.notes...)
	return &prepared{q, engine, card.ID, prompt, release}, true
}

func (a *API) countTokens(w http.ResponseWriter, r *http.Request) {
	p, ok := a.prepare(w, r, true)
	if !ok {
		return
	}
	defer p.release()
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": len(p.prompt.IDs)})
}

func (a *API) messages(w http.ResponseWriter, r *http.Request) {
	p, ok := a.prepare(w, r, false)
	if !ok {
		return
	}
	defer p.release()
	if p.stream {
		p.serve(w, r)
		return
	}
	var blocks writer
	result, err := p.engine.Generate(r.Context(), p.prompt, p.settings, func(d generate.Delta) error {
		return blocks.delta(p.only(d, &blocks), func(event) error { return nil })
	})
	if err != nil {
		writeError(w, err)
		return
	}
	out := newReply(p.name)
	out.Content, out.Usage, out.Clade = blocks.blocks, usageOf(result.Usage), &result.Provenance
	if out.Content == nil {
		out.Content = []any{}
	}
	out.StopReason, out.StopSequence = stopOf(result)
	writeJSON(w, http.StatusOK, out)
}

// only leaves out what a client that wants one call at a time does not want.
func (p *prepared) only(d generate.Delta, w *writer) generate.Delta {
	if p.oneCall && len(d.Calls) > 0 {
		d.Calls = slices.Clone(d.Calls[:max(min(1-w.calls, len(d.Calls)), 0)])
	}
	return d
}

// reply is a message of the model.
type reply struct {
	ID           string               `json:"id"`
	Type         string               `json:"type"`
	Role         string               `json:"role"`
	Model        string               `json:"model"`
	Content      []any                `json:"content"`
	StopReason   *string              `json:"stop_reason"`
	StopSequence *string              `json:"stop_sequence"`
	Usage        usage                `json:"usage"`
	Clade        *generate.Provenance `json:"clade,omitempty"`
}

func newReply(model string) reply {
	return reply{ID: "msg_" + strings.ToLower(rand.Text()), Type: "message", Role: "assistant", Model: model, Content: []any{}}
}

type usage struct {
	Input         uint32 `json:"input_tokens"`
	CacheCreation uint32 `json:"cache_creation_input_tokens"`
	CacheRead     uint32 `json:"cache_read_input_tokens"`
	Output        uint32 `json:"output_tokens"`
}

// usageOf counts as the API does: what the cache gave is not in the input.
func usageOf(u generate.Usage) usage {
	return usage{Input: u.PromptTokens - min(u.CachedTokens, u.PromptTokens), CacheRead: u.CachedTokens, Output: u.GeneratedTokens}
}

func stopOf(r generate.Result) (reason, sequence *string) {
	word := "end_turn"
	switch {
	case r.Stop != "":
		word, sequence = "stop_sequence", &r.Stop
	case r.Finish == generate.FinishLength:
		word = "max_tokens"
	case r.Finish == generate.FinishToolCalls:
		word = "tool_use"
	}
	return &word, sequence
}

type errorBody struct {
	Type  string   `json:"type"`
	Error apiError `json:"error"`
}

type apiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// Speaks reports whether a request is of a client of this API, whatever endpoint it asks for.
func Speaks(r *http.Request) bool {
	return r.URL.Path == messagesPath || strings.HasPrefix(r.URL.Path, messagesPath+"/") || r.Header.Get("Anthropic-Version") != ""
}

const messagesPath = "/v1/messages"

// Refuse answers with a status of HTTP's own, such as 401 or 405, in the API's error shape.
func Refuse(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, errorBody{"error", apiError{typeOf(status), message}})
}

// typeOf is the API's type of an error with a status.
func typeOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusNotFound:
		return "not_found_error"
	case status == http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusServiceUnavailable:
		return "overloaded_error"
	case status < http.StatusInternalServerError:
		return "invalid_request_error"
	}
	return "api_error"
}

func bodyOf(err error) (int, errorBody) {
	status := contract.KindOf(err).HTTPStatus()
	var e *contract.Error
	text := err.Error()
	if errors.As(err, &e) {
		text = e.Error()
	}
	return status, errorBody{"error", apiError{typeOf(status), text}}
}

func writeError(w http.ResponseWriter, err error) {
	status, body := bodyOf(err)
	openai.RetryAfter(w, err)
	writeJSON(w, status, body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone; there is nobody left to tell
}
