package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// ask is one request.
type ask struct {
	ids   []int32
	start func(*cladev1.GenerateStart)
	// on is called after every step with the count of tokens so far, and may send a control message.
	on func(tokens int, send func(*cladev1.Control) error) error
	// early is sent right behind the prompt.
	early *cladev1.Control
	chunk int  // ids of one message; 0 is many
	short bool // the composition allows a shorter answer than the request
}

// answer is what came back, already held to the rules of every stream.
type answer struct {
	ids      []int32
	logprobs []*cladev1.TokenLogprobs
	finish   *cladev1.Finish
	lastAt   time.Time // of the last token
	endAt    time.Time
}

// start is a request that samples greedily and does not end by itself, as far as the plugin declares the options.
func (s *subject) start(edit func(*cladev1.GenerateStart)) *cladev1.GenerateStart {
	s.serial++
	g := &cladev1.GenerateStart{RequestId: fmt.Sprintf("check-%d", s.serial)}
	in := &cladev1.Sampling{}
	if s.declared["max_tokens"] {
		g.MaxTokens = proto.Uint32(usualTokens)
	}
	if s.declared["sampling.temperature"] {
		in.Temperature = proto.Float64(0)
		g.Sampling = in
	}
	if s.declared["sampling.ignore_eos"] {
		in.IgnoreEos = proto.Bool(true)
		g.Sampling = in
	}
	if edit != nil {
		edit(g)
	}
	return g
}

// usualTokens is the length of most answers, usualPrompt of most prompts.
const (
	usualTokens = 12
	usualPrompt = 40
)

func sampling(g *cladev1.GenerateStart) *cladev1.Sampling {
	if g.Sampling == nil {
		g.Sampling = &cladev1.Sampling{}
	}
	return g.Sampling
}

// prompt is n ids that repeat no short pattern and end nothing; salt makes another one.
func (s *subject) prompt(n, salt int) []int32 {
	vocab := int(max(1, s.facts.GetVocabSize()))
	out := make([]int32, 0, n)
	for i := 0; len(out) < n; i++ {
		id := int32((i*i*31 + i*7 + 11 + salt*101) % vocab)
		if !slices.Contains(s.facts.GetEosTokenIds(), id) || vocab == 1 {
			out = append(out, id)
		}
	}
	return out
}

// recvFrom receives under the watchdog and notes the longest pause.
func recvFrom[M proto.Message](s *subject, where string, cancel context.CancelCauseFunc, recv func() (M, error)) (M, error) {
	began := time.Now()
	t := time.AfterFunc(s.limits.silence, func() {
		cancel(fmt.Errorf("nothing came for %s: a heartbeat is due once a second", s.limits.silence))
	})
	m, err := recv()
	t.Stop()
	if pause := time.Since(began); pause > s.longest {
		s.longest, s.where = pause, where
	}
	if err == nil {
		if size := proto.Size(m); size > contract.MessageBudget {
			return m, fmt.Errorf("a message of %d bytes; %d is the limit", size, contract.MessageBudget)
		}
	}
	return m, err
}

// generate runs one request to its end. An error of the plugin is a *contract.Error; one of the stream's own rules is not.
func (s *subject) generate(ctx context.Context, p *process, a ask) (*answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := p.rpc.Generate(ctx)
	if err != nil {
		return nil, contract.FromStatus(err)
	}
	start := s.start(a.start)
	messages := []*cladev1.GenerateRequest{{Message: &cladev1.GenerateRequest_Start{Start: start}}}
	chunk := a.chunk
	if chunk == 0 {
		chunk = 4096
	}
	for part := range slices.Chunk(a.ids, chunk) {
		messages = append(messages, &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Ids{Ids: &cladev1.IdsChunk{Ids: part}}})
	}
	messages = append(messages, &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}})
	if a.early != nil {
		messages = append(messages, &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Control{Control: a.early}})
	}
	for _, m := range messages {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			return nil, contract.FromStatus(err)
		}
	}
	r := &reader{subject: s, start: start, prompt: len(a.ids), on: a.on, cancel: cancel, stopping: a.early != nil, short: a.short}
	if start.GeneratedPrefix != nil {
		r.prompt = int(start.GetGeneratedPrefix())
	}
	r.given = len(a.ids)
	out, err := r.read(stream)
	if err != nil && ctx.Err() != nil && context.Cause(ctx) != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		err = context.Cause(ctx)
	}
	if dead := p.died(err); dead != nil {
		return out, dead
	}
	return out, err
}

// reader holds one stream to the rules.
type reader struct {
	subject  *subject
	start    *cladev1.GenerateStart
	prompt   int // where the answer begins
	given    int
	on       func(int, func(*cladev1.Control) error) error
	cancel   context.CancelCauseFunc
	stopping bool // the host named a last token
	short    bool
	prefill  uint32
	out      answer
}

func (r *reader) read(stream grpc.BidiStreamingClient[cladev1.GenerateRequest, cladev1.GenerateResponse]) (*answer, error) {
	stall := r.subject.limits.stall
	watch := time.AfterFunc(stall, func() {
		r.cancel(fmt.Errorf("nothing but heartbeats came for %s: the request does not begin, or does not go on", stall))
	})
	defer watch.Stop()
	for {
		m, err := recvFrom(r.subject, "Generate", r.cancel, stream.Recv)
		if m.GetProgress() == nil {
			watch.Reset(stall)
		}
		switch {
		case errors.Is(err, io.EOF):
			r.out.endAt = time.Now()
			return &r.out, r.ended()
		case err != nil:
			r.out.endAt = time.Now()
			return &r.out, contract.FromStatus(err)
		case r.out.finish != nil:
			return &r.out, errors.New("a message came behind the finish event, which is the last one")
		}
		switch e := m.Event.(type) {
		case *cladev1.GenerateResponse_Step:
			if err := r.step(e.Step); err != nil {
				return &r.out, err
			}
			if r.on == nil {
				continue
			}
			err := r.on(len(r.out.ids), func(c *cladev1.Control) error {
				r.stopping = true
				return stream.Send(&cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Control{Control: c}})
			})
			if err != nil {
				return &r.out, err
			}
		case *cladev1.GenerateResponse_Prefill:
			if err := r.progress(e.Prefill); err != nil {
				return &r.out, err
			}
		case *cladev1.GenerateResponse_Finish:
			r.out.finish = e.Finish
		case *cladev1.GenerateResponse_Progress:
		default:
			return &r.out, errors.New("a message without an event")
		}
	}
}

