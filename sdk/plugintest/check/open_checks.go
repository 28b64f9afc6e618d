package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

func openChecks() []check {
	return []check{
		{"open", "opening reports its progress and ends with the model's facts, which are those of the plan", (*subject).checkOpen},
		{"open-once", "a process holds one model, and opens only what was planned", (*subject).checkOpenOnce},
		{"open-cancel", "a cancelled opening leaves nothing, and the process can open again", (*subject).checkOpenCancel},
		{"plan-reality", "what is in memory after opening is within the plan", (*subject).checkReality},
	}
}

// load opens spec in p; on gets every event.
func (s *subject) load(ctx context.Context, p *process, spec *cladev1.ModelSpec, plan *cladev1.Plan, on func(*cladev1.OpenResponse)) (*cladev1.ModelFacts, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := p.rpc.Open(ctx, &cladev1.OpenRequest{Model: spec, Plan: plan})
	if err != nil {
		return nil, contract.FromStatus(err)
	}
	var facts *cladev1.ModelFacts
	for {
		m, err := recvFrom(s, "Open", cancel, stream.Recv)
		switch {
		case errors.Is(err, io.EOF) && facts == nil:
			return nil, errors.New("the stream ended without the model's facts")
		case errors.Is(err, io.EOF):
			return facts, nil
		case err != nil:
			if dead := p.died(contract.FromStatus(err)); dead != nil {
				return nil, dead
			}
			if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil && !errors.Is(cause, context.Canceled) {
				return nil, cause
			}
			return nil, contract.FromStatus(err)
		case facts != nil:
			return nil, errors.New("a message came behind the model's facts, which are the last event")
		}
		if facts = m.GetOpened(); facts == nil && on != nil {
			on(m)
		}
	}
}

func (s *subject) checkOpen(ctx context.Context) error {
	if err := s.model(ctx); err != nil {
		return err
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			p.kill()
		}
	}()
	plan, err := s.plan(ctx, p, s.spec)
	if err != nil {
		return err
	}
	done := map[string]uint64{}
	var wrong error
	facts, err := s.load(ctx, p, s.spec, plan, func(m *cladev1.OpenResponse) {
		l := m.GetLoad()
		if l == nil {
			return
		}
		if l.Phase == "" || l.BytesDone > l.BytesTotal || l.TensorsDone > l.TensorsTotal || l.BytesDone < done[l.Phase] {
			wrong = fmt.Errorf("load progress %q of %d of %d bytes behind %d", l.Phase, l.BytesDone, l.BytesTotal, done[l.Phase])
		}
		done[l.Phase] = l.BytesDone
	})
	if err != nil || wrong != nil {
		return errors.Join(err, wrong)
	}
	if s.shared == nil {
		keep, s.shared, s.facts = true, p, facts
	}
	return s.holdFacts(facts, plan)
}

func (s *subject) holdFacts(f *cladev1.ModelFacts, plan *cladev1.Plan) error {
	native := []string{}
	for _, k := range plan.Kernels {
		if k.Native {
			native = append(native, k.Name)
		}
	}
	same := func(what, got, want string) error {
		if got != want {
			return fmt.Errorf("the model's facts state %s %q, the plan and the profile %q", what, got, want)
		}
		return nil
	}
	for _, err := range []error{
		same("graph", f.Graph, s.spec.Graph), same("graph_entry", f.GraphEntry, plan.GraphEntry), same("device", f.Device, plan.Device),
		same("dtype", f.Dtype, plan.Dtype), same("loader", f.Loader, s.spec.Profile.Loader), same("loop", f.Loop, s.spec.Profile.Loop),
		same("kernels", strings.Join(f.Kernels, ","), strings.Join(native, ",")), same("context_length", fmt.Sprint(f.ContextLength), fmt.Sprint(plan.Context)),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case f.Plan != nil && !proto.Equal(f.Plan, plan):
		return errors.New("the model's facts hold another plan than the admitted one")
	case f.Memory == nil:
		return errors.New("the model's facts state no memory")
	case s.record.Loop == family.Autoregressive && f.VocabSize == 0:
		return errors.New("the model's facts state no vocab_size")
	case slices.ContainsFunc(f.EosTokenIds, func(id int32) bool { return id < 0 }):
		return fmt.Errorf("eos_token_ids %v", f.EosTokenIds)
	}
	return nil
}

