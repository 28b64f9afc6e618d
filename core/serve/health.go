package serve

import (
	"encoding/json"
	"net/http"
)

// health answers 200 while every opened model can generate: an engine that is dead or not ready yet is 503, so is a drain.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID    string `json:"id"`
		State string `json:"state"`
		Error string `json:"error,omitempty"`
	}
	out := struct {
		Status string  `json:"status"`
		Models []model `json:"models"`
	}{Status: "ok", Models: []model{}}
	for _, m := range s.registry.models {
		state, err := m.health()
		entry := model{ID: m.name, State: state}
		if err != nil {
			entry.Error, out.Status = err.Error(), "unhealthy"
		}
		out.Models = append(out.Models, entry)
	}
	if s.drain.isDraining() {
		out.Status = "draining"
	}
	status := http.StatusOK
	if out.Status != "ok" {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out) // a prober that left needs no answer
}
