package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) familiesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "families", Short: "List the model families, in the order they are asked", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		type entry struct {
			Graph     string   `json:"graph"`
			Label     string   `json:"label"`
			Tier      string   `json:"tier"`
			Status    string   `json:"status"`
			Since     string   `json:"since,omitempty"`
			Plugin    string   `json:"plugin"`
			Version   string   `json:"version"`
			Source    string   `json:"source"`
			Installed bool     `json:"installed"`
			Loaders   []string `json:"loaders"`
			Loop      string   `json:"loop"`
			Fidelity  string   `json:"fidelity"`
			Types     []string `json:"model_types"`
		}
		out := []entry{}
		for _, e := range h.Families.Families() {
			r := e.Record
			_, err := h.plugins.find(e.Plugin)
			out = append(out, entry{
				r.Graph, r.Label, string(r.Tier), string(r.Status), r.Since, e.Plugin, e.Version, e.Source.String(), err == nil,
				r.Loaders, string(r.Loop), string(r.Fidelity), r.ModelTypes,
			})
		}
		if *asJSON {
			return a.printJSON(out)
		}
		t := newTable(a.Out)
		t.row("GRAPH", "TIER", "STATUS", "PLUGIN", "SOURCE", "LOADERS", "LOOP", "TYPES")
		for _, e := range out {
			status := e.Status
			if e.Since != "" {
				status += " for " + e.Since
			}
			t.row(e.Graph, e.Tier, status, e.Plugin+" "+e.Version, e.Source, joinOr(e.Loaders, "-"), e.Loop, joinOr(e.Types, "-"))
		}
		return t.flush()
	}
	return cmd
}
