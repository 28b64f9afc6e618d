// Package admin lets this user's own command line look into a running server: `clade ps`, `clade stop`, and `clade run` and
// `clade generate`, which use a model that the server has open instead of opening it again.
//
// Parties and files: a server writes a state file (State) that only its user can read, with its address and a random token, and
// holds the file's lock while it lives; a command line lists those files, removes the ones whose server is gone, and sends the
// token with each request. The API key of the server is another thing: it opens the APIs, the token this one.
//
// Invariants: no request without the token is answered; a borrowed model is used exactly as the command line would use its own,
// without the server's settings. Not for: clients of other users or machines.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// Model is an open model as the command line uses one.
type Model interface {
	Prompt(c chat.Conversation) (generate.Prompt, error)
	Encode(text string, addSpecial bool) ([]int32, error)
	HasTemplate() bool
	Generate(ctx context.Context, p generate.Prompt, request generate.Settings, emit func(generate.Delta) error) (generate.Result, error)
	// Ready is nil when the model can generate.
	Ready(ctx context.Context) error
}

// Running is one served model, as `clade ps` prints it.
type Running struct {
	Model  string `json:"model"`
	State  string `json:"state"`
	Device string `json:"device,omitempty"`
	// Context in tokens.
	Context uint32 `json:"context,omitempty"`
	// PlannedBytes is what it was admitted with, ResidentBytes what its process takes now.
	PlannedBytes  uint64 `json:"planned_bytes,omitempty"`
	ResidentBytes uint64 `json:"resident_bytes,omitempty"`
	Pid           int    `json:"pid,omitempty"`
	// Adapters that requests may choose.
	Adapters []Adapter `json:"adapters,omitempty"`
	// Requests that use it now.
	Requests int `json:"requests"`
	// ExpiresIn is the seconds until it is unloaded if nobody uses it; absent while it is in use and when it stays.
	ExpiresIn *float64 `json:"expires_in_s,omitempty"`
	// Server is the pid of the server.
	Server int    `json:"server_pid"`
	URL    string `json:"url"`
}

// Adapter is one of a model.
type Adapter struct {
	ID    string   `json:"id"`
	Path  string   `json:"path"`
	Scale *float64 `json:"scale,omitempty"` // absent: 1
	// Given: the model was opened with it.
	Given bool `json:"opened_with_model,omitempty"`
}

// Host is the server behind the endpoints.
type Host interface {
	// Running lists every served model.
	Running() []Running
	// Stop unloads a model when its requests have ended, and says whether it was open. NotFound: none of that name is served.
	Stop(ctx context.Context, name string) (stopped string, open bool, err error)
	// LoadAdapter loads an adapter whole, or changes nothing; an empty model is the only one.
	LoadAdapter(ctx context.Context, model string, a Adapter) error
	// UnloadAdapter takes an adapter away from new requests at once, and returns when the last that has it has ended.
	UnloadAdapter(ctx context.Context, model, id string) error
	// Borrow leases an open model by its key. NotFound: none is open.
	Borrow(key string) (Model, func(), error)
}

// Paths of the endpoints.
const (
	Prefix       = "/admin/v1/"
	pathModels   = Prefix + "models"
	pathStop     = Prefix + "stop"
	pathLoad     = Prefix + "adapters/load"
	pathUnload   = Prefix + "adapters/unload"
	pathHas      = Prefix + "has"
	pathIDs      = Prefix + "ids"
	pathGenerate = Prefix + "generate"
)

// New is the endpoints over host, for requests that carry token.
func New(host Host, token string) http.Handler {
	a := &api{host}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathModels, a.models)
	mux.HandleFunc("POST "+pathStop, a.stop)
	mux.HandleFunc("POST "+pathLoad, a.load)
	mux.HandleFunc("POST "+pathUnload, a.unload)
	mux.HandleFunc("POST "+pathHas, a.has)
	mux.HandleFunc("POST "+pathIDs, a.ids)
	mux.HandleFunc("POST "+pathGenerate, a.generate)
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if token == "" || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

type api struct{ host Host }

