package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// modelFlags are the flags of every verb that opens a model.
type modelFlags struct {
	graph        string
	requireGraph bool
	// profile and plugin are paths; fingerprint is none, or an artifact's.
	profile, fingerprint, implementation, plugin string
	// draft is a word that loader.OwnDraft knows, or a model; adapters are folders.
	draft              string
	draftDepth         uint32
	adapters, programs []string
	// embeds: the verb needs a model that gives embeddings, and says so before anything is opened.
	embeds bool
}

func (a *app) addModelFlags(cmd *cobra.Command) *modelFlags {
	f, flags := &modelFlags{}, cmd.Flags()
	a.bind(flags, "device", "model.device", "exact device string, or auto")
	a.bind(flags, "dtype", "model.dtype", "native, float32, bfloat16 or float16")
	a.bind(flags, "kv", "model.kv", "KV cache scheme: native, f32, bf16, BITS, affine:BITSgGROUP, turbo:kNvM, layers:I-J=BITS, or config")
	a.bind(flags, "kv-window", "model.kv_window", "TOKENS or TOKENS+KEEP: attend to the last TOKENS and the first KEEP (4) instead of all (0: all)")
	a.bind(flags, "max-generation", "model.max_generation", "most tokens of one answer (0: the context)")
	a.bind(flags, "rows", "model.rows", "sequences that generate at once (0: the family's own)")
	a.bind(flags, "prefill-chunk", "model.prefill_chunk", "most prompt tokens of one evaluation (0: the default)")
	a.bindSwitch(flags, "paging", "model.paging", "auto, true or false: keep full-attention caches in pages")
	a.bind(flags, "context", "model.context", "tokens of context (0: the model's own)")
	a.bind(flags, "threads", "model.threads", "most threads to compute with (0: the machine's cores)")
	a.bind(flags, "kernels", "model.kernels", "auto, require, off or fast")
	a.bind(flags, "prefix-cache", "model.prefix_cache", "bytes that the beginnings of earlier requests may keep (0: none)")
	a.bind(flags, "prefix-disk", "model.prefix_disk", "bytes of files that keep them beyond the process (0: none)")
	a.bind(flags, "adapter-memory", "model.adapter_memory", "bytes for adapters that are loaded while the model is served (0: none)")
	a.bind(flags, "pin", "model.pin", "processors that the computing threads keep to, such as 0-3,8, or none")
	a.bind(flags, "numa", "model.numa", "interleave, or the memory node that holds packed weights, or none")
	a.bindSwitch(flags, "deterministic", "model.deterministic", "auto, true or false")
	a.bind(flags, "memory-budget", "memory_budget", "bytes that models may take, such as 4GiB")
	flags.StringVar(&f.graph, "graph", "", "entry of the family's graph table to use, whatever its key")
	flags.StringVar(&f.profile, "profile", "", "FILE with a profile of your own")
	flags.StringVar(&f.fingerprint, "artifact-fingerprint", "", "what the artifact is (hf:ORG/NAME@revision), or none")
	flags.StringVar(&f.implementation, "implementation", "", "ID of a registered implementation to use")
	flags.StringVar(&f.plugin, "plugin", "", "PATH of a plugin of your own, with --graph; needs no family and no profile")
	flags.StringVar(&f.draft, "draft", "", "MODEL that drafts tokens for this one, a drafter or head made for it; or mtp (the model's own head), ngram, or auto (either)")
	flags.Uint32Var(&f.draftDepth, "draft-depth", 0, "most tokens drafted at once (0: the default)")
	flags.StringArrayVar(&f.adapters, "adapter", nil, "[NAME=]FOLDER[:SCALE] of an adapter to load with the model; may be repeated")
	flags.StringArrayVar(&f.programs, "program", nil, "auxiliary program of the graph to use where it can run; may be repeated")
	flags.BoolVar(&f.requireGraph, "require-graph", false, "refuse any graph but the proposed one")
	previous := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if f.plugin != "" && f.graph == "" {
			return contract.Errorf(contract.InvalidArgument, "--plugin", "needs --graph: which graph of the plugin to use")
		}
		if previous != nil {
			return previous(cmd, args)
		}
		return nil
	}
	cmd.ValidArgsFunction = a.completeModel
	return f
}

func (f *modelFlags) wishes(c *config.Config) loader.Wishes {
	m := c.Model
	return loader.Wishes{
		Wishes: compose.Wishes{
			Device: m.Device, DType: m.DType, KV: wished(c, "model.kv", m.KV), Context: m.Context, Threads: m.Threads,
			Kernels: wished(c, "model.kernels", m.Kernels), Pin: m.Pin, NUMA: m.NUMA, Deterministic: m.Deterministic, Paging: m.Paging, KVWindow: m.KVWindow, Rows: m.Rows,
			PrefillChunk: m.PrefillChunk, MaxGeneration: m.MaxGeneration, PrefixCache: wished(c, "model.prefix_cache", strconv.FormatUint(m.PrefixCache, 10)),
			AdapterBytes: m.AdapterMemory,
			PrefixDisk:   m.PrefixDisk, PrefixDiskDir: prefixDir(c),
		},
		Graph: f.graph, RequireGraph: f.requireGraph, Chosen: fmt.Sprintf("%+v", *f),
	}
}

