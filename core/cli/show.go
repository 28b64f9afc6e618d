package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/config"
	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/machine"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// shown is the JSON of `show`.
type shown struct {
	Model               string          `json:"model"`
	Path                string          `json:"path"`
	Format              string          `json:"format"`
	Family              string          `json:"family"`
	Graph               string          `json:"graph"`
	GraphEntry          string          `json:"graph_entry,omitempty"`
	Profile             string          `json:"profile"`
	Fidelity            string          `json:"fidelity"`
	Specialization      string          `json:"specialization"`
	ExactArtifact       bool            `json:"exact_artifact"`
	Loader              string          `json:"loader"`
	Loop                string          `json:"loop"`
	Residence           string          `json:"residence"`
	ConfigFingerprint   string          `json:"config_fingerprint"`
	ArtifactFingerprint *string         `json:"artifact_fingerprint"`
	GraphFingerprint    string          `json:"graph_fingerprint,omitempty"`
	Implementation      string          `json:"implementation,omitempty"`
	VisionSidecar       bool            `json:"vision_sidecar,omitempty"`
	Capabilities        []string        `json:"capabilities"`
	Plugin              shownPlugin     `json:"plugin"`
	Composition         []compose.Field `json:"composition"`
	Plan                *shownPlan      `json:"plan"`
	Fit                 *compose.Fit    `json:"fit,omitempty"`
	Speed               *shownSpeed     `json:"speed,omitempty"`
	Programs            []shownProgram  `json:"programs,omitempty"`
	Auxiliaries         []shownBeside   `json:"auxiliaries,omitempty"`
	Why                 []string        `json:"why"`
}

type shownPlugin struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Error   string `json:"error,omitempty"`
}

type shownPlan struct {
	Lines         []shownLine   `json:"lines"`
	TotalBytes    uint64        `json:"total_bytes"`
	BudgetBytes   uint64        `json:"budget_bytes"`
	Fits          bool          `json:"fits"`
	GraphEntry    string        `json:"graph_entry"`
	Proposed      string        `json:"graph_proposed"`
	GraphReason   string        `json:"graph_reason,omitempty"`
	Device        string        `json:"device"`
	DType         string        `json:"dtype"`
	Context       uint32        `json:"context"`
	BytesPerToken uint64        `json:"bytes_per_token"`
	Kernels       []shownKernel `json:"kernels"`
	Notes         []string      `json:"notes"`
}

type shownLine struct {
	Name   string `json:"name"`
	Bytes  uint64 `json:"bytes"`
	Detail string `json:"detail,omitempty"`
}

// shownSpeed is what decoding would reach if nothing but memory held it up.
type shownSpeed struct {
	Estimate       bool    `json:"estimate"` // always: nothing was run
	TokensPerSec   float64 `json:"tokens_per_second"`
	BytesPerSecond float64 `json:"read_bytes_per_second"`
	Threads        int     `json:"threads"`
}

type shownKernel struct {
	Name   string `json:"name"`
	Native bool   `json:"native"`
	Reason string `json:"reason,omitempty"`
}

type shownProgram struct {
	ID        string `json:"id"`
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitempty"`
}

// shownBeside is an artifact that goes with the model.
type shownBeside struct {
	Role        string `json:"role"`
	Kind        string `json:"kind,omitempty"`
	Path        string `json:"path"`
	Graph       string `json:"graph,omitempty"`
	WeightBytes int64  `json:"weight_bytes"`
	Opened      bool   `json:"opened"`
	Reason      string `json:"reason,omitempty"`
}

// besides lists them; unused is why none is opened, whatever it is.
func besides(list []loader.Auxiliary, unused string) []shownBeside {
	var out []shownBeside
	for _, a := range list {
		why := a.Unused
		if unused != "" {
			why = unused
		}
		out = append(out, shownBeside{a.RoleName(), a.Kind, a.Path, a.Graph, a.WeightBytes, why == "", why})
	}
	return out
}

