package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

const mainRevision = "main"

func (a *app) pullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pull ORG/NAME[:QUANT]", Short: "Download a model", Args: cobra.ExactArgs(1),
		Long: "Downloads a model from the hub into the Hugging Face cache: safetensors with what describes them, or one GGUF model, named by\n" +
			":QUANT or /FILE.gguf when there are several. A download that was interrupted goes on where it ended. HF_ENDPOINT, HF_TOKEN,\n" +
			"HF_HUB_OFFLINE and HF_HUB_CACHE count as they do for the hub's own tools.",
	}
	asJSON := jsonFlag(cmd)
	revision := cmd.Flags().String("revision", mainRevision, "branch, tag or commit")
	offline := cmd.Flags().Bool("offline", false, "ask no hub")
	force := cmd.Flags().Bool("force", false, "also a model that no family takes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		ref, err := hub.ParseReference(args[0])
		if err != nil {
			return err
		}
		p, err := a.prepare(cmd.Context(), h, ref, *revision, *offline)
		if err != nil {
			return err
		}
		plugin, err := h.takes(cmd.Context(), p)
		if err != nil && !*force {
			return err
		}
		m, err := a.download(cmd.Context(), p)
		if err != nil {
			return err
		}
		if err := a.offerPlugin(cmd.Context(), h, plugin, m.ID); err != nil {
			return err
		}
		if *asJSON {
			return a.printJSON(localModel{Model: m, Bytes: m.Size(), Format: formatOf(m)})
		}
		_, err = fmt.Fprintln(a.Out, m.ID)
		return err
	}
	return cmd
}

func (a *app) prepare(ctx context.Context, h *host, ref hub.Reference, revision string, offline bool) (*hub.Pull, error) {
	remote, err := hub.RemoteFromEnv()
	if err != nil {
		return nil, err
	}
	remote.Offline = remote.Offline || offline
	return h.store.Prepare(ctx, remote, ref, revision)
}

// takes names the plugin of the family that takes the model, which its config tells before anything large comes; empty for
// a GGUF, whose header comes with its weights.
func (h *host) takes(ctx context.Context, p *hub.Pull) (string, error) {
	data, err := p.Small(ctx, "config.json")
	if err != nil || data == nil {
		return "", err
	}
	cfg, err := artifact.ParseConfig("config.json", data)
	if err != nil {
		return "", err
	}
	entry, err := h.Families.Match(cfg)
	if err != nil {
		return "", err
	}
	return entry.Plugin, nil
}

// offerPlugin brings the family that the model needs, or tells how to, if it is not there.
func (a *app) offerPlugin(ctx context.Context, h *host, plugin, model string) error {
	if plugin == "" {
		return nil
	}
	_, err := h.Find(plugin)
	if err == nil {
		return nil
	}
	if contract.KindOf(err) == contract.PluginMissing {
		done, bringErr := a.bringPlugin(ctx, h, plugin, model)
		if done || bringErr != nil {
			return bringErr
		}
	}
	a.note("%s", err)
	return nil
}

// download runs a pull with progress.
func (a *app) download(ctx context.Context, p *hub.Pull) (hub.Model, error) {
	bar := &transfer{app: a, name: p.Repository.ID, begun: time.Now()}
	m, err := p.Run(ctx, bar.show)
	bar.end()
	return m, err
}

// local is the model that arg names: one on this machine, or, with the caller's consent, one that the hub has.
func (h *host) local(ctx context.Context, arg string) (hub.Model, error) {
	m, err := h.store.Resolve(arg)
	if contract.KindOf(err) != contract.NotFound {
		return m, err
	}
	ref, refErr := hub.ParseReference(arg)
	if refErr != nil || strings.HasPrefix(arg, ".") {
		return m, err
	}
	a, policy := h.app, h.config.Models.AutoPull
	if policy == "never" || (policy == "ask" && !(a.InTerminal && a.ErrTerminal)) {
		return m, contract.Errorf(contract.NotFound, arg, "is not on this machine").WithNext("`clade pull %s` brings it from the hub", arg)
	}
	p, err := a.prepare(ctx, h, ref, mainRevision, false)
	if err != nil {
		return m, err
	}
	if _, err := h.takes(ctx, p); err != nil {
		return m, err
	}
	if policy == "ask" && !a.agrees("%s is not on this machine. Download %s from %s?", p.Repository.ID, config.FormatBytes(uint64(p.Bytes())), p.Remote.Endpoint) {
		return m, contract.Errorf(contract.NotFound, arg, "is not on this machine and was not downloaded")
	}
	return a.download(ctx, p)
}

// agrees asks a person; only the terminal's own line counts, and an empty one is yes.
func (a *app) agrees(format string, args ...any) bool {
	_, _ = fmt.Fprintf(a.Err, format+" [Y/n] ", args...)
	line, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil {
		return false
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "", "y", "yes":
		return true
	}
	return false
}

// transfer shows a download: one line rewritten on a terminal, a plain line at each tenth elsewhere.
type transfer struct {
	app   *app
	name  string
	begun time.Time

	mu    sync.Mutex
	drawn time.Time
	first int64 // bytes that were there before
	tenth int64
	shown bool
}

func (t *transfer) show(p hub.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Total == 0 {
		return
	}
	if t.drawn.IsZero() {
		t.first = p.Done
	}
	tenth := p.Done * 10 / p.Total
	switch now := time.Now(); {
	case t.app.ErrTerminal && now.Sub(t.drawn) > 100*time.Millisecond:
		t.drawn, t.shown = now, true
		_, _ = fmt.Fprintf(t.app.Err, "\r\033[K%s", t.line(p))
	case !t.app.ErrTerminal && tenth > t.tenth && now.Sub(t.begun) > quiet:
		t.drawn = now
		_, _ = fmt.Fprintln(t.app.Err, t.line(p))
	case t.drawn.IsZero():
		t.drawn = now
	}
	t.tenth = max(t.tenth, tenth)
}

func (t *transfer) line(p hub.Progress) string {
	text := fmt.Sprintf("%s: %s of %s", t.name, config.FormatBytes(uint64(max(p.Done, 0))), config.FormatBytes(uint64(p.Total)))
	took, came := time.Since(t.begun), p.Done-t.first
	if came <= 0 || took < quiet {
		return text
	}
	rate := float64(came) / took.Seconds()
	left := time.Duration(float64(p.Total-p.Done) / rate * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s, %s/s, %s left", text, config.FormatBytes(uint64(rate)), left)
}

func (t *transfer) end() {
	if t.shown {
		_, _ = fmt.Fprint(t.app.Err, "\r\033[K")
	}
}
