package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/install"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
)

func (a *app) pluginInstallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "install NAME[@VERSION]... | BUNDLE", Short: "Install plugins from trusted sources",
		Long: "NAME is a first-party plugin, SOURCE/NAME one of another trusted source; BUNDLE a file of `clade plugin bundle`. The newest\n" +
			"version that runs here is taken, or VERSION. With --locked, exactly what plugins.lock has, and without NAME all of it.",
	}
	locked := cmd.Flags().Bool("locked", false, "install exactly what plugins.lock has, or fail")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !*locked {
			return contract.Errorf(contract.InvalidArgument, "NAME", "is missing").WithNext("`clade plugin search` lists what there is")
		}
		m, _, err := a.pluginManager()
		if err != nil {
			return err
		}
		if len(args) == 0 {
			if args, err = m.LockedNames(); err != nil {
				return err
			}
		}
		for _, arg := range args {
			proposals, err := proposals(cmd, m, arg, *locked)
			if err != nil {
				return err
			}
			for _, p := range proposals {
				if err := a.installProposal(cmd, m, p); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return cmd
}

// proposals are what one argument of install asks for.
func proposals(cmd *cobra.Command, m *install.Manager, arg string, locked bool) ([]*install.Proposal, error) {
	ref, version, _ := strings.Cut(arg, "@")
	switch {
	case install.IsBundle(arg) && locked:
		return nil, contract.Errorf(contract.UnsupportedOption, "--locked", "a bundle has one version of each plugin")
	case install.IsBundle(arg):
		return m.ProposeBundle(cmd.Context(), arg)
	case locked && version != "":
		return nil, contract.Errorf(contract.InvalidArgument, arg, "--locked takes the version from plugins.lock")
	case locked:
		p, err := m.ProposeLocked(cmd.Context(), ref)
		return []*install.Proposal{p}, err
	}
	p, err := m.Propose(cmd.Context(), ref, version)
	return []*install.Proposal{p}, err
}

func (a *app) installProposal(cmd *cobra.Command, m *install.Manager, p *install.Proposal) error {
	if p.Current() {
		a.note("%s %s is installed already", p.Name, p.Choice.Version.Version)
		return nil
	}
	r, err := m.Install(cmd.Context(), p)
	if err != nil {
		return err
	}
	return a.installed(p, r)
}

// installed tells what was done, on stdout for scripts to read.
func (a *app) installed(p *install.Proposal, r store.Record) error {
	with := ""
	if rt := p.Choice.Runtime; rt != nil {
		with = fmt.Sprintf(", runtime %s (MLX %s)", rt.Variant, rt.MLX)
	}
	_, err := fmt.Fprintf(a.Out, "installed %s %s from %s (key %s)%s\n", p.Name, r.Version, p.Source.Name, r.Signer, with)
	return err
}

func (a *app) pluginUpdateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "update [NAME...]", Short: "Install newer versions, and show what changes",
		Long: "Without NAME, every installed plugin. A running server uses the new version for its next openings, and moves open models\n" +
			"to it without dropping a request.",
	}
	check := cmd.Flags().Bool("check", false, "show what would change, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, _, err := a.pluginManager()
		if err != nil {
			return err
		}
		changes, err := m.Updates(cmd.Context(), args)
		if err != nil {
			return err
		}
		var first error
		for _, c := range changes {
			if err := a.showChange(c); err != nil {
				return err
			}
			err := c.Err
			if err == nil && !*check && !c.Current() {
				_, err = m.Install(cmd.Context(), c.Proposal)
			}
			if first == nil {
				first = err
			}
		}
		if first != nil || *check {
			return first
		}
		return m.Collect(cmd.Context())
	}
	return cmd
}