// wished is a value that someone set; a default asks for nothing.
func wished(c *config.Config, key, value string) string {
	if c.Set(key) {
		return value
	}
	return ""
}

// completeModel offers local models to the shell.
func (a *app) completeModel(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	c, err := a.config()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	models, err := hub.Store{Dirs: c.Models.Dirs, HFCache: c.Models.HFCache}.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, m := range models {
		ids = append(ids, m.ID)
	}
	return ids, cobra.ShellCompDirectiveDefault
}

// decide resolves MODEL and decides everything that needs no plugin, but for a plugin of the caller's own, which is asked
// what it has.
func (h *host) decide(ctx context.Context, f *modelFlags, arg string) (*loader.Decision, error) {
	m, err := h.local(ctx, arg)
	if err != nil {
		return nil, err
	}
	c, err := f.choices(ctx, h)
	if err != nil {
		return nil, err
	}
	return h.DecideWith(m, c)
}

// closeTimeout is what a model gets to end when a verb is done with it.
const closeTimeout = 5 * time.Second

// withModel opens MODEL, runs fn and closes it, whatever comes of fn.
func (a *app) withModel(ctx context.Context, f *modelFlags, arg string, fn func(*loader.Model) error) error {
	h, err := a.host()
	if err != nil {
		return err
	}
	m, err := a.open(ctx, h, f, arg)
	if err != nil {
		return err
	}
	err = fn(m)
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if closeErr := m.Close(limit); closeErr != nil && err == nil {
		h.log.Warn("model did not close well", "error", closeErr)
	}
	return err
}

// open opens MODEL with progress on stderr and tells the plan's notes.
func (a *app) open(ctx context.Context, h *host, f *modelFlags, arg string) (*loader.Model, error) {
	d, err := h.decide(ctx, f, arg)
	if err != nil {
		return nil, err
	}
	if _, missing := d.MissingPlugin(); missing {
		_ = d.Close() // only read
		if h, err = a.bring(ctx, h, d); err != nil {
			return nil, err
		}
		if d, err = h.decide(ctx, f, arg); err != nil {
			return nil, err
		}
	}
	m, err := a.openDecided(ctx, h, f, d)
	if err != nil {
		_ = d.Close() // only read; the first error is the one to tell
		return nil, err
	}
	return m, nil
}

func (a *app) openDecided(ctx context.Context, h *host, f *modelFlags, d *loader.Decision) (*loader.Model, error) {
	// Before a plugin starts: what cannot chat says so, whether or not its plugin is there.
	if err := d.Cell.ForText(d.Profile.GetId()); err != nil {
		return nil, err
	}
	if f.embeds {
		if err := d.Embeds(); err != nil {
			return nil, err
		}
	}
	p, err := d.Plan(ctx, f.wishes(h.config))
	if err != nil {
		return nil, err
	}
	if err := h.enough(p); err != nil {
		p.Stop()
		return nil, err
	}
	for _, n := range append(p.Notes, p.Plan.GetNotes()...) {
		a.note("%s", n)
	}
	bar := &progress{app: a, name: d.Model.ID}
	m, err := p.Open(ctx, bar.show)
	bar.end()
	return m, err
}

// progress shows the load: one line rewritten on a terminal, a plain line at each tenth elsewhere once it takes a while.
type progress struct {
	app   *app
	name  string
	mu    sync.Mutex
	begun time.Time
	tenth uint64
	shown bool
}

// quiet is how long a load may take before lines appear where there is no terminal.
const quiet = 2 * time.Second

func (p *progress) show(l *cladev1.LoadProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun.IsZero() {
		p.begun = time.Now()
	}
	if l.GetBytesTotal() == 0 {
		return
	}
	text := fmt.Sprintf("%s: %s %s of %s", p.name, l.GetPhase(), config.FormatBytes(l.GetBytesDone()), config.FormatBytes(l.GetBytesTotal()))
	tenth := l.GetBytesDone() * 10 / l.GetBytesTotal()
	switch {
	case p.app.ErrTerminal:
		_, _ = fmt.Fprintf(p.app.Err, "\r\033[K%s", text)
		p.shown = true
	case tenth > p.tenth && time.Since(p.begun) > quiet:
		_, _ = fmt.Fprintln(p.app.Err, text)
	}
	p.tenth = tenth
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		_, _ = fmt.Fprint(p.app.Err, "\r\033[K")
	}
}

func joinOr(parts []string, none string) string {
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}
