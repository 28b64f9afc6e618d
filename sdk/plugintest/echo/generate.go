package echo

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// row is one running request in the batch.
type row struct {
	*request
	model    *model
	stack    stack
	slot     *slot
	sampler  *sampler
	reuse    bool
	cached   int
	out      chan event
	finished bool
	over     bool // the token that ends it came behind others

	rounds, drafted, accepted int
	stopAt                    atomic.Int64 // the host's last token, -1 while it named none
	began                     time.Time
	prefill                   time.Duration
}

// event is what one step made of a row.
type event struct {
	prefill int
	step    *cladev1.TokenStep
	finish  *cladev1.Finish
}

// Generate runs one request. The token that ends it is not emitted and not counted.
func (m *model) Generate(ctx context.Context, job *plugin.GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
	req, err := m.read(job)
	if err != nil {
		return err
	}
	taken, err := m.adapters.take(job.Start.Adapter)
	if err != nil {
		return err
	}
	defer taken.release()
	s, err := m.enter(ctx)
	if err != nil {
		return err
	}
	r := &row{stack: taken, request: req, model: m, slot: s, reuse: job.Start.GetPrefixCache(), out: make(chan event, 1), began: time.Now()}
	r.sampler = &sampler{request: req, row: make([]float64, m.vocab), faults: m.faults}
	r.stopAt.Store(-1)
	if r.reuse {
		r.cached = m.restore(r.ids, taken.word(), s)
	}
	m.join(r)
	defer func() {
		m.leave(r)
		if ctx.Err() == nil || !m.faults.has(LeakedSlot) {
			m.slots <- s
		}
	}()
	if err := emit(prefillEvent(r.cached, r.given, r.cached)); err != nil {
		return err
	}
	done := ctx.Done()
	if m.faults.has(LateCancel) {
		done = nil
	}
	for {
		select {
		case <-done:
			return contract.Errorf(contract.Cancelled, Name, "%w", context.Cause(ctx))
		case c := <-job.Control:
			r.stopAt.Store(int64(c.GetStopAt()))
		case e := <-r.out:
			if err := r.tell(e, emit); err != nil && done != nil {
				return err
			}
			if e.finish != nil {
				return context.Cause(ctx)
			}
		}
	}
}

func (r *row) tell(e event, emit func(*cladev1.GenerateResponse) error) error {
	switch {
	case e.finish != nil:
		return emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Finish{Finish: e.finish}})
	case e.step != nil:
		return emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: e.step}})
	}
	return emit(prefillEvent(e.prefill, r.given, r.cached))
}

func prefillEvent(done, total, cached int) *cladev1.GenerateResponse {
	return &cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Prefill{Prefill: &cladev1.PrefillProgress{
		Done: uint32(done), Total: uint32(total), Cached: uint32(cached),
	}}}
}

// advance evaluates the next chunk of the prompt, or the next token of the answer. beside is the neighbour that the row must not
// see.
func (r *row) advance(beside *row) event {
	m := r.model
	if have := len(r.slot.states); have < len(r.ids)-1 {
		n := min(m.chunk, len(r.ids)-1-have)
		r.feed(n, nil)
		if m.faults.has(ChunkBorder) && have+n < len(r.ids)-1 {
			r.slot.states[have+n-1] = 0
		}
		m.tokens[0].Add(uint64(n))
		r.prefill = time.Since(r.began)
		return event{prefill: len(r.slot.states)}
	}
	made := len(r.ids) - r.prompt
	if r.over {
		return event{finish: r.end(cladev1.FinishReason_FINISH_REASON_STOP, made)}
	}
	if made >= r.limit {
		return event{finish: r.end(cladev1.FinishReason_FINISH_REASON_LENGTH, made)}
	}
	if stop := r.stopAt.Load(); stop >= 0 && int64(made) > stop {
		return event{finish: r.end(cladev1.FinishReason_FINISH_REASON_STOP, int(stop)+1)}
	}
	step := &cladev1.TokenStep{}
	drafts := r.drafts()
	r.rounds, r.drafted = r.rounds+min(1, len(drafts)), r.drafted+len(drafts)
	for i := 0; ; i++ {
		r.feed(1, beside)
		m.logits(r.slot.states[len(r.slot.states)-1], r.sampler.row)
		id, logprobs := r.sampler.pick(r.ids, made)
		if i < len(drafts) && m.faults.has(RashDraft) {
			id = drafts[i]
		}
		if made >= r.minimum && slices.Contains(r.stops, id) {
			if r.over = true; len(step.Ids) == 0 {
				return event{finish: r.end(cladev1.FinishReason_FINISH_REASON_STOP, made)}
			}
			return event{step: step}
		}
		r.ids, made = append(r.ids, id), made+1
		m.tokens[1].Add(1)
		step.Ids = append(step.Ids, id)
		if logprobs != nil {
			step.Logprobs = append(step.Logprobs, logprobs)
		}
		if i == len(drafts) || id != drafts[i] || made >= r.limit {
			return event{step: step}
		}
		r.accepted++
	}
}

