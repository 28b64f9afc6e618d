package openai

import (
	"encoding/json"
	"net/http"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// sse writes server-sent events. Headers go out with the first event, so that an error before it keeps its status.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (s *sse) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return contract.Errorf(contract.Internal, "event", "%w", err)
	}
	return s.raw(data)
}

func (s *sse) raw(data []byte) error {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-cache")
		s.w.Header().Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	for _, part := range [][]byte{[]byte("data: "), data, []byte("\n\n")} {
		if _, err := s.w.Write(part); err != nil {
			return contract.Errorf(contract.Cancelled, "stream", "the client went away: %w", err)
		}
	}
	if err := s.control.Flush(); err != nil {
		return contract.Errorf(contract.Cancelled, "stream", "the client went away: %w", err)
	}
	return nil
}

// fail ends the response with err: a status if nothing was sent, else a last data event.
func (s *sse) fail(err error) {
	if !s.begun {
		WriteError(s.w, err)
		return
	}
	_, body := bodyOf(err)
	_ = s.send(map[string]errorBody{"error": body}) // the client may be gone
}

// chunkWithUsage is a chunk of a stream that was asked for usage: every chunk has the field, null but in the last.
type chunkWithUsage struct {
	response
	Usage *usage `json:"usage"`
}

func (c completion) stream(w http.ResponseWriter, r *http.Request, model Model, ids []int32, q *chatRequest) {
	out := &sse{w: w, control: http.NewResponseController(w)}
	send := func(chunk response) error {
		if q.includeUsage {
			return out.send(chunkWithUsage{response: chunk, Usage: chunk.Usage})
		}
		return out.send(chunk)
	}
	first := true
	result, err := model.Generate(r.Context(), ids, q.settings, func(d generate.Delta) error {
		if first {
			first = false
			if err := send(c.object("chat.completion.chunk", choice{Delta: &delta{Role: "assistant", Content: new(string)}})); err != nil {
				return err
			}
		}
		if d.Text == "" && !c.logprobs {
			return nil
		}
		ch := choice{Delta: &delta{Content: &d.Text}}
		if c.logprobs {
			ch.Logprobs = logprobsOf(d.Logprobs)
		}
		return send(c.object("chat.completion.chunk", ch))
	})
	if err != nil {
		out.fail(err)
		return
	}
	if err := c.end(send, out, first, q.includeUsage, result); err != nil {
		out.fail(err)
	}
}

// end sends the finishing chunk, the usage chunk if asked for, and [DONE].
func (c completion) end(send func(response) error, out *sse, empty, withUsage bool, result generate.Result) error {
	last := c.object("chat.completion.chunk", choice{Delta: &delta{}, FinishReason: &result.Finish})
	if empty {
		last.Choices[0].Delta = &delta{Role: "assistant", Content: new(string)}
	}
	last.Clade, last.SystemFingerprint = &result.Provenance, fingerprintOf(result.Provenance)
	if err := send(last); err != nil {
		return err
	}
	if withUsage {
		total := c.object("chat.completion.chunk")
		total.Usage = usageOf(result.Usage)
		if err := send(total); err != nil {
			return err
		}
	}
	return out.raw([]byte("[DONE]"))
}
