package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func planChecks() []check {
	return []check{
		{"plan", "a plan is a function of its request, its lines sum up, and it names graph, device and kernels", (*subject).checkPlan},
		{"plan-headers", "a plan reads headers only", (*subject).checkPlanHeaders},
		{"plan-options", "an option of the composition is honoured or refused by name", (*subject).checkPlanOptions},
		{"plan-values", "a value that no model could mean is refused by name", (*subject).checkPlanValues},
		{"plan-decision", "what the host decided is asserted: family, profile, loader, loop, config", (*subject).checkPlanDecision},
		{"bad-artifacts", "a damaged model is refused, and the process lives on", (*subject).checkBadArtifacts},
	}
}

func (s *subject) checkPlan(ctx context.Context) error {
	if err := s.model(ctx); err != nil {
		return err
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	for range 2 {
		again, err := s.plan(ctx, p, s.spec)
		if err != nil {
			return err
		}
		if !proto.Equal(again, s.planned) {
			return fmt.Errorf("two plans of one request differ: %d and %d bytes in all", s.planned.TotalBytes, again.TotalBytes)
		}
	}
	return s.holdPlan(s.planned)
}

func (s *subject) holdPlan(plan *cladev1.Plan) error {
	var sum uint64
	for _, l := range plan.Lines {
		sum += l.Bytes
	}
	var entries []string
	for _, t := range s.describe.GraphTables {
		if t.Graph == s.spec.Graph {
			for _, e := range t.Entries {
				entries = append(entries, e.Id)
			}
		}
	}
	switch {
	case len(plan.Lines) == 0 || sum != plan.TotalBytes:
		return fmt.Errorf("its %d lines sum up to %d bytes, total_bytes is %d", len(plan.Lines), sum, plan.TotalBytes)
	case !slices.Contains(entries, plan.GraphEntry):
		return fmt.Errorf("graph_entry %q is not in the table of %s: %s", plan.GraphEntry, s.spec.Graph, strings.Join(entries, ", "))
	case plan.GraphEntry != s.spec.GraphEntry && plan.GraphReason == "":
		return fmt.Errorf("graph_entry is %s where %s was proposed, without a graph_reason", plan.GraphEntry, s.spec.GraphEntry)
	case plan.Device == "" || plan.Dtype == "":
		return errors.New("device or dtype is empty")
	case s.declared["context"] && plan.Context != s.spec.Composition.GetContext():
		return fmt.Errorf("context is %d, %d was asked for", plan.Context, s.spec.Composition.GetContext())
	}
	for _, k := range plan.Kernels {
		if !k.Native && k.Reason == "" {
			return fmt.Errorf("kernel %s falls back without a reason", k.Name)
		}
	}
	return nil
}

// weightFiles are the files of the model whose payload must stay unread, with the length of their headers.
func (s *subject) weightFiles() (map[string]int64, error) {
	out := map[string]int64{}
	for _, t := range s.artifact.Tensors() {
		path := s.artifact.Path
		if s.artifact.Format != artifact.GGUF {
			path = filepath.Join(path, t.File)
		}
		if at, ok := out[path]; !ok || t.Offset < at {
			out[path] = t.Offset
		}
	}
	if len(out) == 0 {
		return nil, notRun("the model's format has no tensors that this suite knows")
	}
	return out, nil
}

func (s *subject) checkPlanHeaders(ctx context.Context) error {
	if err := s.model(ctx); err != nil {
		return err
	}
	files, err := s.weightFiles()
	if err != nil {
		return err
	}
	var headers, payload int64
	for path, header := range files {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		headers += header
		payload += info.Size() - header
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	if _, err := s.plan(ctx, p, s.spec); err != nil { // loads the runtime
		return err
	}
	before, ok := reading(p.cmd.Process.Pid)
	if !ok {
		return notRun("this system does not say what a process reads")
	}
	if _, err := s.plan(ctx, p, s.spec); err != nil {
		return err
	}
	after, _ := reading(p.cmd.Process.Pid)
	// Configs, tokenizers and headers may be read a few times; the payload not at all.
	const slack = 128 << 10
	most := uint64(4*headers + slack)
	if dir := s.artifact.Path; s.artifact.Format != artifact.GGUF {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".json") {
				most += 4 * uint64(info.Size())
			}
		}
	}
	if after-before > most {
		return fmt.Errorf("a plan read %d bytes; the headers are %d, the payload is %d", after-before, headers, payload)
	}
	if uint64(payload) <= most {
		return notRun("the payload of %d bytes is too small to tell", payload)
	}
	return nil
}

