package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// probeTimeout is what an engine gets to answer a probe: health says within two seconds that one is dead or stuck.
const probeTimeout = 1500 * time.Millisecond

// modelHealth is one model as health reports it.
type modelHealth struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Error string `json:"error,omitempty"`
}

// health answers 200 while every opened model can generate: an engine that is dead, stuck or not ready yet is 503, so is a
// drain.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	out := struct {
		Status string        `json:"status"`
		Models []modelHealth `json:"models"`
	}{Status: "ok", Models: make([]modelHealth, len(s.registry.models))}
	var probes sync.WaitGroup
	for i, m := range s.registry.models {
		probes.Go(func() {
			state, err := m.health(ctx)
			out.Models[i] = modelHealth{ID: m.name, State: state}
			if err != nil {
				out.Models[i].Error = err.Error()
			}
		})
	}
	probes.Wait()
	for _, m := range out.Models {
		if m.Error != "" {
			out.Status = "unhealthy"
		}
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
