package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func adapterChecks() []check {
	return []check{
		{"adapters-load", "an adapter is loaded under a name, listed, and unloaded with its memory", (*subject).checkAdaptersLoad},
		{"adapters-choose", "a request has the adapters that it chooses, alone, stacked, in a batch and behind the prefix cache", (*subject).checkAdaptersChoose},
		{"adapters-whole", "a damaged adapter is refused whole, and nothing changes", (*subject).checkAdaptersWhole},
		{"adapters-unload", "an unloaded adapter is found by no new request, and those that have it go on with it", (*subject).checkAdaptersUnload},
		{"adapters-given", "requests that choose nothing have the adapters that the model was opened with", (*subject).checkAdaptersGiven},
	}
}

// someAdapterBytes is room for the given adapters, twice each and in any packing.
const someAdapterBytes = 1 << 30

// adapterName is what the suite calls the i-th.
func adapterName(i int) string { return "check/a" + string(rune('0'+i)) }

// canAdapt is the reason that adapters are not checked.
func (s *subject) canAdapt(ctx context.Context) error {
	if err := s.needs("Adapters"); err != nil {
		return err
	}
	if err := s.needsOptions("adapter", "adapter_bytes"); err != nil {
		return err
	}
	if len(s.Adapters) == 0 {
		return notRun("give an adapter that fits the model")
	}
	return s.model(ctx)
}

// adapting opens the model in a process of its own, with room for adapters. The caller kills the process.
func (s *subject) adapting(ctx context.Context) (*process, error) {
	if err := s.canAdapt(ctx); err != nil {
		return nil, err
	}
	if _, err := s.opened(ctx); err != nil { // its facts
		return nil, err
	}
	p, _, err := s.open(ctx, s.with(func(m *cladev1.ModelSpec) { m.Composition.AdapterBytes = proto.Uint64(someAdapterBytes) }))
	return p, err
}

func (s *subject) adapters(ctx context.Context, p *process, req *cladev1.AdaptersRequest) (*cladev1.AdaptersResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.load)
	defer cancel()
	r, err := p.rpc.Adapters(ctx, req)
	if err != nil {
		err = contract.FromStatus(err)
		if dead := p.died(err); dead != nil {
			return nil, dead
		}
		return nil, err
	}
	return r, nil
}

func (s *subject) loadAdapter(ctx context.Context, p *process, id, path string) (*cladev1.AdaptersResponse, error) {
	return s.adapters(ctx, p, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Load{Load: &cladev1.AdapterLoad{Id: id, Path: path}}})
}

func (s *subject) unloadAdapter(ctx context.Context, p *process, id string) (*cladev1.AdaptersResponse, error) {
	return s.adapters(ctx, p, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_Unload{Unload: &cladev1.AdapterUnload{Id: id}}})
}

// loadedAdapters are the ids of what is loaded.
func (s *subject) loadedAdapters(ctx context.Context, p *process) ([]string, error) {
	r, err := s.adapters(ctx, p, &cladev1.AdaptersRequest{Action: &cladev1.AdaptersRequest_List{List: &cladev1.AdapterList{}}})
	return r.GetLoaded(), err
}

func (s *subject) active(ctx context.Context, p *process) (uint64, error) {
	r, err := p.rpc.Stats(ctx, &cladev1.StatsRequest{})
	return r.GetMemory().GetActiveBytes(), contract.FromStatus(err)
}

