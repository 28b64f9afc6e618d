package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func (s *subject) checkAdaptersUnload(ctx context.Context) error {
	p, err := s.adapting(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	if _, err := s.loadAdapter(ctx, p, adapterName(0), s.Adapters[0]); err != nil {
		return err
	}
	long := s.choosing(adapterName(0), 0)
	long.start = func(g *cladev1.GenerateStart) {
		s.choosing(adapterName(0), 0).start(g)
		g.MaxTokens = proto.Uint32(s.facts.GetContextLength() - usualPrompt)
	}
	want, err := s.generate(ctx, p, long)
	if err != nil {
		return err
	}
	unloaded := make(chan error, 1)
	other := *s // the subject's own notes are not safe for two requests at once
	other.serial += 1000
	asked := false
	long.on = func(int, func(*cladev1.Control) error) error {
		if asked {
			return nil
		}
		asked = true
		go func() {
			_, err := other.unloadAdapter(ctx, p, adapterName(0))
			if err == nil {
				err = other.nobodyHasIt(ctx, p)
			}
			unloaded <- err
		}()
		return other.goneSoon(ctx, p)
	}
	got, err := s.generate(ctx, p, long)
	if err != nil {
		return fmt.Errorf("a request whose adapter was unloaded: %w", err)
	}
	if err := <-unloaded; err != nil {
		return fmt.Errorf("unload beside a request that has the adapter: %w", err)
	}
	if err := s.equal("a request whose adapter was unloaded", want.ids, got.ids); err != nil {
		return err
	}
	return nil
}

// nobodyHasIt holds, right behind an unloading, that the request which had the adapter is over.
func (s *subject) nobodyHasIt(ctx context.Context, p *process) error {
	const looks, pause = 4, 5 * time.Millisecond
	for range looks {
		r, err := p.rpc.Stats(ctx, &cladev1.StatsRequest{})
		if err != nil {
			return contract.FromStatus(err)
		}
		if r.ActiveRequests == 0 {
			return nil
		}
		if p.ends(pause) {
			return p.alive()
		}
	}
	return errors.New("it returned while the request still ran: the adapter's memory cannot be free")
}

// goneSoon waits until a new request does not find the adapter.
func (s *subject) goneSoon(ctx context.Context, p *process) error {
	for until := time.Now().Add(s.limits.cancel); ; {
		loaded, err := s.loadedAdapters(ctx, p)
		if err != nil {
			return err
		}
		if len(loaded) == 0 {
			break
		}
		if time.Now().After(until) {
			return fmt.Errorf("%v are listed %s after unloading began", loaded, s.limits.cancel)
		}
		if p.ends(time.Millisecond) {
			return p.alive()
		}
	}
	_, err := s.generate(ctx, p, s.choosing(adapterName(0), 0))
	if wrong := refusal(err, []contract.Kind{contract.NotFound}, ""); wrong != nil {
		return fmt.Errorf("a new request with an adapter that is being unloaded %w", wrong)
	}
	return nil
}

func (s *subject) checkAdaptersGiven(ctx context.Context) error {
	if err := s.canAdapt(ctx); err != nil {
		return err
	}
	if err := s.needsOptions("adapters"); err != nil {
		return err
	}
	if _, err := s.opened(ctx); err != nil {
		return err
	}
	spec := s.with(func(m *cladev1.ModelSpec) {
		for i, path := range s.Adapters {
			m.Artifacts = append(m.Artifacts, &cladev1.Artifact{
				Role: cladev1.Role_ROLE_ADAPTER, Path: path, Format: string(artifact.Safetensors), Id: proto.String(adapterName(i)),
			})
			m.Composition.Adapters = append(m.Composition.Adapters, adapterName(i))
		}
	})
	p, _, err := s.open(ctx, spec)
	if err != nil {
		return err
	}
	defer p.kill()
	plain, err := s.generate(ctx, p, s.choosing(contract.NoAdapter, 0))
	if err != nil {
		return err
	}
	straight, err := s.straight(ctx, s.shared, usualPrompt, 0)
	if err != nil {
		return err
	}
	if err := s.equal("adapter none of a model that was opened with some", straight.ids, plain.ids); err != nil {
		return err
	}
	whole := ""
	for i := range s.Adapters {
		whole += "+" + adapterName(i)
	}
	chosen, err := s.generate(ctx, p, s.choosing(whole[1:], 0))
	if err != nil {
		return err
	}
	silent, err := s.generate(ctx, p, s.choosing("", 0))
	if err != nil {
		return err
	}
	if err := s.equal("a request that chooses nothing", chosen.ids, silent.ids); err != nil {
		return err
	}
	return saysAdapters(whole[1:], silent)
}
