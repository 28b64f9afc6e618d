package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func otherChecks() []check {
	return []check{
		{"embed", "embeddings are finite, of one width, and repeat", (*subject).checkEmbed},
		{"tokenize", "its own tokenizer gives back what it was given", (*subject).checkTokenize},
		{"tune", "a share of threads is taken and changes no answer", (*subject).checkTune},
	}
}

func endChecks() []check {
	return []check{
		{"kill", "after a SIGKILL in mid-answer another process gives the same answer", (*subject).checkKill},
		{"drain", "Shutdown lets running requests finish for as long as it says, refuses new ones, and exits 0", (*subject).checkDrain},
		{"shutdown-now", "Shutdown without patience ends running requests as cancelled, and exits", (*subject).checkShutdownNow},
		{"outputs", "nothing follows the handshake on its standard output, and its standard error is in lines", (*subject).checkOutputs},
	}
}

func (s *subject) checkEmbed(ctx context.Context) error {
	if err := s.needs("Embed"); err != nil {
		return err
	}
	p, err := s.opened(ctx)
	if err != nil {
		return err
	}
	if s.record.Embedding == nil {
		return undeclared("the model's family gives none")
	}
	embed := func(ids []int32) ([]float32, error) {
		stream, err := p.rpc.Embed(ctx)
		if err != nil {
			return nil, contract.FromStatus(err)
		}
		for _, m := range []*cladev1.EmbedRequest{
			{Message: &cladev1.EmbedRequest_Start{Start: &cladev1.EmbedStart{}}},
			{Message: &cladev1.EmbedRequest_Ids{Ids: &cladev1.IdsChunk{Ids: ids}}},
			{Message: &cladev1.EmbedRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}},
		} {
			if stream.Send(m) != nil {
				break // the reason comes with the answer
			}
		}
		r, err := stream.CloseAndRecv()
		return r.GetValues(), contract.FromStatus(err)
	}
	one, err := embed(s.prompt(usualPrompt, 0))
	if err != nil {
		return err
	}
	again, err := embed(s.prompt(usualPrompt, 0))
	if err != nil {
		return err
	}
	other, err := embed(s.prompt(usualPrompt/2, 1))
	if err != nil {
		return err
	}
	if len(one) == 0 || len(one) != len(other) || len(one) != len(again) {
		return fmt.Errorf("widths are %d, %d and %d", len(one), len(again), len(other))
	}
	moved := false
	for i := range one {
		if math.IsNaN(float64(one[i])) || math.IsInf(float64(one[i]), 0) {
			return fmt.Errorf("value %d is %g", i, one[i])
		}
		if s.exact && one[i] != again[i] {
			return fmt.Errorf("value %d of the same ids is %g, then %g", i, one[i], again[i])
		}
		moved = moved || one[i] != other[i]
	}
	if !moved {
		return errors.New("other ids have the same embedding")
	}
	return nil
}

func (s *subject) checkTokenize(ctx context.Context) error {
	if err := s.needs("Tokenize"); err != nil {
		return err
	}
	p, err := s.opened(ctx)
	if err != nil {
		return err
	}
	for _, text := range []string{"Hello, world.", "naïve café, 東京 🙂\n\ttab"} {
		r, err := p.rpc.Tokenize(ctx, &cladev1.TokenizeRequest{Text: text, AddSpecialTokens: proto.Bool(false)})
		if err != nil {
			return fmt.Errorf("tokenize: %w", contract.FromStatus(err))
		}
		back, err := p.rpc.Detokenize(ctx, &cladev1.DetokenizeRequest{Ids: r.Ids, SkipSpecialTokens: proto.Bool(true)})
		if err != nil {
			return fmt.Errorf("detokenize: %w", contract.FromStatus(err))
		}
		if back.Text != text {
			return fmt.Errorf("%q comes back as %q", text, back.Text)
		}
	}
	return nil
}

func (s *subject) checkTune(ctx context.Context) error {
	if err := s.needs("Tune"); err != nil {
		return err
	}
	p, err := s.opened(ctx)
	if err != nil {
		return err
	}
	_, err = p.rpc.Tune(ctx, &cladev1.TuneRequest{Threads: proto.Uint32(0)})
	if wrong := refusal(contract.FromStatus(err), []contract.Kind{contract.InvalidArgument}, ""); wrong != nil {
		return fmt.Errorf("a share of 0 threads %w", wrong)
	}
	for _, n := range []uint32{1, someThreads} {
		r, err := p.rpc.Tune(ctx, &cladev1.TuneRequest{Threads: &n})
		if err != nil {
			return contract.FromStatus(err)
		}
		if r.Threads < 1 || r.Threads > n {
			return fmt.Errorf("a share of %d threads: %d are in force", n, r.Threads)
		}
		if s.rpcs["Generate"] {
			if err := s.works(ctx, p); err != nil {
				return fmt.Errorf("with a share of %d threads: %w", n, err)
			}
		}
	}
	return nil
}

