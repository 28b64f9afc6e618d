package loader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/machine"
	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Wishes are what a person asked of this load.
type Wishes struct {
	compose.Wishes
	// Graph names an entry of the graph table; RequireGraph refuses any other than the proposed one.
	Graph        string
	RequireGraph bool
	// Chosen is what DecideWith was given, as text: two loads that differ in it are not one.
	Chosen string
}

// Planned is a decision with a live plugin process and a plan that was not admitted yet. Stop ends the process.
type Planned struct {
	*Decision
	// Auxiliaries are the decision's, with which of them the plugin opens.
	Auxiliaries []Auxiliary
	Describe    *cladev1.DescribeResponse
	Composition *compose.Composition
	// Proposed is the graph that the host proposes, and ProposedWhy the reason.
	Proposed, ProposedWhy string
	Plan                  *cladev1.Plan
	// Budget is what the plan is judged by, in bytes; 0 when the machine does not say.
	Budget uint64
	// Admission is why the plan does not fit; nil when it does.
	Admission error
	// Notes are what a person should see of the host's own choices, beside the plan's.
	Notes []string

	full    uint32
	room    room
	wishes  Wishes
	process Process
	spec    *cladev1.ModelSpec
}

// maxPlans bounds how often a plan is made again: the device, then a context that fits.
const maxPlans = 6

// stopTimeout is what a plugin gets to exit when its model was not opened.
const stopTimeout = 5 * time.Second

// Plan starts the plugin and asks what opening the model takes. The process lives until Stop, or as the Model's.
func (d *Decision) Plan(ctx context.Context, w Wishes) (_ *Planned, err error) {
	if d.PluginErr != nil {
		return nil, d.PluginErr
	}
	if w.Graph != "" && d.Implementation != nil {
		return nil, contract.Errorf(contract.UnsupportedOption, "graph", "cannot be named together with implementation %s, which is the graph", d.Implementation.ID)
	}
	if err := d.Plugin.Verify(); err != nil {
		return nil, err
	}
	start := d.host.Start
	if start == nil {
		start = StartSupervised
	}
	runtime := d.Plugin.RuntimeDir
	if runtime == "" {
		runtime = d.host.RuntimeDir
	}
	process, err := start(ctx, supervise.Spec{Path: d.Plugin.Exe, RuntimeDir: runtime, Logger: d.host.Logger})
	if err != nil {
		return nil, err
	}
	p := &Planned{Decision: d, Auxiliaries: d.Auxiliaries, wishes: w, process: process}
	defer func() {
		if err != nil {
			p.Stop()
		}
	}()
	if p.Describe, err = process.Describe(ctx); err != nil {
		return nil, err
	}
	if err := d.Plugin.Check(p.Describe); err != nil {
		return nil, err
	}
	if err := p.inspect(ctx); err != nil {
		return nil, err
	}
	if err := p.compose(); err != nil {
		return nil, err
	}
	if err := p.settleAuxiliaries(); err != nil {
		return nil, err
	}
	if err := p.settle(ctx); err != nil {
		return p, err
	}
	// Self-tests run when the runtime is loaded, which the first plan did.
	if p.Describe, err = process.Describe(ctx); err != nil {
		return p, err
	}
	return p, checkSelfTests(p.Describe, p.Plan)
}

// Stop ends the process of a plan that nobody opens.
func (p *Planned) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = p.process.Stop(ctx) // it holds nothing; an unwilling one is killed
}

func (p *Planned) compose() error {
	longest, _, err := p.Parsed.Int("max_position_embeddings")
	if err != nil {
		return err
	}
	total, _ := machine.Memory()
	p.room = p.host.ledger().room(p.host.Budget, p.Decision)
	p.Budget = p.room.most()
	record := p.Family.Record.Composition
	layers, _, err := p.Parsed.Int("num_hidden_layers")
	if err != nil {
		return err
	}
	p.Composition, err = compose.Resolve(compose.Input{
		Wishes: p.wishes.Wishes,
		Model: compose.Model{
			Format: string(p.Artifact.Format), FloatDType: floatDType(p.Artifact), MaxContext: clampUint32(longest),
			KV: p.Parsed.KV, Layers: layers,
		},
		Family: compose.Family{
			KV: record.KV, Rows: clampUint32(int64(record.Rows)), Context: clampUint32(int64(record.Context)),
			MaxGeneration: clampUint32(int64(record.MaxGeneration)),
		},
		Machine:  compose.Machine{TotalBytes: total, BudgetBytes: p.Budget, BudgetSet: p.host.Budget > 0},
		Paging:   p.Parsed.Paging,
		Declares: p.declares,
		Draft:    p.draft, Adapters: p.adapterIDs(),
	})
	return err
}

// settle plans until the composition is frozen and, where nobody asked for a context, one that fits is found.
func (p *Planned) settle(ctx context.Context) error {
	for range maxPlans {
		if err := p.ask(ctx); err != nil {
			relaxed, relaxErr := p.relax(err)
			if relaxErr != nil {
				return relaxErr
			}
			if relaxed {
				continue
			}
			return err
		}
		changed, err := p.Composition.Bind(p.Plan)
		if err != nil {
			return err
		}
		more, err := p.bindPrograms()
		if err != nil {
			return err
		}
		if changed || more {
			continue
		}
		smaller := p.judge(ctx)
		if smaller == 0 {
			return nil
		}
		p.Notes = []string{fmt.Sprintf("the context is %d tokens; the model's %d do not fit the memory budget of %s",
			smaller, p.fullContext(), config.FormatBytes(p.Budget))}
		if err := p.Composition.Shrink(smaller); err != nil {
			return err
		}
	}
	return contract.Errorf(contract.Internal, p.Plugin.Name, "answers a settled composition with another plan each time")
}