func (s *subject) checkOpenOnce(ctx context.Context) error {
	p, err := s.opened(ctx)
	if err != nil {
		return err
	}
	_, err = s.load(ctx, p, s.spec, s.planned, nil)
	if wrong := refusal(err, []contract.Kind{contract.Busy}, ""); wrong != nil {
		return fmt.Errorf("a second Open in one process %w", wrong)
	}
	q, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer q.kill()
	other := proto.Clone(s.planned).(*cladev1.Plan)
	other.TotalBytes++
	for _, plan := range []*cladev1.Plan{other, nil} {
		what := "another plan than it makes"
		if plan == nil {
			what = "no plan"
		}
		_, err = s.load(ctx, q, s.spec, plan, nil)
		if wrong := refusal(err, []contract.Kind{contract.PluginMismatch, contract.InvalidArgument}, ""); wrong != nil {
			return fmt.Errorf("an Open with %s %w", what, wrong)
		}
	}
	return s.budget(ctx, q)
}

// budget holds a plan to memory_budget_bytes.
func (s *subject) budget(ctx context.Context, p *process) error {
	if !s.declared["memory_budget_bytes"] {
		return nil
	}
	spec := s.with(func(m *cladev1.ModelSpec) { m.Composition.MemoryBudgetBytes = proto.Uint64(1) })
	plan, err := s.plan(ctx, p, spec)
	if err == nil {
		_, err = s.load(ctx, p, spec, plan, nil)
	}
	if wrong := refusal(err, []contract.Kind{contract.MemoryAdmission}, ""); wrong != nil {
		return fmt.Errorf("an Open with composition.memory_budget_bytes 1 %w", wrong)
	}
	return p.alive()
}

func (s *subject) checkOpenCancel(ctx context.Context) error {
	if err := s.model(ctx); err != nil {
		return err
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	inner, cancel := context.WithCancel(ctx)
	stream, err := p.rpc.Open(inner, &cladev1.OpenRequest{Model: s.spec, Plan: s.planned})
	if err == nil {
		_, _ = stream.Recv() // the first event, or none if it was quick
	}
	cancel()
	// The cancelled opening may still be ending, or have been complete before.
	var facts *cladev1.ModelFacts
	for range 50 {
		facts, err = s.load(ctx, p, s.spec, s.planned, nil)
		var e *contract.Error
		if !errors.As(err, &e) || e.Kind != contract.Busy {
			break
		}
		if !p.ends(s.limits.cancel / 50) {
			continue
		}
		return p.alive()
	}
	var e *contract.Error
	if errors.As(err, &e) && e.Kind == contract.Busy {
		// It was open before the cancel came: then it must work.
		if s.rpcs["Generate"] && s.facts != nil {
			_, err = s.generate(ctx, p, ask{ids: s.prompt(4, 0)})
		} else {
			_, err = p.rpc.Stats(ctx, &cladev1.StatsRequest{})
		}
	}
	if err != nil {
		return fmt.Errorf("after a cancelled Open in the same process: %w", err)
	}
	_ = facts
	return p.alive()
}

func (s *subject) checkReality(ctx context.Context) error {
	p, err := s.opened(ctx)
	if err != nil {
		return err
	}
	stats, err := p.rpc.Stats(ctx, &cladev1.StatsRequest{})
	if err != nil {
		return fmt.Errorf("stats: %w", contract.FromStatus(err))
	}
	var array, weights uint64
	for _, l := range s.planned.Lines {
		switch l.Name {
		case "process", "reserve", "load":
		case "weights":
			weights = l.Bytes
			array += l.Bytes
		default:
			array += l.Bytes
		}
	}
	active := stats.GetMemory().GetActiveBytes()
	switch {
	case active == 0:
		return errors.New("no active memory of an open model is stated by Stats")
	case active > array:
		return fmt.Errorf("%d bytes are active after opening, the plan has %d beside process, load and reserve", active, array)
	case weights > 0 && active < weights/2:
		return fmt.Errorf("%d bytes are active after opening, the plan has %d of weights: models would be refused that fit", active, weights)
	}
	now, _, ok := resident(p.cmd.Process.Pid)
	if !ok {
		return nil
	}
	if s.onCPU() && now > s.admitted() {
		return fmt.Errorf("the process holds %d bytes after opening, the plan is %d in all", now, s.planned.TotalBytes)
	}
	return nil
}

// admitted is how much a process may hold that planned so much: 5 % more, and never less than 64 MiB more, which the pages of
// libraries and a Go heap before its collection take differently on each machine.
func (s *subject) admitted() uint64 {
	return s.planned.TotalBytes + max(s.planned.TotalBytes/20, 64<<20)
}

// onCPU says that the model's memory is the process's.
func (s *subject) onCPU() bool { return strings.HasPrefix(s.planned.GetDevice(), "cpu") }
