package loader

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/tokenizer"
)

// Prompt renders a conversation with the model's template and tokenizes it. The template writes what begins a text, so the
// tokenizer adds nothing.
func (m *Model) Prompt(messages []map[string]any, kwargs map[string]any) ([]int32, error) {
	rendered, err := m.text.render(messages, chat.RenderOptions{AddGenerationPrompt: true, Kwargs: kwargs})
	if err != nil {
		return nil, err
	}
	return m.text.encode(rendered, false)
}

// Generate runs one request. Settings that are absent come from the model's files. emit is called from this goroutine, in
// order; its error ends the request. A prompt that leaves no room in the context is ContextTooLong; a max_tokens beyond
// the room ends with finish reason length.
func (m *Model) Generate(ctx context.Context, ids []int32, request generate.Settings, emit func(generate.Delta) error) (generate.Result, error) {
	return m.GenerateLayers(ctx, ids, generate.Layers{Request: request}, emit)
}

// GenerateLayers is Generate with server settings below the request's. The model's and family's layers are its own.
func (m *Model) GenerateLayers(ctx context.Context, ids []int32, layers generate.Layers, emit func(generate.Delta) error) (generate.Result, error) {
	room, err := m.room(len(ids))
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
	layers.Model, layers.Family = m.files, m.family
	settings, err := generate.Resolve(layers, m.honours)
	if err != nil {
		return generate.Result{}, err
	}
	if len(settings.Stop) > 0 && m.text.err != nil {
		return generate.Result{}, m.text.err
	}
	if settings.MaxTokens != nil {
		room = min(room, *settings.MaxTokens)
	}
	stops := m.stopIDs
	if settings.IgnoreEOS != nil && *settings.IgnoreEOS {
		stops = nil
	}
	run := &request{
		model: m, ids: ids, start: settings.Start("r-"+rand.Text(), stops, room), limit: room,
		reader: &reader{tokenizer: m.text.tokenizer, filter: chat.NewStopFilter(settings.Stop), emit: emit},
	}
	if m.text.tokenizer != nil {
		run.reader.stream = m.text.tokenizer.NewStream(true)
	}
	finish, err := run.run(ctx)
	if err != nil {
		return generate.Result{}, m.blame(ctx, err)
	}
	m.breaker.Worked()
	return run.result(finish, settings.Notes), nil
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

// reader turns the plugin's events into deltas. Without a tokenizer they hold ids alone.
type reader struct {
	tokenizer *tokenizer.Tokenizer // and stream: nil for a model without text
	stream    *tokenizer.Stream
	filter    *chat.StopFilter
	emit      func(generate.Delta) error
	control   func(*cladev1.Control) error
	moved     func() // is told that tokens came

	text    strings.Builder
	ids     []int32
	stopped bool
}

// read consumes the stream to its end and returns the finish event.
func (r *reader) read(stream Stream) (*cladev1.Finish, error) {
	var finish *cladev1.Finish
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && finish == nil:
			return nil, contract.Errorf(contract.Internal, "generate", "the plugin ended the stream without a finish event")
		case errors.Is(err, io.EOF):
			return finish, nil
		case err != nil:
			return nil, err
		}
		if step := event.GetStep(); step != nil && !r.stopped {
			r.moved()
			if err := r.step(step); err != nil {
				return nil, err
			}
		}
		if f := event.GetFinish(); f != nil {
			if err := r.flush(); err != nil {
				return nil, err
			}
			finish = f
		}
	}
}

// step takes the tokens of one event, up to the one that completes a stop string.
func (r *reader) step(step *cladev1.TokenStep) error {
	var delta generate.Delta
	for i, id := range step.GetIds() {
		var piece string
		if r.stream != nil {
			piece = r.stream.Push(id)
		}
		out, stopped := r.filter.Push(piece)
		delta.Text += out
		delta.IDs = append(delta.IDs, id)
		if i < len(step.GetLogprobs()) {
			delta.Logprobs = append(delta.Logprobs, r.logprobs(step.GetLogprobs()[i]))
		}
		r.ids = append(r.ids, id)
		if stopped {
			r.stopped = true
			last := &cladev1.Control{Action: &cladev1.Control_StopAt{StopAt: uint32(len(r.ids) - 1)}}
			if err := r.control(last); err != nil {
				return err
			}
			break
		}
	}
	r.text.WriteString(delta.Text)
	return r.emit(delta)
}

// flush gives what was held back when no more tokens come. A stop string that only the last held characters complete still
// stops.
func (r *reader) flush() error {
	if r.stopped || r.stream == nil {
		return nil
	}
	out, stopped := r.filter.Push(r.stream.Flush())
	r.stopped = stopped
	if !stopped {
		out += r.filter.Flush()
	}
	if out == "" {
		return nil
	}
	r.text.WriteString(out)
	return r.emit(generate.Delta{Text: out})
}

func (r *reader) logprobs(t *cladev1.TokenLogprobs) generate.TokenLogprobs {
	out := generate.TokenLogprobs{TokenLogprob: r.logprob(t.GetId(), t.GetLogprob())}
	for _, alt := range t.GetTop() {
		out.Top = append(out.Top, r.logprob(alt.GetId(), alt.GetLogprob()))
	}
	return out
}

func (r *reader) logprob(id int32, value float32) generate.TokenLogprob {
	out := generate.TokenLogprob{ID: id, Logprob: value}
	if r.tokenizer != nil {
		out.Text = r.tokenizer.Decode([]int32{id}, false)
	}
	return out
}

func (r *reader) result(finish *cladev1.Finish, notes []string) generate.Result {
	out := generate.Result{
		Text: r.text.String(), IDs: r.ids, Finish: generate.FinishStop,
		Stop: r.filter.Matched(), Usage: generate.UsageOf(finish.GetUsage()), Provenance: generate.ProvenanceOf(finish.GetProvenance(), notes),
	}
	if finish.GetReason() == cladev1.FinishReason_FINISH_REASON_LENGTH && !r.stopped {
		out.Finish = generate.FinishLength
	}
	if r.stopped {
		out.Usage.GeneratedTokens = uint32(len(r.ids))
	}
	return out
}

// HasTemplate reports whether the model, or its family, has a chat template.
func (m *Model) HasTemplate() bool { return m.text.template != nil || m.text.templateErr != nil }
