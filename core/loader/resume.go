package loader

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// generatedPrefix is the option of a plugin that can go on with what another process of it began.
const generatedPrefix = "generated_prefix"

// conversionOffset is the option that holds a resumed request to the token at which its cache was coded before.
const conversionOffset = "kv_conversion_offset"

// Crashes in a row, without a token between them, that make a request a suspect, and those as the only request of a process
// that convict it. A process killed from outside convicts nobody at once: it may have been somebody's hand.
const (
	crashesToSuspect        = 2
	crashesToConvict        = 1
	outsideCrashesToConvict = 3
)

// deathGrace is how long a process that broke a stream may take to be reaped.
const deathGrace = 5 * time.Second

// request is one generation through as many processes as it takes: a process that dies is followed by another, which gets
// the prompt and what was generated so far, and the caller sees one stream.
type request struct {
	model  *Model
	ids    []int32
	start  *cladev1.GenerateStart // as the first process gets it
	limit  uint32                 // tokens to generate at most
	reader *reader
	// converts is the token at which the first process's cache went over to its codes; 0: it did not.
	converts uint32

	resumed bool
	// Of deaths in a row without a token between them: all, those alone in the process, and of these the ones from outside.
	crashes, alone, outside int
}

// run generates to the end.
func (r *request) run(ctx context.Context) (*cladev1.Finish, error) {
	for {
		seat, err := r.model.court.enter(ctx, r.crashes >= crashesToSuspect, r.model.decision.Model.ID)
		if err != nil {
			return nil, err
		}
		finish, planned, err := r.attempt(ctx, seat)
		alone := seat.leave()
		if err == nil {
			return finish, nil
		}
		if planned == nil || ctx.Err() != nil || !planned.died(err) {
			return nil, err
		}
		if finish := r.complete(); finish != nil {
			return finish, r.reader.flush()
		}
		if err := r.judge(err, alone); err != nil {
			return nil, err
		}
	}
}

// attempt runs the request, or what is left of it, in the present process. The process is nil if there is none.
func (r *request) attempt(ctx context.Context, seat *seat) (*cladev1.Finish, *Planned, error) {
	planned, err := r.model.alive(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Ending this context is what cancels the request in the plugin, whatever ends this call.
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	start, ids := r.start, r.ids
	if done := r.reader.ids; len(done) > 0 {
		start = proto.Clone(start).(*cladev1.GenerateStart)
		start.GeneratedPrefix = proto.Uint32(uint32(len(ids)))
		if r.converts > 0 && r.model.honours(conversionOffset) {
			start.KvConversionOffset = &r.converts
		}
		ids = slices.Concat(ids, done)
	} else {
		r.converts = uint32(planned.Composition.KV().Start)
	}
	stream, err := planned.process.Generate(inner, start, ids)
	if err != nil {
		return nil, planned, err
	}
	defer stream.Close()
	r.reader.control = stream.Control
	r.reader.moved = func() {
		if r.resumed {
			r.model.breaker.Worked()
		}
		r.crashes, r.alone, r.outside = 0, 0, 0
		seat.acquit()
	}
	finish, err := r.reader.read(stream)
	return finish, planned, err
}

// judge decides after a death: nil lets the request go on in the next process.
func (r *request) judge(cause error, alone bool) error {
	if len(r.reader.ids) > 0 && !r.model.honours(generatedPrefix) {
		return cause // another process could not go on from here
	}
	r.resumed = true
	r.crashes++
	if !alone {
		return nil
	}
	r.alone++
	if errors.Is(cause, supervise.ErrKilledFromOutside) {
		r.outside++
	}
	if r.alone-r.outside < crashesToConvict && r.outside < outsideCrashesToConvict {
		return nil
	}
	var known *contract.Error
	if !errors.As(cause, &known) {
		return cause
	}
	return contract.Errorf(known.Kind, known.Subject, "%s; the request is given up, as it ended the process also when it ran alone", known.Message).
		WithNext("%s", known.Next)
}

// complete is the finish of a request whose last token had come when the process died; nil if tokens are missing.
func (r *request) complete() *cladev1.Finish {
	n := uint32(len(r.reader.ids))
	reason := cladev1.FinishReason_FINISH_REASON_STOP
	switch {
	case r.reader.stopped:
	case n >= r.limit:
		reason = cladev1.FinishReason_FINISH_REASON_LENGTH
	default:
		return nil
	}
	return &cladev1.Finish{Reason: reason, Usage: &cladev1.Usage{PromptTokens: uint32(len(r.ids)), GeneratedTokens: n}}
}

// result is what the caller gets.
func (r *request) result(finish *cladev1.Finish, notes []string) generate.Result {
	out := r.reader.result(finish, notes)
	out.Provenance.Resumed = out.Provenance.Resumed || r.resumed
	return out
}

// died reports whether err came of the process's death.
func (p *Planned) died(err error) bool {
	if kind := contract.KindOf(err); kind != contract.PluginCrashed && kind != contract.OutOfMemory {
		return false
	}
	select {
	case <-p.process.Done():
		return true
	case <-time.After(deathGrace):
		return false
	}
}
