package cli

import (
	"context"
	"errors"

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
		return onServer(w.ID, *loadModel, func(c *admin.Client) error {
			return c.LoadAdapter(cmd.Context(), *loadModel, admin.Adapter{ID: w.ID, Path: w.Path, Scale: w.Scale})
		})
	}
	unload := &cobra.Command{
		Use: "unload NAME", Short: "Unload an adapter", Args: cobra.ExactArgs(1),
		Long: "No new request finds it at once; those that have it go on. Waits until the last has ended and its memory is free.",
	}
	unloadModel := unload.Flags().String("model", "", "MODEL that has it, where several have one of that name")
	unload.RunE = func(cmd *cobra.Command, args []string) error {
		return onServer(args[0], *unloadModel, func(c *admin.Client) error {
			return c.UnloadAdapter(cmd.Context(), *unloadModel, args[0])
		})
	}
	cmd.AddCommand(load, unload)
	return cmd
}

// onServer runs fn on the first of this user's servers that knows the model and the adapter: what a name means is the server's to say.
func onServer(adapter, model string, fn func(*admin.Client) error) error {
	clients, err := servers()
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if len(clients) == 0 {
		return contract.Errorf(contract.NotFound, adapter, "no server is running").WithNext("`clade serve MODEL` starts one")
	}
	var none error // of the server that came nearest
	for _, c := range clients {
		err := fn(c)
		var e *contract.Error
		switch {
		case !errors.As(err, &e) || e.Kind != contract.NotFound:
			return err
		case e.Subject == adapter: // it has the model
			none = err
		case e.Subject != model: // a file that it asked for
			return err
		case none == nil && len(clients) == 1:
			none = err
		case none == nil:
			none = contract.Errorf(contract.NotFound, model, "no running server serves it").WithNext("`clade ps` lists what runs")
		}
	}
	return none
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
