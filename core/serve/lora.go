package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/core/serve/openai"
	"github.com/clademl/clade/sdk/contract"
)

// loraBody is what vLLM's endpoints for adapters take, and beyond that the model, where several are served, and the scale.
type loraBody struct {
	Name    string   `json:"lora_name"`
	Path    string   `json:"lora_path"`
	InPlace bool     `json:"load_inplace"`
	Model   string   `json:"model"`
	Scale   *float64 `json:"scale"`
}

// adapterRoutes are the endpoints by which clients load and unload adapters.
func (s *Server) adapterRoutes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /v1/load_lora_adapter":   s.clientsAdapter(s.clientLoads),
		"POST /v1/unload_lora_adapter": s.clientsAdapter(s.clientUnloads),
	}
}

// clientsAdapter lets a client in where serve.adapter_dir says from which folder clients may load. Elsewhere what is loaded is this
// user's own affair, as everything of admin is.
func (s *Server) clientsAdapter(do func(ctx context.Context, q loraBody) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.o.AdapterDir == "" {
			openai.Refuse(w, http.StatusForbidden, "adapters_not_allowed",
				"clients of this server may load and unload no adapters; it must be started with --adapter-dir, the folder that they may load from")
			return
		}
		q, err := readLoRABody(r.Body)
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			openai.Refuse(w, http.StatusRequestEntityTooLarge, "request_too_large", err.Error())
			return
		}
		var said string
		if err == nil {
			said, err = do(r.Context(), q)
		}
		if err != nil {
			openai.WriteError(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, said) // a client that left needs no answer
	}
}

func readLoRABody(body io.Reader) (q loraBody, err error) {
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, inLoRABody(err)
	}
	if d.More() {
		return q, contract.Errorf(contract.InvalidArgument, "body", "something follows the object")
	}
	return q, nil
}

// inLoRABody says what json says of it without the names of Go.
func inLoRABody(err error) error {
	var other *json.UnmarshalTypeError
	switch {
	case errors.As(err, &other) && other.Field != "":
		want := map[string]string{"lora_name": "a text", "lora_path": "a text", "model": "a text", "load_inplace": "true or false", "scale": "a number"}[other.Field]
		e := contract.Errorf(contract.InvalidArgument, other.Field, "is a JSON %s, want %s", other.Value, want)
		e.Err = err
		return e
	case errors.As(err, &other), errors.Is(err, io.EOF):
		e := contract.Errorf(contract.InvalidArgument, "body", "is not a JSON object")
		e.Err = err
		return e
	}
	return contract.Errorf(contract.InvalidArgument, "body", "%w", err)
}

func (s *Server) clientLoads(ctx context.Context, q loraBody) (string, error) {
	switch {
	case q.Name == "":
		return "", contract.Errorf(contract.InvalidArgument, "lora_name", "is missing")
	case q.Path == "":
		return "", contract.Errorf(contract.InvalidArgument, "lora_path", "is missing")
	case q.InPlace:
		return "", contract.Errorf(contract.UnsupportedOption, "load_inplace", "requests that run would change their adapter").WithNext("unload it first")
	}
	var why *contract.Error
	if errors.As(contract.CheckAdapterID(q.Name), &why) {
		return "", contract.Errorf(why.Kind, "lora_name", "%s", why.Message)
	}
	folder, err := adapterFolder(s.o.AdapterDir, q.Path)
	if err != nil {
		return "", err
	}
	err = s.registry.loadAdapter(ctx, q.Model, Adapter{ID: q.Name, Path: folder, Scale: q.Scale})
	return fmt.Sprintf("Success: LoRA adapter '%s' added successfully.", q.Name), err
}

func (s *Server) clientUnloads(ctx context.Context, q loraBody) (string, error) {
	switch {
	case q.Name == "":
		return "", contract.Errorf(contract.InvalidArgument, "lora_name", "is missing")
	case q.Path != "" || q.InPlace || q.Scale != nil:
		return "", contract.Errorf(contract.UnsupportedOption, "body", "an adapter is unloaded by lora_name and model alone")
	}
	err := s.registry.unloadAdapter(ctx, q.Model, q.Name)
	return fmt.Sprintf("Success: LoRA adapter '%s' removed successfully.", q.Name), err
}

// LoadAdapter implements admin.Host: this user's own command line loads from any folder.
func (s *Server) LoadAdapter(ctx context.Context, model string, a admin.Adapter) error {
	return s.registry.loadAdapter(ctx, model, Adapter{ID: a.ID, Path: a.Path, Scale: a.Scale})
}

// UnloadAdapter implements admin.Host.
func (s *Server) UnloadAdapter(ctx context.Context, model, id string) error {
	return s.registry.unloadAdapter(ctx, model, id)
}
