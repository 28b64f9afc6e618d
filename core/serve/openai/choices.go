package openai

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/clademl/clade/core/generate"
)

// job is one choice to generate.
type job struct {
	prompt   generate.Prompt
	settings generate.Settings
	oneCall  bool
}

// jobsOf are the choices of every prompt, in the order of their indexes.
func jobsOf(prompts []generate.Prompt, q *chatRequest) []job {
	var out []job
	for _, p := range prompts {
		for i := range q.n {
			s := q.settings
			if q.n > 1 {
				s.Choice = &i
			}
			out = append(out, job{p, s, q.oneCall})
		}
	}
	return out
}

// runAll runs every job, at once where the model has rows for it, and ends the others when one fails. emit is called by one of them at
// a time, with the job's place.
func runAll(ctx context.Context, model Model, jobs []job, emit func(i int, d generate.Delta) error) ([]generate.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	results, errs := make([]generate.Result, len(jobs)), make([]error, len(jobs))
	run := func(i int) {
		j := jobs[i]
		called := 0
		r, err := model.Generate(ctx, j.prompt, j.settings, func(d generate.Delta) error {
			mu.Lock()
			defer mu.Unlock()
			if j.oneCall && len(d.Calls) > 0 {
				d.Calls = d.Calls[:min(len(d.Calls), max(1-called, 0))]
				called += len(d.Calls)
			}
			return emit(i, d)
		})
		if j.oneCall && len(r.Calls) > 1 {
			r.Calls = slices.Clone(r.Calls[:1])
			r.Provenance.Notes = append(r.Provenance.Notes, "parallel_tool_calls: false: further calls were left out")
		}
		results[i], errs[i] = r, err
		if err != nil {
			cancel(err)
		}
	}
	if len(jobs) == 1 {
		run(0)
		return results, errs[0]
	}
	var wg sync.WaitGroup
	for i := range jobs {
		wg.Go(func() { run(i) })
	}
	wg.Wait()
	if first := context.Cause(ctx); first != nil && slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, first) }) {
		return results, first
	}
	return results, errors.Join(errs...)
}
