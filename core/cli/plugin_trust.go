package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
)

func (a *app) pluginTrustCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "trust", Short: "Manage the trusted sources of plugins", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(a.trustAddCommand(), a.trustListCommand(), a.trustRemoveCommand())
	return cmd
}

func (a *app) trustAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add NAME KEY [LOCATION]", Short: "Trust a source: its name, its public key, and where it is", Args: cobra.RangeArgs(2, 3),
		Long: "NAME is what the source's index calls itself, a domain as a rule; its plugins are then NAME/PLUGIN. KEY is its minisign public\n" +
			"key or a .pub file: get it from its publisher, not from where the archives are. LOCATION is a folder, https://..., or\n" +
			"oci://REGISTRY/REPOSITORY; without it only bundles of the source are installed. The index is fetched and must be signed by KEY.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key := args[1]
		if data, err := os.ReadFile(key); err == nil {
			key = string(data)
		}
		s := trust.Source{Name: args[0], Keys: []string{strings.TrimSpace(key)}}
		if len(args) == 3 {
			s.Location = args[2]
			if !strings.Contains(s.Location, "://") {
				abs, err := filepath.Abs(s.Location)
				if err != nil {
					return contract.Errorf(contract.InvalidArgument, s.Location, "%w", err)
				}
				s.Location = abs
			}
		}
		m, _, err := a.pluginManager()
		if err != nil {
			return err
		}
		known, findErr := m.Trust.Find(s.Name)
		if err := m.Trust.Add(s); err != nil {
			return err
		}
		if s.Location == "" {
			_, err := fmt.Fprintf(a.Out, "trusted %s (key %s) for bundles\n", s.Name, index.KeyName(s.Keys[0]))
			return err
		}
		x, _, err := m.Refresh(cmd.Context(), s)
		if err != nil { // a source that cannot be used is not left behind, and one that could is as it was
			if findErr == nil && !known.Root {
				_ = m.Trust.Add(known) // the first error is the one to tell
			} else {
				_ = m.Trust.Remove(s.Name)
			}
			return err
		}
		_, err = fmt.Fprintf(a.Out, "trusted %s (key %s): %d plugins, serial %d, until %s\n", s.Name, x.Signer, len(x.Plugins), x.Serial, x.Expires.Format(time.DateOnly))
		return err
	}
	return cmd
}

// trusted is one line of trust list.
type trusted struct {
	Name     string     `json:"name"`
	Location string     `json:"location,omitempty"`
	Keys     []string   `json:"keys"`
	BuiltIn  bool       `json:"built_in"`
	Serial   uint64     `json:"serial,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
	Error    string     `json:"error,omitempty"`
}

func (a *app) trustListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the trusted sources and the keys that may sign for them", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		m, _, err := a.pluginManager()
		if err != nil {
			return err
		}
		sources, err := m.Trust.Sources()
		if err != nil {
			return err
		}
		out := []trusted{}
		for _, s := range sources {
			t := trusted{Name: s.Name, Location: s.Location, BuiltIn: s.Root}
			now := time.Now()
			e, err := m.Trust.Expect(s, now, m.Release)
			if err != nil {
				t.Error = oneLine(err.Error())
			}
			for _, k := range e.Keys {
				t.Keys = append(t.Keys, index.KeyName(k))
			}
			if x, _, err := m.Trust.Cached(s, now, m.Release); err == nil {
				t.Serial, t.Expires = x.Serial, &x.Expires
			} else if s.Location != "" {
				t.Error = oneLine(err.Error())
			}
			out = append(out, t)
		}
		if *asJSON {
			return a.printJSON(out)
		}
		if len(out) == 0 {
			a.note("no source of plugins is trusted; %s", trust.HowToAdd)
			return nil
		}
		table := newTable(a.Out)
		table.row("SOURCE", "KEYS", "SERIAL", "EXPIRES", "LOCATION")
		for _, t := range out {
			expires := "-"
			if t.Expires != nil {
				expires = t.Expires.Format(time.DateOnly)
			}
			table.row(t.Name, joinOr(t.Keys, "-"), countOrDash(t.Serial), expires, joinOr(nonEmpty(t.Location, t.Error), "-"))
		}
		return table.flush()
	}
	return cmd
}

func (a *app) trustRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "remove NAME...", Short: "Trust sources no longer; what was installed from them stays", Args: cobra.MinimumNArgs(1)}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		m, _, err := a.pluginManager()
		if err != nil {
			return err
		}
		for _, name := range args {
			if err := m.Trust.Remove(name); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
