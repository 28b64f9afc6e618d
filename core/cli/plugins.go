package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/clademl/clade/core/config"
	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/plugins/install"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// pluginSet is what is installed, with one memory of what was verified.
type pluginSet struct {
	plugins.Set
	verifier *plugins.Verifier
	stored   *store.Store
	// ownRuntime says that a configured runtime stands before every installed one.
	ownRuntime bool
}

func findPlugins(c *config.Config) (*pluginSet, error) {
	stored, err := storeOf(c)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, contract.Errorf(contract.Internal, "executable", "%w", err)
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	set := plugins.Discover(plugins.Dirs(exe, c.Plugins.Dirs)...)
	set.AddStore(stored)
	return &pluginSet{Set: set, verifier: &plugins.Verifier{File: digestFile()}, stored: stored, ownRuntime: c.Runtime != ""}, nil
}

// digestFile remembers digests of executables between runs; without a cache folder each run hashes anew.
func digestFile() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "clade", "digests.json")
}

// offers are the installed manifests.
func (s *pluginSet) offers() []corefamily.Offer {
	var out []corefamily.Offer
	for _, p := range s.Plugins {
		out = append(out, corefamily.Offer{Manifest: p.Manifest, Source: corefamily.FromInstalled})
	}
	return out
}

func (s *pluginSet) find(name string) (loader.Plugin, error) {
	p, err := s.Find(name)
	if err != nil {
		return loader.Plugin{}, err
	}
	out := loader.Plugin{Name: p.Name, Exe: p.Exe, Verify: func() error { return s.verifier.Verify(p) }, Check: p.CheckDescribe}
	if p.Origin == plugins.Stored {
		out.Hold = func() (func(), error) { return s.hold(p) }
	}
	if p.Runtime != nil && !s.ownRuntime {
		out.RuntimeDir = p.Runtime.Dir
	}
	return out, nil
}

// hold keeps an installed plugin and its runtime from being removed.
func (s *pluginSet) hold(p plugins.Installed) (func(), error) {
	release, err := s.stored.Hold(p.Archive)
	if err != nil || p.Runtime == nil {
		return release, err
	}
	more, err := s.stored.Hold(p.Runtime.Archive())
	if err != nil {
		release()
		return nil, err
	}
	return func() { more(); release() }, nil
}

// finder is find, with an answer for a plugin that is not there that names the exact command.
func (s *pluginSet) finder(m *install.Manager) func(name string) (loader.Plugin, error) {
	return func(name string) (loader.Plugin, error) {
		p, err := s.find(name)
		if contract.KindOf(err) != contract.PluginMissing || slices.ContainsFunc(s.Problems, func(p plugins.Problem) bool { return p.Name == name }) {
			return p, err
		}
		command := "clade plugin install " + install.Qualified(m.SourceOf(name), name)
		if sources, err := m.Trust.Sources(); err == nil && len(sources) == 0 {
			return p, contract.Errorf(contract.PluginMissing, name, "the plugin is not installed, and no source of plugins is trusted").
				WithNext("%s, then: %s", trust.HowToAdd, command)
		}
		return p, contract.Errorf(contract.PluginMissing, name, "the plugin is not installed").WithNext("%s", command)
	}
}

func (a *app) pluginCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "Install, update, list, verify and publish plugins", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(
		a.pluginListCommand(), a.pluginSearchCommand(), a.pluginInstallCommand(), a.pluginUpdateCommand(), a.pluginRemoveCommand(), a.pluginDescribeCommand(),
		a.pluginVerifyCommand(), a.pluginTrustCommand(), a.pluginBundleCommand(), a.pluginPublishCommand(), a.pluginSealCommand(),
		a.pluginCheckCommand(), a.pluginNewCommand(),
	)
	return cmd
}

