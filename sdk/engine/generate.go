package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
)

// Generate runs one request. The token that ends it (EOS or a stop id) is not emitted and not counted.
func (e *Engine) Generate(ctx context.Context, job *plugin.GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
	req, err := e.read(job)
	if err != nil {
		return err
	}
	leave, err := e.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	r := &run{
		engine: e, request: req, emit: emit, cache: kv.New(e.layout.Caches, e.config.Kernels != nil), sampler: newSampler(req, e.layout.Vocab),
		usage: &cladev1.Usage{PromptTokens: uint32(len(req.ids))}, stopAt: -1,
	}
	defer r.close()
	if err := r.prefill(ctx); err != nil {
		return err
	}
	reason, err := r.decode(ctx)
	if err != nil {
		return err
	}
	return emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Finish{Finish: r.finish(reason)}})
}

// run is the state of the running request.
type run struct {
	engine *Engine
	*request
	emit    func(*cladev1.GenerateResponse) error
	cache   *kv.Cache
	sampler *sampler
	pending choice // sampled, perhaps still computing
	usage   *cladev1.Usage
	stopAt  int // the host's last token, -1 while it named none
}

// close frees the cache; it runs also when the request's context has ended.
func (r *run) close() {
	_ = r.engine.do(context.Background(), func(*mlx.Scope) error {
		r.pending.Close()
		r.cache.Close()
		return nil
	})
}

// prefill evaluates all of the prompt but its last token, which the first decode step takes, as mlx-lm does.
func (r *run) prefill(ctx context.Context) error {
	e, total, began := r.engine, len(r.ids)-1, time.Now()
	if err := r.report(0); err != nil {
		return err
	}
	for done := 0; done < total; {
		n := e.pace.chunk(total - done)
		start := time.Now()
		if err := e.do(ctx, func(s *mlx.Scope) error { return e.feed(s, r.cache, r.ids[done:done+n]) }); err != nil {
			return err
		}
		e.pace.took(n, time.Since(start))
		done += n
		e.promptTokens.Add(uint64(n))
		if err := r.report(done); err != nil {
			return err
		}
	}
	r.usage.PrefillNs = uint64(time.Since(began))
	return nil
}

func (r *run) report(done int) error {
	return r.emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Prefill{Prefill: &cladev1.PrefillProgress{
		Done: uint32(done), Total: uint32(len(r.ids)),
	}}})
}

// feed runs ids through the graph for their keys and values alone.
func (e *Engine) feed(s *mlx.Scope, cache *kv.Cache, ids []int32) error {
	pass := cache.Begin(len(ids))
	e.model.Forward(s, mlx.FromSlice(s, ids, 1, len(ids)), pass)
	pass.End()
	s.Sweep()
	err := s.Eval(cache.Arrays()...)
	e.evaluations.Add(1)
	e.tokens.Add(uint64(len(ids)))
	return err
}

// decode runs one step ahead: while token n computes, the step for n+1 is built on it and queued.
func (r *run) decode(ctx context.Context) (cladev1.FinishReason, error) {
	began := time.Now()
	defer func() { r.usage.DecodeNs = uint64(time.Since(began)) }()
	if r.limit == 0 {
		return cladev1.FinishReason_FINISH_REASON_LENGTH, nil
	}
	err := r.engine.do(ctx, func(s *mlx.Scope) error {
		last := r.ids[len(r.ids)-1:]
		return r.queue(s, mlx.FromSlice(s, last), 0, nil)
	})
	if err != nil {
		return 0, err
	}
	r.engine.promptTokens.Add(1)
	for n := 0; ; n++ {
		id, logprobs, err := r.step(ctx, n)
		if err != nil {
			return 0, err
		}
		if slices.Contains(r.stops, id) {
			return cladev1.FinishReason_FINISH_REASON_STOP, nil
		}
		r.usage.GeneratedTokens++
		r.engine.generatedTokens.Add(1)
		if err := r.emit(tokenStep(id, logprobs)); err != nil {
			return 0, err
		}
		if r.stopped(n) {
			return cladev1.FinishReason_FINISH_REASON_STOP, nil
		}
		if n+1 == r.limit {
			return cladev1.FinishReason_FINISH_REASON_LENGTH, nil
		}
	}
}

