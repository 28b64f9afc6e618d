package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/serve"
	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/sdk/contract"
)

// adapterCommand changes which adapters a running server has.
func (a *app) adapterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "adapter", Short: "Load adapters into a running server, and unload them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	load := &cobra.Command{
		Use: "load [NAME=]FOLDER[:SCALE]", Short: "Load an adapter, which requests then choose by its name", Args: cobra.ExactArgs(1),
		Long: "The server must have room for it: `clade serve --adapter-memory`. An adapter is loaded whole, or nothing changes.",
	}
	loadModel := load.Flags().String("model", "", "MODEL to load it into, where several are served")
	load.RunE = func(cmd *cobra.Command, args []string) error {
		w, err := loader.ParseAdapter(args[0])
		if err != nil {
			return err
		}
		return onServer(cmd.Context(), w.ID, *loadModel, func(c *admin.Client) error {
			return c.LoadAdapter(cmd.Context(), *loadModel, admin.Adapter{ID: w.ID, Path: w.Path, Scale: w.Scale})
		})
	}
	unload := &cobra.Command{
		Use: "unload NAME", Short: "Unload an adapter", Args: cobra.ExactArgs(1),
		Long: "No new request finds it at once; those that have it go on. Waits until the last has ended and its memory is free.",
	}
	unloadModel := unload.Flags().String("model", "", "MODEL that has it, where several have one of that name")
	unload.RunE = func(cmd *cobra.Command, args []string) error {
		return onServer(cmd.Context(), args[0], *unloadModel, func(c *admin.Client) error {
			return c.UnloadAdapter(cmd.Context(), *unloadModel, args[0])
		})
	}
	cmd.AddCommand(load, unload)
	return cmd
}

// onServer runs fn on the first of this user's servers that knows the model or adapter.
func onServer(ctx context.Context, subject, model string, fn func(*admin.Client) error) error {
	clients, err := servers()
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if len(clients) == 0 {
		return contract.Errorf(contract.NotFound, subject, "no server is running").WithNext("`clade serve MODEL` starts one")
	}
	for _, c := range clients {
		if model != "" && !serves(ctx, c, model) && len(clients) > 1 {
			continue
		}
		if err = fn(c); contract.KindOf(err) != contract.NotFound || len(clients) == 1 {
			return err
		}
	}
	if err == nil {
		err = contract.Errorf(contract.NotFound, model, "no running server serves it").WithNext("`clade ps` lists what runs")
	}
	return err
}

// serves says whether a server has a model of that name, or of which it is a part.
func serves(ctx context.Context, c *admin.Client, model string) bool {
	list, err := c.Running(ctx)
	if err != nil {
		return false
	}
	for _, r := range list {
		if strings.Contains(strings.ToLower(r.Model), strings.ToLower(model)) {
			return true
		}
	}
	return false
}

// servedAdapters are those that models are opened with, as a server lists them before it has opened any.
func (f *modelFlags) servedAdapters() ([]serve.Adapter, error) {
	var out []serve.Adapter
	for _, text := range f.adapters {
		w, err := loader.ParseAdapter(text)
		if err != nil {
			return nil, err
		}
		out = append(out, serve.Adapter{ID: w.ID, Path: w.Path, Scale: w.Scale})
	}
	return out, nil
}

// defaultAdapters is what requests have that choose nothing; nil: all that the model is opened with.
func defaultAdapters(c *config.Config, given []serve.Adapter) (*string, error) {
	choice := c.Serve.Adapters
	if choice == "" {
		return nil, nil
	}
	uses, err := contract.ParseAdapters(choice)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, "serve.adapters", "%w", err)
	}
	known := map[string]bool{}
	for _, a := range given {
		known[a.ID] = true
	}
	for _, u := range uses {
		if !known[u.ID] {
			return nil, contract.Errorf(contract.NotFound, "serve.adapters", "%s is none of the adapters that are served", u.ID).WithNext("name its folder with --adapter")
		}
	}
	return &choice, nil
}

// Adapters implements serve.Engine.
func (e engine) Adapters() []serve.Adapter {
	var out []serve.Adapter
	for _, a := range e.Model.Adapters() {
		out = append(out, serve.Adapter{ID: a.ID, Path: a.Path, Scale: a.Scale, Given: a.Given})
	}
	return out
}

// LoadAdapter implements serve.Engine.
func (e engine) LoadAdapter(ctx context.Context, a serve.Adapter) error {
	return e.Model.LoadAdapter(ctx, loader.AdapterWish{ID: a.ID, Path: a.Path, Scale: a.Scale})
}
