package plugin

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// heartbeat is the period of Progress; the host takes ten seconds of silence for a hang.
const heartbeat = time.Second

// errCancelled is the cause of a job's context after the host's cancel.
var errCancelled = contract.Errorf(contract.Cancelled, "", "cancelled by the host")

// beat queues make() once a second while nothing else waits; the returned func ends it and waits.
func beat[M proto.Message](out *outbox[M], message func() M) (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(heartbeat)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				if out.idle() {
					_ = out.push(message())
				}
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

// counts reads the Model's progress; a Model without counts is taken as alive for as long as it emits.
func counts(m Model) *cladev1.Progress {
	p, ok := m.(Progresser)
	if !ok {
		return &cladev1.Progress{}
	}
	e, t := p.Progress()
	return &cladev1.Progress{Evaluations: e, Tokens: t}
}

// Generate runs one request.
func (s *Server) Generate(stream grpc.BidiStreamingServer[cladev1.GenerateRequest, cladev1.GenerateResponse]) error {
	return contract.ToStatus(s.generate(stream))
}

func (s *Server) generate(stream grpc.BidiStreamingServer[cladev1.GenerateRequest, cladev1.GenerateResponse]) error {
	model, err := s.opened()
	if err != nil {
		return err
	}
	ctx, end, err := s.begin(stream.Context())
	if err != nil {
		return err
	}
	defer end()
	job, err := s.readGenerate(stream, model)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	control := make(chan *cladev1.Control, maxControlWait)
	job.Control = control
	// The reader ends when this handler returns, which ends the stream's Recv.
	go func() {
		if err := s.readControl(ctx, stream, control); err != nil {
			cancel(err)
		}
	}()

	defer s.pace.join()()
	out := newPacedOutbox(stream.Context(), stream.Send, mergeGenerate, s.pace, isStep)
	stop := beat(out, func() *cladev1.GenerateResponse {
		return &cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Progress{Progress: counts(model)}}
	})
	finished := false
	err = s.guard("Generate", func() error {
		return model.Generate(ctx, job, func(r *cladev1.GenerateResponse) error {
			finished = finished || r.GetFinish() != nil
			return out.push(r)
		})
	})
	stop()
	return s.conclude(ctx, err, out.close(), finished)
}

// conclude picks what the stream ends with: the job's own cause, the model's error, or the send's.
func (s *Server) conclude(ctx context.Context, err, sendErr error, finished bool) error {
	switch {
	case err != nil && ctx.Err() != nil && contract.KindOf(err) == contract.Cancelled:
		if cause := context.Cause(ctx); contract.KindOf(cause) != contract.Cancelled {
			return cause
		}
		return contract.Errorf(contract.Cancelled, "", "%w", err)
	case err != nil:
		return err
	case sendErr != nil:
		return sendErr
	case !finished:
		return contract.Errorf(contract.Internal, s.manifest.Name, "the model ended a request without its last event")
	}
	return nil
}

// readGenerate assembles start, ids and media up to prompt_end.
func (s *Server) readGenerate(stream grpc.BidiStreamingServer[cladev1.GenerateRequest, cladev1.GenerateResponse],
	model Model,
) (*GenerateJob, error) {
	p := &prompt{limit: int(model.Facts().GetContextLength())}
	job := &GenerateJob{}
	for {
		r, err := recv(s, stream.Recv)
		if err != nil {
			return nil, err
		}
		switch m := r.Message.(type) {
		case *cladev1.GenerateRequest_Start:
			if job.Start != nil {
				return nil, outOfOrder("start")
			}
			job.Start = m.Start
			err = s.declared(m.Start)
		case *cladev1.GenerateRequest_Ids:
			err = p.addIDs(m.Ids)
		case *cladev1.GenerateRequest_Media:
			if err = p.addMedia(m.Media); err == nil && !s.options["media"] {
				err = s.undeclared("media", "GenerateRequest")
			}
		case *cladev1.GenerateRequest_PromptEnd:
			job.IDs, job.Media = p.ids, p.media
			return job, p.end()
		case *cladev1.GenerateRequest_Control:
			if m.Control.GetCancel() {
				return nil, errCancelled
			}
			return nil, outOfOrder("control")
		default:
			return nil, outOfOrder("empty message")
		}
		if err != nil {
			return nil, err
		}
		if job.Start == nil {
			return nil, outOfOrder("message before start")
		}
	}
}

func outOfOrder(what string) error {
	return contract.Errorf(contract.InvalidArgument, what, "not allowed at this place of the stream")
}

// recv reads one checked message; a stream that ends before prompt_end is cancelled.
func recv[M proto.Message](s *Server, next func() (M, error)) (M, error) {
	m, err := next()
	switch {
	case errors.Is(err, io.EOF):
		return m, contract.Errorf(contract.InvalidArgument, "prompt_end", "the stream ended before it")
	case err != nil:
		return m, contract.Errorf(contract.Cancelled, "", "the host ended the stream: %w", err)
	}
	return m, s.known(m)
}