func (a *app) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show MODEL", Short: "Say what a model is and how it would run", Args: cobra.ExactArgs(1),
		Long: "Says which family, profile, loader and graph a model gets, every field of the composition with who decided it, and the\n" +
			"plan's memory and kernels. Nothing is loaded. Without the plugin, all but the plan is said.",
	}
	model := a.addModelFlags(cmd)
	speed := cmd.Flags().Bool("speed", false, "measure the memory's read bandwidth and estimate the decoding speed from it")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		d, err := h.decide(cmd.Context(), model, args[0])
		if err != nil {
			return err
		}
		defer func() { _ = d.Close() }() // only read
		out, err := a.describeModel(cmd.Context(), h, model, d)
		if err != nil {
			return err
		}
		if *speed {
			if out.Speed, err = speedOf(d, out, int(h.config.Model.Threads)); err != nil {
				return err
			}
		}
		if *asJSON {
			return a.printJSON(out)
		}
		return a.printShown(out)
	}
	return cmd
}

func (a *app) describeModel(ctx context.Context, h *host, f *modelFlags, d *loader.Decision) (out *shown, err error) {
	p := d.Profile
	out = &shown{
		Model: d.Model.ID, Path: d.Artifact.Path, Format: string(d.Artifact.Format), Family: d.Family.Record.Label, Graph: d.Family.Record.Graph,
		Profile: p.GetId(), Fidelity: p.GetFidelity(), Specialization: p.GetSpecialization(), ExactArtifact: p.GetExactArtifact(),
		Loader: p.GetLoader(), Loop: p.GetLoop(), Residence: string(d.Cell), ConfigFingerprint: d.ConfigFingerprint,
		Capabilities: p.GetRequiredCapabilities(), Composition: []compose.Field{}, Plugin: shownPlugin{Name: d.Family.Plugin},
		GraphFingerprint: d.GraphFingerprint, VisionSidecar: d.Parsed.VisionSidecar, Why: whyDecided(d),
	}
	if d.Implementation != nil {
		out.Implementation = d.Implementation.ID
	}
	if d.ArtifactFingerprint != "" {
		out.ArtifactFingerprint = &d.ArtifactFingerprint
	}
	if d.PluginErr != nil {
		out.Auxiliaries = besides(d.Auxiliaries, "no plan")
		out.Plugin.Error = d.PluginErr.Error()
		out.Why = append(out.Why, "no plan: "+d.PluginErr.Error())
		if out.Fit, err = d.Estimate(h.config.Model.Context); err != nil {
			out.Why = append(out.Why, "no estimate: "+err.Error())
		}
		return out, nil
	}
	planned, err := d.Plan(ctx, f.wishes(h.config))
	if err != nil {
		return nil, err
	}
	defer planned.Stop()
	out.Plugin.Version, out.Plugin.Path = planned.Describe.GetVersion(), d.Plugin.Exe
	out.Composition, out.GraphEntry = planned.Composition.Fields, planned.Plan.GetGraphEntry()
	out.Plan = planOf(planned)
	switch reason := planned.Plan.GetGraphReason(); {
	case reason != "":
		out.Why = append(out.Why, fmt.Sprintf("graph %s was proposed, %s runs: %s", planned.Proposed, out.GraphEntry, reason))
	default:
		out.Why = append(out.Why, fmt.Sprintf("graph %s: %s", out.GraphEntry, planned.ProposedWhy))
	}
	out.Auxiliaries = besides(planned.Auxiliaries, "")
	for _, p := range planned.Programs() {
		out.Programs = append(out.Programs, shownProgram(p))
	}
	out.Why = append(out.Why, planned.Notes...)
	if planned.Admission != nil {
		out.Why = append(out.Why, "cannot be opened: "+planned.Admission.Error())
	}
	return out, nil
}

// speedOf measures the memory and divides by what a token reads.
func speedOf(d *loader.Decision, s *shown, threads int) (*shownSpeed, error) {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	var plan *cladev1.Plan
	if s.Plan != nil {
		plan = &cladev1.Plan{}
		for _, l := range s.Plan.Lines {
			plan.Lines = append(plan.Lines, &cladev1.MemoryLine{Name: l.Name, Bytes: l.Bytes})
		}
	}
	bandwidth := machine.ReadBandwidth(threads)
	rate, err := d.Speed(plan, s.Fit, bandwidth)
	return &shownSpeed{true, rate, bandwidth, threads}, err
}