func (s *subject) checkKill(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	want, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	q, _, err := s.open(ctx, s.spec)
	if err != nil {
		return err
	}
	_, err = s.generate(ctx, q, ask{
		ids: s.prompt(usualPrompt, 1), start: func(g *cladev1.GenerateStart) { g.MaxTokens = proto.Uint32(math.MaxUint32) },
		on: func(tokens int, _ func(*cladev1.Control) error) error {
			if tokens == 2 {
				killGroup(q.cmd.Process)
			}
			return nil
		},
	})
	q.kill()
	if err == nil {
		return nil // it was complete before the signal came
	}
	q, _, err = s.open(ctx, s.spec)
	if err != nil {
		return fmt.Errorf("after a SIGKILL: %w", err)
	}
	defer q.kill()
	got, err := s.generate(ctx, q, ask{ids: s.prompt(usualPrompt, 0)})
	if err != nil {
		return fmt.Errorf("after a SIGKILL: %w", err)
	}
	return s.equal("after a SIGKILL", want.ids, got.ids)
}

// ending opens a model, begins a request of tokens, shuts down behind its second token, and gives what became of the request
// and of the process.
func (s *subject) ending(ctx context.Context, tokens uint32, patience time.Duration) (a *answer, err error, late error, p *process, failed error) {
	if p, _, failed = s.open(ctx, s.spec); failed != nil {
		return nil, nil, nil, nil, failed
	}
	shutdown := make(chan error, 1)
	began := false
	a, err = s.generate(ctx, p, ask{
		ids: s.prompt(usualPrompt, 0), start: func(g *cladev1.GenerateStart) { g.MaxTokens = &tokens },
		on: func(n int, _ func(*cladev1.Control) error) error {
			if n < 2 || began {
				return nil
			}
			began = true
			go func() {
				inner, cancel := context.WithTimeout(ctx, patience+s.limits.exit)
				defer cancel()
				_, err := p.rpc.Shutdown(inner, &cladev1.ShutdownRequest{DrainNs: proto.Uint64(uint64(patience))})
				shutdown <- contract.FromStatus(err)
			}()
			return nil
		},
	})
	if !began {
		return a, err, nil, p, errors.New("fewer than two tokens came")
	}
	return a, err, <-shutdown, p, nil
}

func (s *subject) checkDrain(ctx context.Context) error {
	if _, err := s.generating(ctx); err != nil {
		return err
	}
	want, err := s.straight(ctx, s.shared, usualPrompt, 0)
	if err != nil {
		return err
	}
	a, err, late, p, failed := s.ending(ctx, usualTokens, s.limits.silence)
	if p != nil {
		defer p.kill()
	}
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return fmt.Errorf("a request that was running at a Shutdown with %s of patience: %w", s.limits.silence, err)
	case late != nil:
		return fmt.Errorf("shutdown: %w", late)
	}
	if err := s.equal("a request that was running at a Shutdown", want.ids, a.ids); err != nil {
		return err
	}
	if !p.ends(s.limits.exit) {
		return fmt.Errorf("the process lives on %s after Shutdown", s.limits.exit)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("it exits with code %d after Shutdown; its last words: %s", code, p.lastWords())
	}
	return nil
}

func (s *subject) checkShutdownNow(ctx context.Context) error {
	if _, err := s.generating(ctx); err != nil {
		return err
	}
	_, err, _, p, failed := s.ending(ctx, math.MaxUint32, 0)
	if p != nil {
		defer p.kill()
	}
	if failed != nil {
		return failed
	}
	if !p.ends(s.limits.exit) {
		return fmt.Errorf("the process lives on %s after Shutdown", s.limits.exit)
	}
	var e *contract.Error
	if err != nil && errors.As(err, &e) && e.Kind != contract.Cancelled && e.Kind != contract.PluginCrashed {
		return fmt.Errorf("a request that was running at a Shutdown ends as %s (%w), Cancelled is due", e.Kind, err)
	}
	return nil
}

// longLine is more than a host keeps of one line.
const longLine = 64 << 10

func (s *subject) checkOutputs(ctx context.Context) error {
	p := s.shared
	if p == nil {
		var err error
		if p, err = s.process(ctx); err != nil {
			return err
		}
		defer p.kill()
	}
	if _, err := p.rpc.Describe(ctx, &cladev1.DescribeRequest{}); err != nil {
		return contract.FromStatus(err)
	}
	p.ends(50 * time.Millisecond) // what it printed is on its way
	extra, stderr := p.said()
	if extra != "" {
		return fmt.Errorf("its standard output goes on behind the handshake line: %q; descriptor 1 is to become a copy of 2", clip(extra))
	}
	for line := range strings.SplitSeq(stderr, "\n") {
		if len(line) > longLine {
			return fmt.Errorf("a line of %d bytes on its standard error: %q", len(line), clip(line))
		}
	}
	if len(stderr) >= outputKept {
		return fmt.Errorf("more than %d bytes on its standard error while it served: %q", outputKept, clip(stderr))
	}
	if p == s.shared {
		s.shared = nil
		return p.stop(ctx)
	}
	return nil
}