// fullContext is the context of the first plan, before the host took a smaller one.
func (p *Planned) fullContext() uint32 {
	if p.full == 0 {
		p.full = p.Plan.GetContext()
	}
	return p.full
}

// relax gives up a default of ours that the plugin refused by name.
func (p *Planned) relax(refusal error) (bool, error) {
	var e *contract.Error
	if !errors.As(refusal, &e) || e.Kind != contract.UnsupportedOption {
		return false, nil
	}
	return p.Composition.Relax(e.Subject)
}

func (p *Planned) ask(ctx context.Context) (err error) {
	proposed, required, err := p.propose()
	if err != nil {
		return err
	}
	p.Proposed, p.ProposedWhy = proposed.entry, proposed.why
	p.spec = &cladev1.ModelSpec{
		Artifacts: p.artifacts(), Graph: p.Family.Record.Graph, GraphEntry: p.Proposed, GraphRequired: required,
		Profile: p.Profile, Composition: p.Composition.Proto, ParsedConfigJson: p.Parsed.JSON(), ConfigFingerprint: p.ConfigFingerprint,
	}
	if p.Implementation != nil {
		p.spec.Implementation = &p.Implementation.ID
	}
	if p.Plan, err = p.process.Plan(ctx, &cladev1.PlanRequest{Model: p.spec}); err != nil {
		return err
	}
	if err := p.checkAuxiliaries(); err != nil {
		return err
	}
	return checkDisposition(p.Plan, p.Proposed, p.spec.GraphRequired, p.Composition.Proto.GetKernels())
}

// propose is the graph to ask for, and whether no other may run: an implementation is its own graph, and what a person
// named stays.
func (p *Planned) propose() (proposal, bool, error) {
	if p.Implementation != nil {
		return proposal{p.Implementation.ID, "the implementation is the graph"}, true, nil
	}
	named := p.wishes.Graph
	if own := p.choices.Own; own != nil {
		named = own.graph
	}
	got, err := propose(p.Describe, p.Family.Record.Graph, named, p.GraphFingerprint, p.Composition.Proto)
	return got, named != "" || p.wishes.RequireGraph, err
}

// floatDType is the float type that most bytes of the checkpoint have, in the contract's spelling.
func floatDType(a *artifact.Artifact) string {
	names := map[artifact.DType]string{artifact.F32: "float32", artifact.F16: "float16", artifact.BF16: "bfloat16"}
	bytes := map[string]int64{}
	best := ""
	for _, t := range a.Tensors() {
		if name, ok := names[t.DType]; ok {
			bytes[name] += t.Bytes
			if best == "" || bytes[name] > bytes[best] {
				best = name
			}
		}
	}
	return best
}

func clampUint32(n int64) uint32 {
	return uint32(min(max(n, 0), 1<<31-1))
}

// Open admits the plan and loads the model; the Model then owns the artifact and the process. On an error the caller still
// owns the decision; the process is stopped.
func (p *Planned) Open(ctx context.Context, progress func(*cladev1.LoadProgress)) (*Model, error) {
	m, err := p.open(ctx, progress)
	if err != nil {
		p.Stop()
		return nil, err
	}
	return m, nil
}

func (p *Planned) open(ctx context.Context, progress func(*cladev1.LoadProgress)) (*Model, error) {
	if err := p.Cell.ForText(p.Profile.Id); err != nil {
		return nil, err
	}
	if err := p.admit(ctx); err != nil {
		return nil, err
	}
	text := readText(p.Decision)
	facts, err := p.load(ctx, progress, text)
	if err == nil {
		var m *Model
		if m, err = newModel(p, facts, text); err == nil {
			err = m.sameAdapters(ctx, p)
		}
		if err == nil {
			return m, nil
		}
	}
	p.host.ledger().release(p.Decision)
	return nil, err
}

// load runs Open in the process and compares the facts with what was decided.
func (p *Planned) load(ctx context.Context, progress func(*cladev1.LoadProgress), text *text) (*cladev1.ModelFacts, error) {
	facts, err := p.process.Open(ctx, &cladev1.OpenRequest{Model: p.spec, Plan: p.Plan}, func(r *cladev1.OpenResponse) {
		if l := r.GetLoad(); l != nil && progress != nil {
			progress(l)
		}
	})
	if err != nil {
		return nil, err
	}
	if facts.GetGraphEntry() != p.Plan.GetGraphEntry() {
		return nil, contract.Errorf(contract.PluginMismatch, p.Plugin.Name, "opened graph %q, planned was %q", facts.GetGraphEntry(), p.Plan.GetGraphEntry())
	}
	if d := facts.GetTokenizerDigest(); d != "" && text.err == nil && d != text.tokenizer.Digest() {
		return nil, contract.Errorf(contract.PluginMismatch, p.Plugin.Name, "reads another tokenizer than the host")
	}
	planned, resident := p.Plan.GetTotalBytes(), facts.GetMemory().GetRssBytes()
	p.host.logger().Info("model opened", "model", p.Model.ID, "planned", config.FormatBytes(planned), "resident", config.FormatBytes(resident))
	return facts, nil
}