func (a *app) showChange(c install.Change) error {
	name := install.Qualified(c.Was.Source, c.Was.Plugin)
	var what string
	switch {
	case c.Err != nil:
		what = fmt.Sprintf("%s %s stays", name, c.Was.Version)
	case c.Current():
		what = fmt.Sprintf("%s %s is the newest", name, c.Was.Version)
	default:
		what = fmt.Sprintf("%s %s -> %s, %s to download", name, c.Was.Version, c.Choice.Version.Version, config.FormatBytes(uint64(c.Missing)))
		if c.Was.Version == c.Choice.Version.Version {
			what = fmt.Sprintf("%s %s -> another build of it, %s to download", name, c.Was.Version, config.FormatBytes(uint64(c.Missing)))
		}
		for _, part := range []struct {
			title string
			list  []string
		}{{"new families", c.Added}, {"changed", c.Changed}, {"gone", c.Removed}} {
			if len(part.list) > 0 {
				what += fmt.Sprintf("; %s: %s", part.title, strings.Join(part.list, ", "))
			}
		}
		if r := c.Choice.Runtime; r != nil && c.RuntimeChanges {
			what += fmt.Sprintf("; runtime %s, MLX %s", r.Variant, r.MLX)
		}
	}
	_, err := fmt.Fprintln(a.Out, what)
	return err
}

func (a *app) pluginRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "remove NAME...", Short: "Remove installed plugins, and runtimes that nothing needs any more", Args: cobra.MinimumNArgs(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, _, err := a.pluginManager()
		if err != nil {
			return err
		}
		for _, arg := range args {
			r, err := m.Remove(cmd.Context(), arg)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(a.Out, "removed %s %s\n", install.Qualified(r.Source, r.Plugin), r.Version); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// found is one line of a search.
type found struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Title    string   `json:"title,omitempty"`
	Families []string `json:"families"`
	Bytes    int64    `json:"bytes,omitempty"`
	// Installed is the version that is there, Why why none runs on this machine.
	Installed string `json:"installed,omitempty"`
	Why       string `json:"why,omitempty"`
}

func (a *app) pluginSearchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "search [TEXT]", Short: "List what the trusted sources offer", Args: cobra.MaximumNArgs(1),
		Long: "Fetches the sources' indexes. TEXT is a part of a name, a title, a family or a model type.",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, _, err := a.pluginManager()
		if err != nil {
			return err
		}
		sources, err := m.Trust.Sources()
		if err != nil {
			return err
		}
		if len(sources) == 0 {
			return contract.Errorf(contract.PluginMissing, "plugin search", "no source of plugins is trusted").WithNext("%s", trust.HowToAdd)
		}
		out := []found{}
		var first error
		for _, s := range sources {
			x, _, err := m.Refresh(cmd.Context(), s)
			if err != nil {
				a.note("source %s: %s", s.Name, oneLine(err.Error()))
				if first == nil {
					first = err
				}
				continue
			}
			out = append(out, search(m, x, strings.ToLower(strings.Join(args, "")))...)
		}
		if err := a.printFound(out, *asJSON); err != nil {
			return err
		}
		return first
	}
	return cmd
}

func search(m *install.Manager, x index.Accepted, text string) []found {
	var out []found
	for _, name := range slices.Sorted(maps.Keys(x.Plugins)) {
		f := found{Name: install.Qualified(x.Name, name)}
		manifest := x.Plugins[name].Versions[0].Parsed()
		if c, err := x.Choose(name, "", m.Machine); err != nil {
			f.Why = oneLine(err.Error())
		} else {
			manifest, f.Bytes = c.Version.Parsed(), c.Archive.Size
		}
		f.Version, f.Title = manifest.Version, manifest.Title
		haystack := f.Name + " " + f.Title
		for _, r := range manifest.Families {
			f.Families = append(f.Families, r.Graph)
			haystack += " " + r.Graph + " " + r.Label + " " + strings.Join(r.ModelTypes, " ")
		}
		if r, there, err := m.Store.Find(name); err == nil && there && r.Source == x.Name {
			f.Installed = r.Version
		}
		if strings.Contains(strings.ToLower(haystack), text) {
			out = append(out, f)
		}
	}
	return out
}

func (a *app) printFound(out []found, asJSON bool) error {
	if asJSON {
		return a.printJSON(out)
	}
	t := newTable(a.Out)
	t.row("PLUGIN", "VERSION", "INSTALLED", "SIZE", "FAMILIES")
	for _, f := range out {
		size := bytesOrDash(uint64(f.Bytes))
		if f.Why != "" {
			size = f.Why
		}
		t.row(f.Name, f.Version, orDash(f.Installed), size, joinOr(f.Families, "-"))
	}
	return t.flush()
}
