package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/sdk/contract"
)

// servers are clients of this user's running servers, the oldest first. The caller closes them.
func servers() ([]*admin.Client, error) {
	dir, err := admin.Dir()
	if err != nil {
		return nil, err
	}
	states, err := admin.List(dir)
	if err != nil {
		return nil, err
	}
	out := make([]*admin.Client, 0, len(states))
	for _, s := range states {
		out = append(out, admin.Dial(s))
	}
	return out, nil
}

func closeAll(clients []*admin.Client) {
	for _, c := range clients {
		c.Close()
	}
}

// keyOf names a load: the model's place and all that was wished of it. Two loads with one key have one composition.
func keyOf(h *host, path string, w loader.Wishes) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %+v %d", path, h.RuntimeDir, w, h.Budget))
	return hex.EncodeToString(sum[:])
}

// withTalker runs fn with MODEL as a running server has it open, with the same wishes, else with one of its own.
func (a *app) withTalker(ctx context.Context, f *modelFlags, arg string, fn func(admin.Model) error) error {
	h, err := a.host()
	if err != nil {
		return err
	}
	m, err := h.local(ctx, arg)
	if err != nil {
		return err
	}
	clients, err := servers()
	if err != nil {
		h.log.Debug("running servers cannot be found", "error", err)
	}
	defer closeAll(clients)
	key := keyOf(h, m.Path, f.wishes(h.config))
	for _, c := range clients {
		borrowed, err := c.Borrow(ctx, key)
		if err == nil {
			h.log.Info("using the model that a server has open", "model", m.ID, "server", c.State.Pid)
			return fn(borrowed)
		}
		h.log.Debug("server has it not", "server", c.State.Pid, "error", err)
	}
	return a.withModel(ctx, f, arg, func(m *loader.Model) error { return fn(m) })
}

func (a *app) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ps", Short: "List the models that running servers hold", Args: cobra.NoArgs,
		Long: "Asks every `clade serve` of this user. PLANNED is the memory a model was admitted with, RESIDENT what its process takes\n" +
			"now, EXPIRES when it is unloaded if nobody uses it.",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		clients, err := servers()
		if err != nil {
			return err
		}
		defer closeAll(clients)
		all := []admin.Running{}
		for _, c := range clients {
			list, err := c.Running(cmd.Context())
			if err != nil {
				a.note("%s", oneLine(err.Error()))
				continue
			}
			for _, r := range list {
				r.URL = c.State.URL
				all = append(all, r)
			}
		}
		if *asJSON {
			return a.printJSON(all)
		}
		if len(clients) == 0 {
			a.note("no server is running; `clade serve MODEL` starts one")
			return nil
		}
		t := newTable(a.Out)
		t.row("MODEL", "STATE", "DEVICE", "CONTEXT", "PLANNED", "RESIDENT", "REQUESTS", "EXPIRES", "ADAPTERS", "SERVER")
		for _, r := range all {
			var adapters []string
			for _, one := range r.Adapters {
				adapters = append(adapters, one.ID)
			}
			t.row(r.Model, r.State, orDash(r.Device), countOrDash(uint64(r.Context)), bytesOrDash(r.PlannedBytes), bytesOrDash(r.ResidentBytes),
				fmt.Sprint(r.Requests), expires(r), joinOr(adapters, "-"), fmt.Sprintf("%s (pid %d)", r.URL, r.Server))
		}
		return t.flush()
	}
	return cmd
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func countOrDash(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func bytesOrDash(n uint64) string {
	if n == 0 {
		return "-"
	}
	return config.FormatBytes(n)
}

func expires(r admin.Running) string {
	if r.ExpiresIn == nil {
		return "-"
	}
	return "in " + time.Duration(*r.ExpiresIn*float64(time.Second)).Round(time.Second).String()
}

func (a *app) stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop MODEL...", Short: "Unload models that running servers hold",
		Long: "Waits until a model's running requests have ended. The server stays, and opens the model again for its next request.",
		Args: cobra.ArbitraryArgs,
	}
	all := cmd.Flags().Bool("all", false, "unload every model of every server")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *all == (len(args) > 0) {
			return contract.Errorf(contract.InvalidArgument, "stop", "name models, or give --all")
		}
		clients, err := servers()
		if err != nil {
			return err
		}
		defer closeAll(clients)
		if len(clients) == 0 && !*all {
			return contract.Errorf(contract.NotFound, strings.Join(args, ", "), "no server is running").WithNext("`clade ps` lists what runs")
		}
		if *all {
			return a.stopAll(cmd.Context(), clients)
		}
		for _, name := range args {
			if err := a.stopOne(cmd.Context(), clients, name); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func (a *app) stopAll(ctx context.Context, clients []*admin.Client) error {
	var errs []error
	for _, c := range clients {
		list, err := c.Running(ctx)
		for _, r := range list {
			if r.State != "absent" && err == nil {
				_, _, err = c.Stop(ctx, r.Model)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stopOne unloads the model in every server that has it.
func (a *app) stopOne(ctx context.Context, clients []*admin.Client, name string) error {
	served, open := false, false
	for _, c := range clients {
		model, was, err := c.Stop(ctx, name)
		if contract.KindOf(err) == contract.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		served, open, name = true, open || was, model
	}
	if !served {
		return contract.Errorf(contract.NotFound, name, "no running server serves it").WithNext("`clade ps` lists what runs")
	}
	if !open {
		a.note("%s was not open", name)
	}
	return nil
}