func (s *subject) checkPlanOptions(ctx context.Context) error {
	if err := s.model(ctx); err != nil {
		return err
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	return each(leaves((&cladev1.Composition{}).ProtoReflect().Descriptor(), nil), func(l leaf) error {
		if s.declared[l.path()] {
			return nil
		}
		_, err := s.plan(ctx, p, s.with(func(m *cladev1.ModelSpec) { l.set(m.Composition.ProtoReflect()) }))
		if wrong := l.refused(err); wrong != nil {
			return fmt.Errorf("composition.%s is not declared and %w", l.path(), wrong)
		}
		return p.alive()
	})
}

func (s *subject) checkPlanValues(ctx context.Context) error {
	if err := s.model(ctx); err != nil {
		return err
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	const nonsense = "no-such-thing"
	cases := []struct {
		path, value string
		set         func(*cladev1.Composition)
	}{
		{"device", nonsense, func(c *cladev1.Composition) { c.Device = proto.String(nonsense) }},
		{"dtype", nonsense, func(c *cladev1.Composition) { c.Dtype = proto.String(nonsense) }},
		{"kv.plain", nonsense, func(c *cladev1.Composition) {
			c.Kv = &cladev1.KvScheme{Scheme: &cladev1.KvScheme_Plain{Plain: nonsense}}
		}},
		{"kernels", nonsense, func(c *cladev1.Composition) { c.Kernels = proto.String(nonsense) }},
		{"rows", "0", func(c *cladev1.Composition) { c.Rows = proto.Uint32(0) }},
		{"prefill_chunk", "0", func(c *cladev1.Composition) { c.PrefillChunk = proto.Uint32(0) }},
		{"threads", "0", func(c *cladev1.Composition) { c.Threads = proto.Uint32(0) }},
		{"rows", "4294967295", func(c *cladev1.Composition) { c.Rows = proto.Uint32(math.MaxUint32) }},
	}
	return each(cases, func(c struct {
		path, value string
		set         func(*cladev1.Composition)
	},
	) error {
		if !s.declared[c.path] {
			return nil
		}
		_, err := s.plan(ctx, p, s.with(func(m *cladev1.ModelSpec) { c.set(m.Composition) }))
		kinds := []contract.Kind{contract.InvalidArgument, contract.UnsupportedOption}
		if wrong := refusal(err, kinds, c.path); wrong != nil {
			return fmt.Errorf("composition.%s %s %w", c.path, c.value, wrong)
		}
		return p.alive()
	})
}

func (s *subject) checkPlanDecision(ctx context.Context) error {
	if err := s.model(ctx); err != nil {
		return err
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	own := s.with(func(m *cladev1.ModelSpec) {
		m.Profile.Id, m.Profile.FromCaller, m.Profile.RequiredCapabilities = "", true, nil
	})
	if _, err := s.plan(ctx, p, own); err != nil {
		return fmt.Errorf("a person's own choice of plugin and graph, which needs no profile, is refused: %w", err)
	}
	mismatch := []contract.Kind{contract.PluginMismatch, contract.UnsupportedModelLoad, contract.InvalidArgument}
	cases := []struct {
		what string
		set  func(*cladev1.ModelSpec)
	}{
		{"another graph", func(m *cladev1.ModelSpec) { m.Graph = "example.org/another" }},
		{"another profile", func(m *cladev1.ModelSpec) { m.Profile.Id = "another" }},
		{"another loader", func(m *cladev1.ModelSpec) { m.Profile.Loader = "another" }},
		{"another loop", func(m *cladev1.ModelSpec) { m.Profile.Loop = "another" }},
		{"no profile", func(m *cladev1.ModelSpec) { m.Profile = nil }},
		{"no artifact", func(m *cladev1.ModelSpec) { m.Artifacts = nil }},
		{"no composition", func(m *cladev1.ModelSpec) { m.Composition = nil }},
		{"an unknown implementation", func(m *cladev1.ModelSpec) { m.Implementation = proto.String("another") }},
		{"a required graph that is not in the table", func(m *cladev1.ModelSpec) { m.GraphEntry, m.GraphRequired = "another", true }},
	}
	return each(cases, func(c struct {
		what string
		set  func(*cladev1.ModelSpec)
	},
	) error {
		_, err := s.plan(ctx, p, s.with(c.set))
		if wrong := refusal(err, append(mismatch, contract.UnsupportedOption), ""); wrong != nil {
			return fmt.Errorf("a request with %s %w", c.what, wrong)
		}
		return p.alive()
	})
}
