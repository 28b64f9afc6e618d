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

func modelNotFound(id string, cards []Card) error {
	err := contract.Errorf(contract.NotFound, id, "no such model is served; there are %s", Names(cards)).WithNext("GET /v1/models lists them")
	return &paramError{param: "model", err: err}
}

// Names lists models and adapters for a refusal.
func Names(cards []Card) string {
	var out []string
	for _, c := range cards[:min(len(cards), maxNamed)] {
		out = append(out, c.ID)
	}
	if len(cards) > maxNamed {
		out = append(out, "and more")
	}
	return strings.Join(out, ", ")
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

// WriteError answers a request that has not been answered yet.
func WriteError(w http.ResponseWriter, err error) {
	status, body := bodyOf(err)
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
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
