package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/plugintest/check"
)

// pluginCheckCommand runs the conformance suite on any binary.
func (a *app) pluginCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check PATH", Short: "Hold a plugin's executable to the contract, with or without a model", Args: cobra.ExactArgs(1),
		Long: "Runs the conformance suite on an executable in any language. A plugin is tested on what it declares. Without --model, what\n" +
			"needs one is not run. Exit code 1 if a check fails.",
	}
	o := check.Options{}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&o.Model, "model", "", "folder or .gguf file of a model that the plugin takes")
	cmd.Flags().StringArrayVar(&o.Adapters, "adapter", nil, "folder of an adapter that fits the model; may be repeated")
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "names of checks, all without")
	list := cmd.Flags().Bool("list", false, "list the checks and run none")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *list {
			return cobra.NoArgs(cmd, args)
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *list {
			return a.listChecks(*asJSON)
		}
		h, err := a.host()
		if err != nil {
			return err
		}
		o.Runtime = h.RuntimeDir
		for path, into := range map[string]*string{args[0]: &o.Path, o.Model: &o.Model} {
			if path == "" {
				continue
			}
			if *into, err = filepath.Abs(path); err != nil {
				return contract.Errorf(contract.InvalidArgument, path, "%w", err)
			}
		}
		for i, path := range o.Adapters {
			if o.Adapters[i], err = filepath.Abs(path); err != nil {
				return contract.Errorf(contract.InvalidArgument, path, "%w", err)
			}
		}
		if len(o.Adapters) > 0 && o.Model == "" {
			return contract.Errorf(contract.InvalidArgument, "--adapter", "is of no use without --model")
		}
		if !*asJSON {
			o.Each = func(r check.Result) { _ = r.Write(a.Out) } // a closed pipe shows at the end
		}
		r, err := check.Run(cmd.Context(), o)
		if err != nil {
			return err
		}
		if *asJSON {
			err = a.printJSON(r)
		} else {
			_, err = fmt.Fprintln(a.Out, r.Summary())
		}
		if err == nil && !r.OK() {
			err = contract.Errorf(contract.PluginMismatch, r.Plugin, "%d of %d checks failed", r.Count(check.Failed), len(r.Results)).
				WithNext("docs/plugins/contract.md says what is due")
		}
		return err
	}
	return cmd
}

func (a *app) listChecks(asJSON bool) error {
	names, facts := check.Names()
	if asJSON {
		type entry struct {
			Name string `json:"name"`
			Fact string `json:"fact"`
		}
		out := []entry{}
		for i := range names {
			out = append(out, entry{names[i], facts[i]})
		}
		return a.printJSON(out)
	}
	t := newTable(a.Out)
	for i := range names {
		t.row(names[i], facts[i])
	}
	return t.flush()
}
