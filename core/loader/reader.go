package loader

import (
	"crypto/rand"
	"errors"
	"io"
	"strings"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/chat/reply"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/tokenizer"
)

// reader turns the plugin's events into deltas: ids into text, text up to a stop string, and a reply into its reasoning, its
// answer and its calls. Without a tokenizer they hold ids alone.
type reader struct {
	tokenizer *tokenizer.Tokenizer // and stream: nil for a model without text
	noText    string               // why it has none
	stream    *tokenizer.Stream
	filter    *chat.StopFilter
	reply     *reply.Reader // nil when all is text
	marks     map[int32]string
	emit      func(generate.Delta) error
	control   func(*cladev1.Control) error
	moved     func() // is told that tokens came

	ids      []int32
	calls    []generate.ToolCall
	problems []string
	text     strings.Builder
	thought  strings.Builder
	stopped  bool
}

func newReader(t *text, p generate.Prompt, stops []string, emit func(generate.Delta) error) (*reader, error) {
	r := &reader{tokenizer: t.tokenizer, filter: chat.NewStopFilter(stops), emit: emit, marks: map[int32]string{}}
	if t.tokenizer == nil {
		r.noText = t.err.Error()
		return r, nil
	}
	r.stream = t.tokenizer.NewStream(true)
	if !p.Reply {
		return r, nil
	}
	format, err := t.format(p)
	if err != nil {
		return nil, err
	}
	for mark := range format.Tokens {
		id, _ := t.tokenizer.ID(mark)
		r.marks[id] = mark
	}
	r.reply = reply.NewReader(format, p.Inside)
	return r, nil
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
	var parts []reply.Part
	for i, id := range step.GetIds() {
		delta.IDs = append(delta.IDs, id)
		if i < len(step.GetLogprobs()) {
			delta.Logprobs = append(delta.Logprobs, r.logprobs(step.GetLogprobs()[i]))
		}
		r.ids = append(r.ids, id)
		parts = append(parts, r.token(id)...)
		if r.stopped {
			last := &cladev1.Control{Action: &cladev1.Control_StopAt{StopAt: uint32(len(r.ids) - 1)}}
			if err := r.control(last); err != nil {
				return err
			}
			break
		}
	}
	if r.stopped {
		parts = append(parts, r.endReply()...)
	}
	return r.pass(delta, parts)
}

// token gives the parts that one more token makes certain.
func (r *reader) token(id int32) []reply.Part {
	if r.stream == nil {
		return nil
	}
	piece := r.stream.Push(id)
	if mark, ok := r.marks[id]; ok {
		// What was held for a stop string comes before the marker, which is no text.
		return append(r.split(reply.Piece{Text: piece + r.filter.Flush()}), r.split(reply.Piece{Token: mark})...)
	}
	text, stopped := r.filter.Push(piece)
	r.stopped = stopped
	return r.split(reply.Piece{Text: text})
}

func (r *reader) split(p reply.Piece) []reply.Part {
	switch {
	case p == reply.Piece{}:
		return nil
	case r.reply == nil:
		return []reply.Part{{Text: p.Text}}
	}
	return r.reply.Push(p)
}

func (r *reader) endReply() []reply.Part {
	if r.reply == nil {
		return nil
	}
	return r.reply.End()
}

// flush gives what was held back when no more tokens come. A stop string that only the last held characters complete still
// stops.
func (r *reader) flush() error {
	if r.stopped || r.stream == nil {
		return nil
	}
	text, stopped := r.filter.Push(r.stream.Flush())
	r.stopped = stopped
	if !stopped {
		text += r.filter.Flush()
	}
	parts := append(r.split(reply.Piece{Text: text}), r.endReply()...)
	if len(parts) == 0 {
		return nil
	}
	return r.pass(generate.Delta{}, parts)
}

// pass emits parts in their order, as few deltas as that allows; ids and log probabilities go with the first.
func (r *reader) pass(delta generate.Delta, parts []reply.Part) error {
	for _, p := range parts {
		if p.Problem != "" {
			r.problems = append(r.problems, p.Problem)
		}
		late := p.Reasoning != "" && (delta.Text != "" || len(delta.Calls) > 0) || p.Text != "" && len(delta.Calls) > 0
		if late {
			if err := r.emit(delta); err != nil {
				return err
			}
			delta = generate.Delta{}
		}
		delta.Reasoning += p.Reasoning
		delta.Text += p.Text
		r.thought.WriteString(p.Reasoning)
		r.text.WriteString(p.Text)
		if p.Call != nil {
			call := generate.ToolCall{ID: newCallID(), Call: *p.Call}
			delta.Calls = append(delta.Calls, call)
			r.calls = append(r.calls, call)
		}
	}
	return r.emit(delta)
}

// newCallID has nine letters and digits: what every template that looks at it accepts.
func newCallID() string { return strings.ToLower(rand.Text()[:9]) }

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
		out.Bytes = r.tokenizer.TokenBytes(id)
	}
	return out
}

func (r *reader) result(finish *cladev1.Finish, notes []string) generate.Result {
	out := generate.Result{
		Text: r.text.String(), Reasoning: r.thought.String(), Calls: r.calls, IDs: r.ids, NoText: r.noText, Finish: generate.FinishStop,
		Stop: r.filter.Matched(), Usage: generate.UsageOf(finish.GetUsage()),
		Provenance: generate.ProvenanceOf(finish.GetProvenance(), append(notes, r.problems...)),
	}
	switch {
	case finish.GetReason() == cladev1.FinishReason_FINISH_REASON_LENGTH && !r.stopped:
		out.Finish = generate.FinishLength
	case len(out.Calls) > 0:
		out.Finish = generate.FinishToolCalls
	}
	if r.stopped {
		out.Usage.GeneratedTokens = uint32(len(r.ids))
	}
	return out
}