func (a *app) pluginListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List installed plugins", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		c, err := a.config()
		if err != nil {
			return err
		}
		s, err := findPlugins(c)
		if err != nil {
			return err
		}
		type entry struct {
			Name     string   `json:"name"`
			Version  string   `json:"version,omitempty"`
			Dir      string   `json:"dir"`
			Origin   string   `json:"origin,omitempty"`
			Source   string   `json:"source,omitempty"`
			Signer   string   `json:"signer,omitempty"`
			Runtime  string   `json:"runtime,omitempty"`
			Digest   string   `json:"digest,omitempty"`
			Families []string `json:"families,omitempty"`
			Error    string   `json:"error,omitempty"`
		}
		out := []entry{}
		for _, p := range s.Plugins {
			e := entry{Name: p.Name, Version: p.Manifest.Version, Dir: p.Dir, Digest: p.Digest, Origin: string(p.Origin), Source: p.Source, Signer: p.Signer}
			if p.Runtime != nil {
				e.Runtime = p.Runtime.Dir
			}
			for _, f := range p.Manifest.Families {
				e.Families = append(e.Families, f.Graph)
			}
			out = append(out, e)
		}
		for _, p := range s.Problems {
			out = append(out, entry{Name: p.Name, Dir: p.Dir, Error: p.Err.Error()})
		}
		if *asJSON {
			return a.printJSON(out)
		}
		t := newTable(a.Out)
		t.row("PLUGIN", "VERSION", "FROM", "FAMILIES", "FOLDER")
		for _, e := range out {
			t.row(e.Name, joinOr(nonEmpty(e.Version, e.Error), "-"), orDash(cmp.Or(e.Source, e.Origin)), joinOr(e.Families, "-"), e.Dir)
		}
		return t.flush()
	}
	return cmd
}

// describeTimeout bounds the start and answer of a plugin that is only asked who it is.
const describeTimeout = 15 * time.Second

// describe starts a verified plugin, asks it, and ends it.
func (h *host) describe(ctx context.Context, name string) (*cladev1.DescribeResponse, error) {
	p, err := h.Find(name)
	if err != nil {
		return nil, err
	}
	return h.ask(ctx, p)
}

// ask starts a plugin that is verified, asks it, and ends it.
func (h *host) ask(ctx context.Context, p loader.Plugin) (*cladev1.DescribeResponse, error) {
	if err := p.Verify(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	runtime := p.RuntimeDir
	if runtime == "" {
		runtime = h.RuntimeDir
	}
	process, err := supervise.Start(ctx, supervise.Spec{Path: p.Exe, RuntimeDir: runtime, Logger: h.log})
	if err != nil {
		return nil, err
	}
	d, err := process.Describe(ctx)
	if err == nil {
		err = p.Check(d)
	}
	if stopErr := process.Stop(ctx); err == nil {
		err = stopErr
	}
	return d, err
}

func (a *app) pluginDescribeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "describe NAME", Short: "Print what a plugin says of itself, as JSON", Args: cobra.ExactArgs(1)}
	_ = jsonFlag(cmd) // the output is JSON with or without it
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		d, err := h.describe(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		data, err := protojson.MarshalOptions{UseProtoNames: true, Multiline: true, EmitUnpopulated: true}.Marshal(d)
		if err != nil {
			return contract.Errorf(contract.Internal, args[0], "%w", err)
		}
		_, err = fmt.Fprintf(a.Out, "%s\n", data)
		return err
	}
	return cmd
}

func (a *app) pluginVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify [NAME...]", Short: "Compare plugins with their receipts and with what they say of themselves",
		Long: "Without NAME, every installed plugin. The executable is hashed anew, started, and asked.",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		h.plugins.verifier = &plugins.Verifier{} // remembers nothing: what is asked for is a fresh look
		names := slices.Clone(args)
		if len(names) == 0 {
			for _, p := range h.plugins.Plugins {
				names = append(names, p.Name)
			}
			for _, p := range h.plugins.Problems {
				names = append(names, p.Name)
			}
		}
		type verdict struct {
			Name  string `json:"name"`
			OK    bool   `json:"ok"`
			Error string `json:"error,omitempty"`
		}
		out := []verdict{}
		var first error
		for _, name := range names {
			_, err := h.describe(cmd.Context(), name)
			v := verdict{Name: name, OK: err == nil}
			if err != nil {
				v.Error = oneLine(err.Error())
				if first == nil {
					first = err
				}
			}
			out = append(out, v)
		}
		if *asJSON {
			if err := a.printJSON(out); err != nil {
				return err
			}
			return first
		}
		t := newTable(a.Out)
		for _, v := range out {
			t.row(v.Name, joinOr(nonEmpty(v.Error), "ok"))
		}
		if err := t.flush(); err != nil {
			return err
		}
		return first
	}
	return cmd
}

// pluginSealCommand is for builds: it writes the receipt of a folder that was just built.
func (a *app) pluginSealCommand() *cobra.Command {
	return &cobra.Command{
		Use: "seal DIR", Short: "Write the receipt of a plugin folder that was just built", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := plugins.WriteReceipt(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.Out, "%s sealed\n", args[0])
			return err
		},
	}
}