func (s *subject) checkAdaptersLoad(ctx context.Context) error {
	p, err := s.adapting(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	var first uint64
	for round := range 3 {
		for i, path := range s.Adapters {
			r, err := s.loadAdapter(ctx, p, adapterName(i), path)
			if err != nil {
				return fmt.Errorf("load %s: %w", path, err)
			}
			if err := heldInfo(r, adapterName(i), path); err != nil {
				return err
			}
		}
		_, err := s.loadAdapter(ctx, p, adapterName(0), s.Adapters[0])
		if wrong := refusal(err, []contract.Kind{contract.InvalidArgument}, ""); wrong != nil {
			return fmt.Errorf("a second adapter of one name %w", wrong)
		}
		for i := range s.Adapters {
			r, err := s.unloadAdapter(ctx, p, adapterName(i))
			if err != nil {
				return fmt.Errorf("unload: %w", err)
			}
			if slices.Contains(r.Loaded, adapterName(i)) {
				return fmt.Errorf("%s is listed when it was unloaded", adapterName(i))
			}
		}
		bytes, err := s.active(ctx, p)
		switch {
		case err != nil:
			return err
		case round == 0:
			first = bytes
		case bytes > first:
			return fmt.Errorf("%d bytes are active after %d rounds of loading and unloading, %d were after one", bytes, round+1, first)
		}
	}
	_, err = s.unloadAdapter(ctx, p, adapterName(0))
	if wrong := refusal(err, []contract.Kind{contract.NotFound}, ""); wrong != nil {
		return fmt.Errorf("unloading what is not loaded %w", wrong)
	}
	for _, id := range []string{"", contract.NoAdapter, "a b"} {
		_, err := s.loadAdapter(ctx, p, id, s.Adapters[0])
		if wrong := refusal(err, []contract.Kind{contract.InvalidArgument}, ""); wrong != nil {
			return fmt.Errorf("an adapter called %q %w", id, wrong)
		}
	}
	_, err = s.adapters(ctx, p, &cladev1.AdaptersRequest{})
	if wrong := refusal(err, []contract.Kind{contract.InvalidArgument}, ""); wrong != nil {
		return fmt.Errorf("a request without an action %w", wrong)
	}
	return nil
}

// heldInfo holds what is said of a loaded adapter to what is due.
func heldInfo(r *cladev1.AdaptersResponse, id, path string) error {
	i := slices.IndexFunc(r.Adapters, func(a *cladev1.AdapterInfo) bool { return a.Id == id })
	if i < 0 || !slices.Contains(r.Loaded, id) {
		return fmt.Errorf("%s was loaded and is not listed: %v", id, r.Loaded)
	}
	if a := r.Adapters[i]; a.Digest == "" || a.Bytes == 0 || a.Scale != 1 || a.Path != path {
		return fmt.Errorf("what is listed of %s is %v; its path %s, digest, bytes and scale 1 are due", id, a, path)
	}
	return nil
}

// choosing is a greedy request with a choice of adapters; empty says nothing.
func (s *subject) choosing(choice string, salt int) ask {
	return ask{ids: s.prompt(usualPrompt, salt), start: func(g *cladev1.GenerateStart) {
		if choice != "" {
			g.Adapter = &choice
		}
	}}
}

func (s *subject) checkAdaptersChoose(ctx context.Context) error {
	p, err := s.adapting(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	plain, err := s.generate(ctx, p, s.choosing("", 0))
	if err != nil {
		return err
	}
	// Loaded twice, one adapter is a stack too.
	paths := append(slices.Clone(s.Adapters), s.Adapters[0])
	for i, path := range paths {
		if _, err := s.loadAdapter(ctx, p, adapterName(i), path); err != nil {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	choices := []string{"", contract.NoAdapter, adapterName(0), adapterName(0) + "+" + adapterName(1), adapterName(0) + ":-0.5"}
	alone := map[string]*answer{}
	for _, choice := range choices {
		a, err := s.generate(ctx, p, s.choosing(choice, 0))
		if err != nil {
			return fmt.Errorf("adapter %q: %w", choice, err)
		}
		alone[choice] = a
		if err := saysAdapters(choice, a); err != nil {
			return err
		}
	}
	for _, choice := range choices[:2] {
		if err := s.equal(fmt.Sprintf("adapter %q with some loaded answers otherwise than before", choice), plain.ids, alone[choice].ids); err != nil {
			return err
		}
	}
	if err := s.adapted(ctx, p); err != nil {
		return err
	}
	if err := s.adaptedTogether(ctx, p, choices, alone); err != nil {
		return err
	}
	for choice, kind := range map[string]contract.Kind{
		"check/none-such": contract.NotFound, adapterName(0) + "+check/none-such": contract.NotFound,
		adapterName(0) + "+" + adapterName(0): contract.InvalidArgument, adapterName(0) + ":x": contract.InvalidArgument, "+": contract.InvalidArgument,
	} {
		_, err := s.generate(ctx, p, s.choosing(choice, 0))
		if wrong := refusal(err, []contract.Kind{kind}, ""); wrong != nil {
			return fmt.Errorf("adapter %q %w", choice, wrong)
		}
	}
	return nil
}

// saysAdapters holds the provenance to the choice.
func saysAdapters(choice string, a *answer) error {
	want := 0
	if uses, err := contract.ParseAdapters(choice); err == nil {
		want = len(uses)
	}
	if got := a.finish.GetProvenance().GetAdapters(); len(got) != want {
		return fmt.Errorf("adapter %q: provenance states the adapters %q, %d are due", choice, got, want)
	}
	return nil
}

// adapted holds that every given adapter changes what is computed.
func (s *subject) adapted(ctx context.Context, p *process) error {
	if !s.rpcs["Score"] {
		return nil
	}
	ids := s.prompt(usualPrompt, 0)
	last := func(choice string) ([]float32, error) {
		rows, err := s.scoreAs(ctx, p, &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS, Adapter: &choice}, ids)
		if err != nil {
			return nil, fmt.Errorf("score with adapter %q: %w", choice, err)
		}
		return rows[len(rows)-1], nil
	}
	none, err := last(contract.NoAdapter)
	if err != nil {
		return err
	}
	for i := range s.Adapters {
		with, err := last(adapterName(i))
		if err != nil {
			return err
		}
		if slices.Equal(none, with) {
			return fmt.Errorf("the logits with %s are those without: the adapter does nothing", s.Adapters[i])
		}
	}
	return nil
}

// adaptedTogether asks with every choice at once, from the prefix cache where there is one, and compares with the answers alone.
func (s *subject) adaptedTogether(ctx context.Context, p *process, choices []string, alone map[string]*answer) error {
	for range 2 {
		asks := make([]ask, len(choices))
		for i, choice := range choices {
			asks[i] = s.choosing(choice, 0)
			asks[i].start = func(g *cladev1.GenerateStart) {
				s.choosing(choice, 0).start(g)
				if s.declared["prefix_cache"] {
					g.PrefixCache = proto.Bool(true)
				}
			}
		}
		got, errs := s.together(ctx, p, asks)
		for i, choice := range choices {
			var e *contract.Error
			if errors.As(errs[i], &e) && e.Kind == contract.Busy {
				continue
			}
			if errs[i] != nil {
				return fmt.Errorf("adapter %q beside others: %w", choice, errs[i])
			}
			if err := s.equal(fmt.Sprintf("adapter %q beside requests with others answers otherwise than alone", choice), alone[choice].ids, got[i].ids); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *subject) checkAdaptersWhole(ctx context.Context) error {
	p, err := s.adapting(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	if _, err := s.loadAdapter(ctx, p, adapterName(0), s.Adapters[0]); err != nil {
		return err
	}
	want, err := s.generate(ctx, p, s.choosing(adapterName(0), 0))
	if err != nil {
		return err
	}
	before, err := s.active(ctx, p)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "clade-check-adapter-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kinds := []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedOption, contract.NotFound}
	return each(adapterDamages, func(d adapterDamage) error {
		path := filepath.Join(dir, "damaged")
		if err := errors.Join(os.RemoveAll(path), os.CopyFS(path, os.DirFS(s.Adapters[0]))); err != nil {
			return err
		}
		if err := d.do(path); err != nil {
			return fmt.Errorf("the suite cannot damage %s: %w", s.Adapters[0], err)
		}
		_, err := s.loadAdapter(ctx, p, adapterName(9), path)
		if wrong := refusal(err, kinds, ""); wrong != nil {
			return fmt.Errorf("an adapter with %s %w", d.what, wrong)
		}
		var e *contract.Error
		if errors.As(err, &e); e.Subject == "" {
			return fmt.Errorf("an adapter with %s is refused (%s) without a subject", d.what, e.Error())
		}
		loaded, err := s.loadedAdapters(ctx, p)
		if err != nil {
			return err
		}
		if !slices.Equal(loaded, []string{adapterName(0)}) {
			return fmt.Errorf("behind an adapter with %s, which was refused, %v are loaded", d.what, loaded)
		}
		got, err := s.generate(ctx, p, s.choosing(adapterName(0), 0))
		if err != nil {
			return fmt.Errorf("the request behind an adapter with %s: %w", d.what, err)
		}
		if err := s.equal("the answer behind an adapter with "+d.what, want.ids, got.ids); err != nil {
			return err
		}
		if after, err := s.active(ctx, p); err != nil || !s.declared["prefix_cache"] && after > before {
			return errors.Join(err, fmt.Errorf("%d bytes are active behind an adapter with %s, %d were before", after, d.what, before))
		}
		return nil
	})
}
