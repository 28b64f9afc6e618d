package loader

import (
	"context"
	"crypto/rand"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// Generate runs one request. Settings that are absent come from the model's files. emit is called from this goroutine, in
// order; its error ends the request. A prompt that leaves no room in the context is ContextTooLong; a max_tokens beyond
// the room ends with finish reason length.
func (m *Model) Generate(ctx context.Context, p generate.Prompt, request generate.Settings, emit func(generate.Delta) error) (generate.Result, error) {
	return m.GenerateLayers(ctx, p, generate.Layers{Request: request}, emit)
}

// GenerateLayers is Generate with server settings below the request's. The model's and family's layers are its own.
func (m *Model) GenerateLayers(ctx context.Context, p generate.Prompt, layers generate.Layers, emit func(generate.Delta) error) (generate.Result, error) {
	room, err := m.room(len(p.IDs))
	if err != nil {
		return generate.Result{}, err
	}
	release, err := m.admitRequest(ctx)
	if err != nil {
		return generate.Result{}, err
	}
	defer release()
	if _, err := m.alive(ctx); err != nil { // its options decide what may be asked
		return generate.Result{}, err
	}
	if layers.Request.Constraint, err = m.text.held(p, layers.Request.Constraint); err != nil {
		return generate.Result{}, err
	}
	layers.Model, layers.Family = m.files, m.family
	layers.NoThinking, layers.TemperatureCap = p.Thinking != nil && !*p.Thinking, m.decision.Family.Record.NoThinkTemperatureCap()
	settings, err := generate.Resolve(layers, m.honours)
	if err != nil {
		return generate.Result{}, err
	}
	if len(settings.Stop) > 0 && m.text.err != nil {
		return generate.Result{}, m.text.err
	}
	adaptersDone, err := m.useAdapters(settings.Adapter)
	if err != nil {
		return generate.Result{}, err
	}
	defer adaptersDone()
	if settings.MaxTokens != nil {
		room = min(room, *settings.MaxTokens)
	}
	stops := m.stopIDs
	if settings.IgnoreEOS != nil && *settings.IgnoreEOS {
		stops = nil
	}
	reader, err := newReader(m.text, p, settings.Stop, emit)
	if err != nil {
		return generate.Result{}, err
	}
	start := settings.Start("r-"+rand.Text(), stops, room)
	if m.honours(restorePoints) {
		start.RestorePoints = p.Borders
	}
	run := &request{model: m, ids: p.IDs, start: start, limit: room, reader: reader}
	finish, err := run.run(ctx)
	if err != nil {
		return generate.Result{}, m.blame(ctx, err)
	}
	m.breaker.Worked()
	return run.result(finish, append(settings.Notes, p.Notes...)), nil
}

// room is how many tokens fit behind a prompt.
func (m *Model) room(prompt int) (uint32, error) {
	limit := int(m.Facts().GetContextLength())
	switch {
	case prompt == 0:
		return 0, contract.Errorf(contract.InvalidArgument, "prompt", "has no tokens")
	case prompt >= limit:
		return 0, contract.Errorf(contract.ContextTooLong, "prompt", "has %d tokens and leaves no room in the context of %d", prompt, limit).
			WithNext("shorten it, or open the model with a larger --context")
	}
	return uint32(limit - prompt), nil
}

// honours reports whether the present plugin declares a request option.
func (m *Model) honours(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.declared[path]
}

// blame gives an error that came of an ended context the context's own cause.
func (m *Model) blame(ctx context.Context, err error) error {
	if ctx.Err() != nil && contract.KindOf(err) == contract.Cancelled {
		return cancelled(ctx, m.decision.Model.ID)
	}
	return err
}