// whyDecided says who takes the model, and who knows its type and does not.
func whyDecided(d *loader.Decision) []string {
	r := d.Family.Record
	why := []string{fmt.Sprintf("family %s (%s, from plugin %s, %s) is the first whose clauses hold", r.Graph, r.Tier, d.Family.Plugin, d.Family.Source)}
	if d.Family.Source == corefamily.FromCaller {
		why = []string{fmt.Sprintf("graph %s and plugin %s were named by the caller; no family was asked", r.Graph, d.Family.Plugin)}
	}
	for _, passed := range d.Passed {
		why = append(why, "passed over: "+passed)
	}
	if r.Config.Inspect {
		why = append(why, "the plugin parses this config itself")
	}
	if d.Profile.GetFromCaller() && d.Profile.GetId() != "" {
		why = append(why, "profile "+d.Profile.GetId()+" was given by the caller")
	}
	return why
}

func planOf(p *loader.Planned) *shownPlan {
	plan := p.Plan
	out := &shownPlan{
		TotalBytes: plan.GetTotalBytes(), BudgetBytes: p.Budget, Fits: p.Admission == nil, GraphEntry: plan.GetGraphEntry(), Proposed: p.Proposed,
		GraphReason: plan.GetGraphReason(), Device: plan.GetDevice(), DType: plan.GetDtype(), Context: plan.GetContext(),
		BytesPerToken: plan.GetBytesPerToken(), Lines: []shownLine{}, Kernels: []shownKernel{}, Notes: append([]string{}, plan.GetNotes()...),
	}
	for _, l := range plan.GetLines() {
		out.Lines = append(out.Lines, shownLine{l.GetName(), l.GetBytes(), l.GetDetail()})
	}
	for _, k := range plan.GetKernels() {
		out.Kernels = append(out.Kernels, shownKernel{k.GetName(), k.GetNative(), k.GetReason()})
	}
	return out
}

func (a *app) printShown(s *shown) error {
	w := newTable(a.Out)
	w.row("model", s.Model)
	w.row("path", s.Path)
	w.row("family", s.Family+", graph "+s.Graph)
	w.row("profile", fmt.Sprintf("%s (%s, %s)", s.Profile, s.Specialization, s.Fidelity))
	w.row("loader", fmt.Sprintf("%s, %s, %s", s.Loader, s.Loop, s.Residence))
	w.row("fingerprint", s.ConfigFingerprint)
	w.row("capabilities", joinOr(s.Capabilities, "none"))
	w.row("plugin", joinOr(nonEmpty(s.Plugin.Name+" "+s.Plugin.Version, s.Plugin.Error), ""))
	for _, f := range s.Composition {
		w.row(f.Name, fmt.Sprintf("%s (%s)", f.Value, f.Source))
	}
	if p := s.Plan; p != nil {
		w.row("graph", p.GraphEntry)
		for _, l := range p.Lines {
			w.row("memory "+l.Name, config.FormatBytes(l.Bytes))
		}
		w.row("memory total", fmt.Sprintf("%s of %s", config.FormatBytes(p.TotalBytes), config.FormatBytes(p.BudgetBytes)))
		for _, n := range p.Notes {
			w.row("note", n)
		}
	}
	if f := s.Fit; f != nil {
		what := "for the weights"
		if f.Context > 0 {
			what = fmt.Sprintf("for %d tokens of context", f.Context)
		}
		w.row("estimate", fmt.Sprintf("%s %s, %s usable (the plugin's plan is exact)", config.FormatBytes(uint64(f.TotalBytes)), what,
			config.FormatBytes(uint64(f.UsableBytes))))
	}
	if v := s.Speed; v != nil {
		w.row("speed", fmt.Sprintf("about %.0f tok/s with a full context: an estimate from %.1f GB/s read by %d threads, nothing was run",
			v.TokensPerSec, v.BytesPerSecond/1e9, v.Threads))
	}
	for _, b := range s.Auxiliaries {
		what := config.FormatBytes(uint64(b.WeightBytes)) + " in " + b.Path
		w.row(b.Role, joinOr(nonEmpty(b.Kind, what, b.Reason), ""))
	}
	for _, p := range s.Programs {
		w.row("program "+p.ID, joinOr(nonEmpty(p.Reason), "available"))
	}
	for _, why := range s.Why {
		w.row("why", why)
	}
	return w.flush()
}

func nonEmpty(parts ...string) []string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}
