package openai

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// errorBody is OpenAI's error object.
type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Param   *string `json:"param"`
}

// paramError is an error about one field of the body; its path is the error's param.
type paramError struct {
	param string
	err   *contract.Error
}

func (e *paramError) Error() string { return e.err.Error() }
func (e *paramError) Unwrap() error { return e.err }

func badField(kind contract.Kind, param, format string, args ...any) error {
	return &paramError{param: param, err: contract.Errorf(kind, param, format, args...)}
}

// maxNamed is how many names a refusal lists.
const maxNamed = 16

// ModelNotFound refuses a name that is none of cards', and lists models and adapters apart.
func ModelNotFound(id string, cards []Card) error {
	var models, adapters []string
	for _, c := range cards {
		if c.Parent == "" {
			models = append(models, c.ID)
		} else {
			adapters = append(adapters, c.ID)
		}
	}
	there := few(models)
	if len(adapters) > 0 {
		there += "; adapters: " + few(adapters)
	}
	err := contract.Errorf(contract.NotFound, id, "no such model is served; there are %s", there).WithNext("GET /v1/models lists them")
	return &paramError{param: "model", err: err}
}

func few(names []string) string {
	if len(names) > maxNamed {
		names = append(names[:maxNamed:maxNamed], "and more")
	}
	return strings.Join(names, ", ")
}

// typeOf is OpenAI's type of an error: what kind of fault it is.
func typeOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

func bodyOf(err error) (int, errorBody) {
	kind := contract.KindOf(err)
	var e *contract.Error
	text := err.Error()
	if errors.As(err, &e) {
		text = e.Error()
	}
	code := strings.ReplaceAll(kind.String(), "-", "_")
	switch kind {
	case contract.ContextTooLong:
		code = "context_length_exceeded" // the code OpenAI's clients look for
	case contract.UnsupportedModelLoad:
		code = kind.String() // scripts of earlier systems match the hyphens
	}
	body := errorBody{Message: text, Type: typeOf(kind.HTTPStatus()), Code: &code}
	if kind == contract.MemoryAdmission {
		body.Type = "memory_admission"
	}
	var p *paramError
	switch {
	case errors.As(err, &p):
		body.Param = &p.param
		if p.param == "model" && kind == contract.NotFound {
			code = "model_not_found"
		}
	case e != nil && (kind == contract.InvalidArgument || kind == contract.UnsupportedOption) && e.Subject != "":
		body.Param = &e.Subject
	}
	return kind.HTTPStatus(), body
}

// RetryAfter tells the client to ask again where that may help: a queue empties, and a process that ended is followed by another.
func RetryAfter(w http.ResponseWriter, err error) {
	if kind := contract.KindOf(err); kind == contract.Busy || kind == contract.Unavailable {
		w.Header().Set("Retry-After", "1")
	}
}

// WriteError answers a request that has not been answered yet.
func WriteError(w http.ResponseWriter, err error) {
	status, body := bodyOf(err)
	RetryAfter(w, err)
	writeJSON(w, status, map[string]errorBody{"error": body})
}

// Refuse answers with a status of HTTP's own, such as 401 or 405, in the API's error shape.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]errorBody{"error": {Message: message, Type: typeOf(status), Code: &code}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(v)
}
