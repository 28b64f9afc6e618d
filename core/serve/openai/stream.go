package openai

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// sse writes server-sent events. Headers go out with the first event, so that an error before it keeps its status.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	sent    time.Time
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
	return s.write([]byte("data: "), data, []byte("\n\n"))
}

// ping sends a comment when nothing was sent for long, so that nobody on the way takes the stream for dead.
func (s *sse) ping() error {
	if !s.begun || time.Since(s.sent) < pingEvery {
		return nil
	}
	return s.write([]byte(": generating\n\n"))
}

func (s *sse) write(parts ...[]byte) error {
	s.sent = time.Now()
	for _, part := range parts {
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

// pingEvery is how long a stream stays silent while something is generated that is not sent yet, such as a long call.
const pingEvery = 10 * time.Second

func (c completion) stream(w http.ResponseWriter, r *http.Request, model Model, prompts []generate.Prompt, q *chatRequest) {
	out := &sse{w: w, control: http.NewResponseController(w)}
	send := func(chunk response) error {
		if q.includeUsage {
			return out.send(chunkWithUsage{response: chunk, Usage: chunk.Usage})
		}
		return out.send(chunk)
	}
	jobs := jobsOf(prompts, q)
	begun, calls := make([]bool, len(jobs)), make([]int, len(jobs))
	results, err := runAll(r.Context(), model, jobs, func(i int, d generate.Delta) error {
		nothing := d.Text == "" && d.Reasoning == "" && len(d.Calls) == 0 && (!c.logprobs || len(d.Logprobs) == 0)
		if nothing && begun[i] {
			return out.ping()
		}
		ch := choice{Index: i}
		c.shape.piece(&ch, d, calls[i], !begun[i])
		if c.logprobs {
			ch.Logprobs = c.shape.logprobs(d.Logprobs)
		}
		begun[i] = true
		calls[i] += len(d.Calls)
		return send(c.object(c.shape.object(true), ch))
	})
	if err == nil {
		err = c.end(send, out, begun, q, results)
	}
	if err != nil {
		out.fail(err)
	}
}

// end sends the finishing chunks, the usage chunk if asked for, and [DONE].
func (c completion) end(send func(response) error, out *sse, begun []bool, q *chatRequest, results []generate.Result) error {
	for i, result := range results {
		ch := choice{Index: i, FinishReason: &result.Finish}
		c.shape.last(&ch, !begun[i])
		last := c.object(c.shape.object(true), ch)
		if i == len(results)-1 {
			last.Clade, last.SystemFingerprint = infoOf(results), fingerprintOf(results[0].Provenance)
		}
		if err := send(last); err != nil {
			return err
		}
	}
	if q.includeUsage {
		total := c.object(c.shape.object(true))
		total.Usage = usageOf(results, int(q.n))
		if err := send(total); err != nil {
			return err
		}
	}
	return out.raw([]byte("[DONE]"))
}