// queue builds the step that follows token (int32 [1]) and samples token number n of the answer; before is that token's array
// when it is not read yet.
func (r *run) queue(s *mlx.Scope, token *mlx.Array, n int, before *mlx.Array) error {
	e := r.engine
	pass := r.cache.Begin(1)
	hidden := e.model.Forward(s, s.Reshape(token, 1, 1), pass) // [1, 1, hidden]
	pass.End()
	logits := s.AsType(s.Reshape(e.model.Unembed(s, hidden), e.layout.Vocab), mlx.Float32)
	next := r.sampler.pick(s, logits, n, len(r.ids)+n, before, r.logprobs != nil)
	for _, a := range next.arrays() {
		s.Keep(a)
	}
	s.Sweep()
	r.pending = next
	e.evaluations.Add(1)
	e.tokens.Add(1)
	return s.AsyncEval(next.arrays()...)
}

// step reads token n, having queued the one after it.
func (r *run) step(ctx context.Context, n int) (id int32, logprobs *cladev1.TokenLogprobs, err error) {
	err = r.engine.do(ctx, func(s *mlx.Scope) error {
		current := r.pending
		defer current.Close()
		r.pending = choice{}
		if n+1 < r.limit {
			if err := r.queue(s, current.token, n+1, current.token); err != nil {
				return err
			}
		}
		if id, err = mlx.Item[int32](s, current.token); err != nil {
			return err
		}
		r.sampler.history = append(r.sampler.history, id)
		if current.logprobs == nil {
			return nil
		}
		row, err := mlx.ToSlice[float32](s, current.logprobs)
		logprobs = topLogprobs(id, row, int(r.logprobs.GetTop()))
		return err
	})
	return id, logprobs, err
}

// stopped reads what the host said meanwhile; after is the token that was just emitted.
func (r *run) stopped(after int) bool {
	for {
		select {
		case c := <-r.control:
			r.stopAt = int(c.GetStopAt())
			continue
		default:
		}
		break
	}
	if r.stopAt < 0 || after < r.stopAt {
		return false
	}
	r.usage.GeneratedTokens = uint32(r.stopAt + 1)
	return true
}

func (r *run) finish(reason cladev1.FinishReason) *cladev1.Finish {
	provenance := proto.Clone(r.engine.config.Provenance).(*cladev1.Provenance)
	provenance.Threads = r.engine.threads()
	if r.sampling.temperature > 0 {
		provenance.Seed = &r.sampling.noise.Seed
	}
	return &cladev1.Finish{Reason: reason, Usage: r.usage, Provenance: provenance}
}

func tokenStep(id int32, logprobs *cladev1.TokenLogprobs) *cladev1.GenerateResponse {
	step := &cladev1.TokenStep{Ids: []int32{id}}
	if logprobs != nil {
		step.Logprobs = []*cladev1.TokenLogprobs{logprobs}
	}
	return &cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: step}}
}

// topLogprobs finds the n likeliest ids of a row, ties to the lowest.
func topLogprobs(id int32, row []float32, n int) *cladev1.TokenLogprobs {
	out := &cladev1.TokenLogprobs{Id: id}
	if int(id) < len(row) {
		out.Logprob = row[id]
	}
	better := func(a, b *cladev1.TopLogprob) int {
		return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), cmp.Compare(a.Id, b.Id))
	}
	for i, v := range row {
		if len(out.Top) == n && (n == 0 || v <= out.Top[n-1].Logprob) {
			continue
		}
		entry := &cladev1.TopLogprob{Id: int32(i), Logprob: v}
		at, _ := slices.BinarySearchFunc(out.Top, entry, better)
		out.Top = slices.Insert(out.Top, at, entry)
		out.Top = out.Top[:min(len(out.Top), n)]
	}
	return out
}