// drafts are what followed the last token where it stood before, as many as the composition says.
func (r *row) drafts() []int32 {
	n := len(r.ids)
	if r.undrafted || r.choices != nil || r.model.depth == 0 {
		return nil
	}
	for at := n - 1; at > 0; at-- {
		if r.ids[at-1] == r.ids[n-1] {
			return slices.Clone(r.ids[at:min(n, at+r.model.depth)])
		}
	}
	return nil
}

// feed computes the states of the next n tokens.
func (r *row) feed(n int, beside *row) {
	for range n {
		at := len(r.slot.states)
		before := uint64(0)
		if at > 0 {
			before = r.slot.states[at-1]
		}
		state := adapted(r.model.next(before, at, r.ids[at]), r.stack.word())
		if beside != nil {
			state = mix(state, uint64(beside.ids[len(beside.ids)-1]))
		}
		r.slot.states = append(r.slot.states, state)
	}
}

// adapted is the state with what adapters make of it.
func adapted(state, word uint64) uint64 {
	if word == 0 {
		return state
	}
	return mix(state, word)
}

func (r *row) end(reason cladev1.FinishReason, made int) *cladev1.Finish {
	p := proto.Clone(r.model.provenance).(*cladev1.Provenance)
	p.Threads = r.model.threads.Load()
	p.Resumed, p.Adapters = r.resumed, r.stack.names
	if r.temperature > 0 {
		p.Seed = &r.seed
	}
	if r.model.faults.has(WrongUsage) {
		made++
	}
	return &cladev1.Finish{Reason: reason, Provenance: p, Usage: &cladev1.Usage{
		PromptTokens: uint32(r.prompt), CachedTokens: uint32(r.cached), GeneratedTokens: uint32(made),
		Drafted: uint32(r.drafted), Accepted: uint32(r.accepted), DraftRounds: uint32(r.rounds),
		PrefillNs: uint64(r.prefill), DecodeNs: uint64(time.Since(r.began) - r.prefill),
	}}
}

// Score gives the logits behind every token, or what the next token's probability was.
func (m *model) Score(ctx context.Context, job *plugin.ScoreJob, emit func(*cladev1.ScoreResponse) error) error {
	if err := m.checkIDs("ids", job.IDs); err != nil {
		return err
	}
	if len(job.IDs) > m.context {
		return contract.Errorf(contract.ContextTooLong, "ids", "%d tokens, the context is %d", len(job.IDs), m.context)
	}
	taken, err := m.adapters.take(job.Start.Adapter)
	if err != nil {
		return err
	}
	defer taken.release()
	state, row := uint64(0), make([]float64, m.vocab)
	for i, id := range job.IDs {
		if err := context.Cause(ctx); err != nil {
			return contract.Errorf(contract.Cancelled, Name, "%w", err)
		}
		state = adapted(m.next(state, i, id), taken.word())
		m.logits(state, row)
		at := uint32(i)
		if m.faults.has(ShiftedScore) {
			at = uint32(len(job.IDs) - 1 - i)
		}
		var values []float32
		if job.Start.GetOutput() == cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS {
			if i+1 == len(job.IDs) {
				break
			}
			values = []float32{float32(logSoftmax(row)[job.IDs[i+1]])}
		} else {
			for _, v := range row {
				values = append(values, float32(v))
			}
		}
		for _, f := range plugin.FrameRow(at, values) {
			if err := emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Frame{Frame: f}}); err != nil {
				return err
			}
		}
	}
	m.tokens[0].Add(uint64(len(job.IDs)))
	return emit(&cladev1.ScoreResponse{Event: &cladev1.ScoreResponse_Done{Done: &cladev1.Usage{PromptTokens: uint32(len(job.IDs))}}})
}
