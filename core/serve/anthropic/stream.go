package anthropic

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// event is one server-sent event: its name and data.
type event struct {
	name string
	data map[string]any
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type toolBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// writer turns deltas into blocks, and into the events that describe them. blocks hold what was said so far.
type writer struct {
	blocks []any
	calls  int
	open   bool
}

func (w *writer) delta(d generate.Delta, send func(event) error) error {
	if d.Reasoning != "" {
		if err := w.extend(d.Reasoning, true, send); err != nil {
			return err
		}
	}
	if d.Text != "" {
		if err := w.extend(d.Text, false, send); err != nil {
			return err
		}
	}
	for _, c := range d.Calls {
		w.calls++
		if err := w.call(c, send); err != nil {
			return err
		}
	}
	return nil
}

// extend adds to the last block, or begins one.
func (w *writer) extend(text string, thought bool, send func(event) error) error {
	last := len(w.blocks) - 1
	var current any
	if w.open {
		current = w.blocks[last]
	}
	piece := map[string]any{"type": "text_delta", "text": text}
	if thought {
		piece = map[string]any{"type": "thinking_delta", "thinking": text}
	}
	switch b := current.(type) {
	case *textBlock:
		if !thought {
			b.Text += text
			return w.sendDelta(piece, send)
		}
	case *thinkingBlock:
		if thought {
			b.Thinking += text
			return w.sendDelta(piece, send)
		}
	}
	var begun any = &textBlock{Type: "text"}
	if thought {
		begun = &thinkingBlock{Type: "thinking"}
	}
	if err := w.begin(begun, send); err != nil {
		return err
	}
	return w.extend(text, thought, send)
}

func (w *writer) call(c generate.ToolCall, send func(event) error) error {
	b := &toolBlock{Type: "tool_use", ID: c.ID, Name: c.Name, Input: json.RawMessage("{}")}
	if err := w.begin(b, send); err != nil {
		return err
	}
	if err := w.sendDelta(map[string]any{"type": "input_json_delta", "partial_json": c.Arguments}, send); err != nil {
		return err
	}
	b.Input = json.RawMessage(c.Arguments)
	return w.end(send)
}

func (w *writer) begin(b any, send func(event) error) error {
	if err := w.end(send); err != nil {
		return err
	}
	w.blocks = append(w.blocks, b)
	w.open = true
	return send(event{"content_block_start", map[string]any{"index": len(w.blocks) - 1, "content_block": b}})
}

func (w *writer) sendDelta(d map[string]any, send func(event) error) error {
	return send(event{"content_block_delta", map[string]any{"index": len(w.blocks) - 1, "delta": d}})
}

func (w *writer) end(send func(event) error) error {
	if !w.open {
		return nil
	}
	w.open = false
	return send(event{"content_block_stop", map[string]any{"index": len(w.blocks) - 1}})
}

// pingEvery is how long a stream stays silent while something is generated that is not sent yet.
const pingEvery = 10 * time.Second

// sse writes events. Headers go out with the first, so that an error before it keeps its status.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	sent    time.Time
}

func (s *sse) send(e event) error {
	if e.data == nil {
		e.data = map[string]any{}
	}
	e.data["type"] = e.name
	data, err := json.Marshal(e.data)
	if err != nil {
		return contract.Errorf(contract.Internal, "event", "%w", err)
	}
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-cache")
		s.w.Header().Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	s.sent = time.Now()
	_, err = s.w.Write([]byte("event: " + e.name + "\ndata: " + string(data) + "\n\n"))
	if err == nil {
		err = s.control.Flush()
	}
	if err != nil {
		return contract.Errorf(contract.Cancelled, "stream", "the client went away: %w", err)
	}
	return nil
}

// serve streams the reply.
func (p *prepared) serve(w http.ResponseWriter, r *http.Request) {
	out := &sse{w: w, control: http.NewResponseController(w)}
	var blocks writer
	start := func() error {
		if out.begun {
			return nil
		}
		begun := newReply(p.name)
		begun.Usage.Input = uint32(len(p.prompt.IDs))
		return out.send(event{"message_start", map[string]any{"message": begun}})
	}
	result, err := p.engine.Generate(r.Context(), p.prompt, p.settings, func(d generate.Delta) error {
		if err := start(); err != nil {
			return err
		}
		if d.Text == "" && d.Reasoning == "" && len(d.Calls) == 0 && time.Since(out.sent) > pingEvery {
			return out.send(event{name: "ping"})
		}
		return blocks.delta(p.only(d, &blocks), out.send)
	})
	if err == nil {
		err = start()
	}
	if err == nil {
		err = finish(out, &blocks, result)
	}
	if err == nil {
		return
	}
	if !out.begun {
		writeError(w, err)
		return
	}
	_, body := bodyOf(err)
	_ = out.send(event{"error", map[string]any{"error": body.Error}}) // the client may be gone
}

func finish(out *sse, blocks *writer, result generate.Result) error {
	if err := blocks.end(out.send); err != nil {
		return err
	}
	reason, sequence := stopOf(result)
	err := out.send(event{"message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": reason, "stop_sequence": sequence}, "usage": usageOf(result.Usage), "clade": &result.Provenance,
	}})
	if err != nil {
		return err
	}
	return out.send(event{name: "message_stop"})
}