func (r *reader) step(step *cladev1.TokenStep) error {
	vocab := r.subject.facts.GetVocabSize()
	for _, id := range step.Ids {
		if id < 0 || uint32(id) >= vocab {
			return fmt.Errorf("generated id %d, which is not in the vocabulary of %d", id, vocab)
		}
	}
	want := 0
	if r.start.Logprobs != nil {
		want = len(step.Ids)
	}
	if len(step.Logprobs) != want {
		return fmt.Errorf("a step of %d tokens with %d logprobs, %d are due", len(step.Ids), len(step.Logprobs), want)
	}
	r.out.ids = append(r.out.ids, step.Ids...)
	r.out.logprobs = append(r.out.logprobs, step.Logprobs...)
	r.out.lastAt = time.Now()
	if most := r.start.MaxTokens; most != nil && len(r.out.ids)+r.given-r.prompt > int(*most) {
		return fmt.Errorf("max_tokens %d: %d tokens came", *most, len(r.out.ids)+r.given-r.prompt)
	}
	return nil
}

func (r *reader) progress(p *cladev1.PrefillProgress) error {
	switch {
	case p.Done < r.prefill:
		return fmt.Errorf("prefill progress fell from %d to %d", r.prefill, p.Done)
	case p.Done > p.Total || p.Cached > p.Total:
		return fmt.Errorf("prefill progress of %d done and %d cached of %d", p.Done, p.Cached, p.Total)
	case int(p.Total) != r.given:
		return fmt.Errorf("prefill progress of %d tokens in all for %d ids", p.Total, r.given)
	}
	r.prefill = p.Done
	return nil
}

// ended holds the finish event to what came before it.
func (r *reader) ended() error {
	f := r.out.finish
	if f == nil {
		return errors.New("the stream ended without a finish event")
	}
	made := r.given - r.prompt + len(r.out.ids)
	u := f.Usage
	switch {
	case f.Reason == cladev1.FinishReason_FINISH_REASON_UNSPECIFIED:
		return errors.New("the finish event has no reason")
	case u == nil:
		return errors.New("the finish event has no usage")
	case int(u.PromptTokens) != r.prompt:
		return fmt.Errorf("usage states %d prompt tokens, %d were sent", u.PromptTokens, r.prompt)
	case int(u.GeneratedTokens) > made || int(u.GeneratedTokens) != made && !r.stopping:
		return fmt.Errorf("usage states %d generated tokens, %d came", u.GeneratedTokens, made)
	case u.CachedTokens > uint32(r.given):
		return fmt.Errorf("usage states %d cached tokens of %d", u.CachedTokens, r.given)
	case f.Reason == cladev1.FinishReason_FINISH_REASON_LENGTH && r.start.MaxTokens != nil && made < int(*r.start.MaxTokens) &&
		r.prompt+made < int(r.subject.facts.GetContextLength()) && !r.short:
		return fmt.Errorf("finish reason LENGTH after %d of %d tokens", made, *r.start.MaxTokens)
	}
	return nil
}

// straight is the greedy answer to a prompt by the shared process, asked once.
func (s *subject) straight(ctx context.Context, p *process, n, salt int) (*answer, error) {
	key := fmt.Sprint(n, salt)
	if a := s.answers[key]; a != nil {
		return a, nil
	}
	a, err := s.generate(ctx, p, ask{ids: s.prompt(n, salt)})
	if err != nil {
		return nil, err
	}
	if len(a.ids) == 0 {
		return nil, undeclared("the model ends at once, and the plugin declares no sampling.ignore_eos")
	}
	s.answers[key] = a
	return a, nil
}

// equal compares an answer with another: all of it in deterministic mode, else the first token, which rounding hardly moves.
func (s *subject) equal(what string, want, got []int32) error {
	if !s.exact {
		want, got = want[:min(1, len(want))], got[:min(1, len(got))]
	}
	if slices.Equal(want, got) {
		return nil
	}
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	return fmt.Errorf("%s: token %d is %s, %s was due (%d and %d tokens)", what, at, tokenAt(got, at), tokenAt(want, at), len(got), len(want))
}

func tokenAt(ids []int32, at int) string {
	if at >= len(ids) {
		return "missing"
	}
	return fmt.Sprint(ids[at])
}

// refusal holds an error to a Kind and, when subject is not empty, to what it is about.
func refusal(err error, kinds []contract.Kind, subject string) error {
	var e *contract.Error
	switch {
	case err == nil:
		return errors.New("is accepted")
	case !errors.As(err, &e):
		return err
	case !slices.Contains(kinds, e.Kind):
		return fmt.Errorf("is refused as %s (%s), %s is due", e.Kind, e.Error(), kindNames(kinds))
	case subject != "" && !containsWord(e.Subject, subject):
		return fmt.Errorf("is refused (%s), but the error's subject %q does not name %s", e.Error(), e.Subject, subject)
	}
	return nil
}