// wireError carries a contract.Error.
type wireError struct {
	Kind    int32  `json:"kind"`
	Subject string `json:"subject"`
	Message string `json:"message"`
	Next    string `json:"next"`
}

// event is one line of a generation: a delta, or at last the result or an error.
type event struct {
	Delta  *generate.Delta  `json:"delta,omitempty"`
	Result *generate.Result `json:"result,omitempty"`
	Error  *wireError       `json:"error,omitempty"`
}

type stopRequest struct {
	Model string `json:"model"`
}

type stopResponse struct {
	Model string `json:"model"`
	Open  bool   `json:"open"`
}

// adapterRequest is of an adapter of a model; empty: the only one, or the one that has it.
type adapterRequest struct {
	Model   string  `json:"model"`
	Adapter Adapter `json:"adapter"`
}

type hasResponse struct {
	HasTemplate bool `json:"has_template"`
}

// idsRequest asks for a conversation's ids, or a bare text's.
type idsRequest struct {
	Key          string             `json:"key"`
	Conversation *chat.Conversation `json:"conversation,omitempty"`
	Text         string             `json:"text,omitempty"`
	Special      bool               `json:"special,omitempty"`
}

type generateRequest struct {
	Key      string            `json:"key"`
	Prompt   generate.Prompt   `json:"prompt"`
	Settings generate.Settings `json:"settings"`
}

func (a *api) models(w http.ResponseWriter, _ *http.Request) { answer(w, a.host.Running(), nil) }

func (a *api) stop(w http.ResponseWriter, r *http.Request) {
	var q stopRequest
	if !read(w, r, &q) {
		return
	}
	name, open, err := a.host.Stop(r.Context(), q.Model)
	answer(w, stopResponse{name, open}, err)
}

func (a *api) load(w http.ResponseWriter, r *http.Request) {
	var q adapterRequest
	if read(w, r, &q) {
		answer(w, struct{}{}, a.host.LoadAdapter(r.Context(), q.Model, q.Adapter))
	}
}

func (a *api) unload(w http.ResponseWriter, r *http.Request) {
	var q adapterRequest
	if read(w, r, &q) {
		answer(w, struct{}{}, a.host.UnloadAdapter(r.Context(), q.Model, q.Adapter.ID))
	}
}

func (a *api) has(w http.ResponseWriter, r *http.Request) {
	var q idsRequest
	if !read(w, r, &q) {
		return
	}
	m, release, err := a.host.Borrow(q.Key)
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer release()
	answer(w, hasResponse{m.HasTemplate()}, m.Ready(r.Context()))
}

func (a *api) ids(w http.ResponseWriter, r *http.Request) {
	var q idsRequest
	if !read(w, r, &q) {
		return
	}
	m, release, err := a.host.Borrow(q.Key)
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer release()
	var p generate.Prompt
	if q.Conversation != nil {
		p, err = m.Prompt(*q.Conversation)
	} else {
		p.IDs, err = m.Encode(q.Text, q.Special)
	}
	answer(w, p, err)
}

func (a *api) generate(w http.ResponseWriter, r *http.Request) {
	var q generateRequest
	if !read(w, r, &q) {
		return
	}
	m, release, err := a.host.Borrow(q.Key)
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer release()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, flush := json.NewEncoder(w), http.NewResponseController(w)
	result, err := m.Generate(r.Context(), q.Prompt, q.Settings, func(d generate.Delta) error {
		if err := out.Encode(event{Delta: &d}); err != nil {
			return contract.Errorf(contract.Cancelled, "client", "%w", err)
		}
		_ = flush.Flush() // a writer that cannot flush gives it all at the end
		return nil
	})
	last := event{Result: &result}
	if err != nil {
		last = event{Error: wire(err)}
	}
	_ = out.Encode(last) // a client that left needs no answer
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		answer(w, nil, contract.Errorf(contract.InvalidArgument, "body", "%w", err))
		return false
	}
	return true
}

func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(contract.KindOf(err).HTTPStatus())
		v = event{Error: wire(err)}
	}
	_ = json.NewEncoder(w).Encode(v) // a client that left needs no answer
}