// readControl routes what comes after the prompt. An error ends the job with it; nil means the host will say no more.
func (s *Server) readControl(ctx context.Context,
	stream grpc.BidiStreamingServer[cladev1.GenerateRequest, cladev1.GenerateResponse], control chan<- *cladev1.Control,
) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errCancelled
		}
		if err := s.known(r); err != nil {
			return err
		}
		c := r.GetControl()
		switch {
		case c == nil || c.Action == nil:
			return outOfOrder("message after prompt_end")
		case c.GetCancel():
			return errCancelled
		}
		select {
		case control <- c:
		case <-ctx.Done():
			return nil
		}
	}
}

// isStep tells tokens from what nobody waits long for.
func isStep(r *cladev1.GenerateResponse) bool { return r.GetStep() != nil }

// mergeGenerate folds steps into one message while that stays under the budget (push counts both), and keeps only the newest of
// two progress events.
func mergeGenerate(into, next *cladev1.GenerateResponse) bool {
	switch b := next.Event.(type) {
	case *cladev1.GenerateResponse_Step:
		a := into.GetStep()
		if a == nil || (len(a.Logprobs) > 0) != (len(b.Step.Logprobs) > 0) {
			return false
		}
		a.Ids = append(a.Ids, b.Step.Ids...)
		a.Logprobs = append(a.Logprobs, b.Step.Logprobs...)
		return true
	case *cladev1.GenerateResponse_Progress:
		if into.GetProgress() == nil {
			return false
		}
	case *cladev1.GenerateResponse_Prefill:
		if into.GetPrefill() == nil {
			return false
		}
	default:
		return false
	}
	into.Event = next.Event
	return true
}

// Score runs one forward over the ids.
func (s *Server) Score(stream grpc.BidiStreamingServer[cladev1.ScoreRequest, cladev1.ScoreResponse]) error {
	return contract.ToStatus(s.score(stream))
}

func (s *Server) score(stream grpc.BidiStreamingServer[cladev1.ScoreRequest, cladev1.ScoreResponse]) error {
	model, err := s.opened()
	if err != nil {
		return err
	}
	ctx, end, err := s.begin(stream.Context())
	if err != nil {
		return err
	}
	defer end()
	start, ids, err := readIDs(s, stream.Recv, model)
	if err != nil {
		return err
	}
	job := &ScoreJob{Start: start, IDs: ids}
	out := newOutbox(stream.Context(), stream.Send, func(_, _ *cladev1.ScoreResponse) bool { return false })
	stop := beat(out, func() *cladev1.ScoreResponse {
		return &cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Progress{Progress: counts(model)}}
	})
	finished := false
	err = s.guard("Score", func() error {
		return model.Score(ctx, job, func(r *cladev1.ScoreResponse) error {
			finished = finished || r.GetDone() != nil
			return out.push(r)
		})
	})
	stop()
	return s.conclude(ctx, err, out.close(), finished)
}

// idsRequest is a message of an RPC that takes a start, then ids.
type idsRequest[S proto.Message] interface {
	proto.Message
	GetStart() S
	GetIds() *cladev1.IdsChunk
	GetPromptEnd() *cladev1.PromptEnd
}

// readIDs reads a request of Score or Embed up to its prompt's end.
func readIDs[S proto.Message, R idsRequest[S]](s *Server, receive func() (R, error), model Model) (start S, ids []int32, err error) {
	p := &prompt{limit: int(model.Facts().GetContextLength())}
	started := false
	for {
		r, err := recv(s, receive)
		if err != nil {
			return start, nil, err
		}
		switch first := r.GetStart(); {
		case first.ProtoReflect().IsValid():
			if started {
				return start, nil, outOfOrder("start")
			}
			start, started = first, true
			err = s.declared(first)
		case r.GetIds() != nil:
			err = p.addIDs(r.GetIds())
		case r.GetPromptEnd() != nil:
			return start, p.ids, nil
		default:
			return start, nil, outOfOrder("empty message")
		}
		if err != nil {
			return start, nil, err
		}
		if !started {
			return start, nil, outOfOrder("message before start")
		}
	}
}

// frameValues keeps a frame of float32 well under the message budget.
const frameValues = contract.MessageBudget / 8

// FrameRow cuts one position's values into frames.
func FrameRow(position uint32, row []float32) []*cladev1.ScoreFrame {
	var out []*cladev1.ScoreFrame
	for off := 0; off < len(row); off += frameValues {
		out = append(out, &cladev1.ScoreFrame{
			Position: position, Offset: uint32(off), Values: row[off:min(off+frameValues, len(row))],
		})
	}
	return out
}
