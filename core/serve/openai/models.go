package openai

import (
	"context"
	"net/http"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
)

// Model is an open model as the API needs it.
type Model interface {
	// Prompt renders the conversation with the model's template and tokenizes it.
	Prompt(c chat.Conversation) (generate.Prompt, error)
	// Encode tokenizes a bare text.
	Encode(text string, addSpecial bool) ([]int32, error)
	// Generate runs one request; emit is called from one goroutine, in order. An error of emit ends the request.
	Generate(ctx context.Context, p generate.Prompt, request generate.Settings, emit func(generate.Delta) error) (generate.Result, error)
	// Embed gives a vector for each input; UnsupportedOption where the model's family gives none.
	Embed(ctx context.Context, q generate.EmbedRequest) (generate.Embeddings, error)
}

// Models are the served models.
type Models interface {
	// List names every served model, open or not, in the order they were named, each followed by its adapters.
	List() []Card
	// Get is the model a request names, opened if it was not, and what ends its use. The name of an adapter is its model with it. An empty name is the only model, if there
	// is one. Errors: NotFound, or why it cannot be opened.
	Get(ctx context.Context, name string) (model Model, card Card, release func(), err error)
}

// Card is one entry of GET /v1/models, a model or an adapter of one: OpenAI's fields, then what clade knows of it.
type Card struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	// Parent is the model that an adapter changes; empty for a model.
	Parent string `json:"parent,omitempty"`
	// State is absent, starting, ready, busy, draining or dead.
	State        string   `json:"state"`
	Family       string   `json:"family,omitempty"`
	Graph        string   `json:"graph,omitempty"`
	GraphEntry   string   `json:"graph_entry,omitempty"`
	Loader       string   `json:"loader,omitempty"`
	Device       string   `json:"device,omitempty"`
	DType        string   `json:"dtype,omitempty"`
	Context      uint32   `json:"context_window,omitempty"`
	Plugin       string   `json:"plugin,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	Notes        []string `json:"notes,omitempty"`
}

func (a *API) listModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Object string `json:"object"`
		Data   []Card `json:"data"`
	}{"list", a.models.List()})
}

func (a *API) getModel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	for _, c := range a.models.List() {
		if c.ID == id {
			writeJSON(w, http.StatusOK, c)
			return
		}
	}
	WriteError(w, ModelNotFound(id, a.models.List()))
}
