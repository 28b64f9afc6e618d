package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/sdk/contract"
)

// localModel is a model as list prints it.
type localModel struct {
	hub.Model
	Format string `json:"format"`
	Bytes  int64  `json:"bytes"`
}

func formatOf(m hub.Model) string {
	if strings.EqualFold(filepath.Ext(m.Path), ".gguf") {
		return "gguf"
	}
	return "safetensors"
}

func (a *app) listCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List local models", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		models, err := h.store.List()
		if err != nil {
			return err
		}
		out := []localModel{}
		for _, m := range models {
			out = append(out, localModel{m, formatOf(m), m.Size()})
		}
		if *asJSON {
			return a.printJSON(out)
		}
		t := newTable(a.Out)
		t.row("MODEL", "FORMAT", "SIZE", "SOURCE")
		for _, m := range out {
			t.row(m.ID, m.Format, config.FormatBytes(uint64(m.Bytes)), m.Source)
		}
		return t.flush()
	}
	return cmd
}

func (a *app) rmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm MODEL...", Short: "Remove local models", Args: cobra.MinimumNArgs(1),
		Long: "Removes models from the Hugging Face cache and the model folders. Of the cache only what no other model needs is deleted.",
	}
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask")
	cmd.ValidArgsFunction = a.completeModel
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		var models []hub.Model // all are known before one is removed
		for _, arg := range args {
			m, err := h.store.Resolve(arg)
			if err != nil {
				return err
			}
			models = append(models, m)
		}
		for _, m := range models {
			if !*yes && !(a.InTerminal && a.ErrTerminal) {
				return contract.Errorf(contract.InvalidArgument, m.ID, "is removed without asking only with --yes")
			}
			if !*yes && !a.agrees("Remove %s (%s)?", m.ID, config.FormatBytes(uint64(m.Size()))) {
				continue
			}
			freed, err := h.store.Remove(m)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(a.Out, "%s: %s freed\n", m.ID, config.FormatBytes(uint64(freed))); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
