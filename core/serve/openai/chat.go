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
	"unicode/utf8"

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

// Register adds the endpoints to mux.
func (a *API) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/chat/completions", a.chat)
	mux.HandleFunc("GET /v1/models", a.listModels)
	mux.HandleFunc("GET /v1/models/{id...}", a.getModel)
}

func (a *API) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			Refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", err.Error())
			return
		}
		WriteError(w, contract.Errorf(contract.InvalidArgument, "body", "%w", err))
		return
	}
	q, err := parseChat(body)
	if err != nil {
		WriteError(w, err)
		return
	}
	model, card, release, err := a.models.Get(r.Context(), q.model)
	if err != nil {
		if contract.KindOf(err) == contract.NotFound && !hasCard(a.models.List(), q.model) {
			err = modelNotFound(q.model)
		}
		WriteError(w, err)
		return
	}
	defer release()
	ids, err := model.Prompt(q.messages, q.kwargs)
	if err != nil {
		WriteError(w, err)
		return
	}
	id, err := newID()
	if err != nil {
		WriteError(w, err)
		return
	}
	c := completion{id: id, created: a.now().Unix(), model: card.ID, logprobs: q.logprobs}
	if q.stream {
		c.stream(w, r, model, ids, q)
		return
	}
	c.answer(w, r, model, ids, q)
}

func hasCard(cards []Card, id string) bool {
	for _, c := range cards {
		if strings.EqualFold(c.ID, id) {
			return true
		}
	}
	return false
}

func newID() (string, error) {
	var b [12]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", contract.Errorf(contract.Internal, "completion id", "%w", err)
	}
	return "chatcmpl-" + hex.EncodeToString(b[:]), nil
}

// completion is what every object of one response repeats.
type completion struct {
	id       string
	created  int64
	model    string
	logprobs bool
}

type response struct {
	ID                string               `json:"id"`
	Object            string               `json:"object"`
	Created           int64                `json:"created"`
	Model             string               `json:"model"`
	SystemFingerprint string               `json:"system_fingerprint,omitempty"`
	Choices           []choice             `json:"choices"`
	Usage             *usage               `json:"usage,omitempty"`
	Clade             *generate.Provenance `json:"clade,omitempty"`
}

type choice struct {
	Index        int       `json:"index"`
	Message      *message  `json:"message,omitempty"`
	Delta        *delta    `json:"delta,omitempty"`
	Logprobs     *logprobs `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type message struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type usage struct {
	PromptTokens     uint32        `json:"prompt_tokens"`
	CompletionTokens uint32        `json:"completion_tokens"`
	TotalTokens      uint32        `json:"total_tokens"`
	PromptDetails    promptDetails `json:"prompt_tokens_details"`
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

func (c completion) answer(w http.ResponseWriter, r *http.Request, model Model, ids []int32, q *chatRequest) {
	var all []generate.TokenLogprobs
	result, err := model.Generate(r.Context(), ids, q.settings, func(d generate.Delta) error {
		all = append(all, d.Logprobs...)
		return nil
	})
	if err != nil {
		WriteError(w, err)
		return
	}
	out := c.object("chat.completion", choice{
		Message: &message{Role: "assistant", Content: result.Text}, FinishReason: &result.Finish,
	})
	if c.logprobs {
		out.Choices[0].Logprobs = logprobsOf(all)
	}
	out.Usage, out.Clade = usageOf(result.Usage), &result.Provenance
	out.SystemFingerprint = fingerprintOf(result.Provenance)
	writeJSON(w, http.StatusOK, out)
}

func (c completion) object(kind string, choices ...choice) response {
	if choices == nil {
		choices = []choice{}
	}
	return response{ID: c.id, Object: kind, Created: c.created, Model: c.model, Choices: choices}
}

func usageOf(u generate.Usage) *usage {
	return &usage{
		PromptTokens: u.PromptTokens, CompletionTokens: u.GeneratedTokens, TotalTokens: u.PromptTokens + u.GeneratedTokens,
		PromptDetails: promptDetails{CachedTokens: u.CachedTokens},
	}
}

// fingerprintOf names what the answer depends on beside the request.
func fingerprintOf(p generate.Provenance) string {
	return strings.Join([]string{p.Plugin, p.PluginVersion, p.Device, p.DType, p.GraphEntry}, "/")
}

func logprobsOf(tokens []generate.TokenLogprobs) *logprobs {
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

// oneLogprob gives a token's bytes, or null where its text is only part of a character and the bytes are not known.
func oneLogprob(t generate.TokenLogprob) tokenLogprob {
	out := tokenLogprob{Token: t.Text, Logprob: t.Logprob}
	if strings.ContainsRune(t.Text, utf8.RuneError) {
		return out
	}
	out.Bytes = make([]int, 0, len(t.Text))
	for _, c := range []byte(t.Text) {
		out.Bytes = append(out.Bytes, int(c))
	}
	return out
}
