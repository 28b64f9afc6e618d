package cli

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clademl/clade/core/config"
	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/core/loader"
)

// app is one run of the command line.
type app struct {
	Streams
	build      string
	configFile string
	bound      []*boundFlag
}

// boundFlag is a flag whose value is a configuration key's, when it was given.
type boundFlag struct {
	flag *pflag.Flag
	key  string
}

// bind adds a flag for a configuration key. Its text is checked where every source's is: in core/config.
func (a *app) bind(flags *pflag.FlagSet, name, key, usage string) {
	flags.String(name, "", usage)
	a.bound = append(a.bound, &boundFlag{flags.Lookup(name), key})
}

// bindSwitch adds a flag that may be given without a value.
func (a *app) bindSwitch(flags *pflag.FlagSet, name, key, usage string) {
	a.bind(flags, name, key, usage)
	flags.Lookup(name).NoOptDefVal = "true"
}

// config resolves the configuration with the flags that were given.
func (a *app) config() (*config.Config, error) {
	given := map[string]string{}
	for _, b := range a.bound {
		if b.flag.Changed {
			given[b.key] = b.flag.Value.String()
		}
	}
	return config.Load(config.Options{File: a.configFile, Flags: given})
}

// host is what verbs about models need.
type host struct {
	*loader.Host
	app     *app
	config  *config.Config
	store   hub.Store
	plugins *pluginSet
	log     *slog.Logger
	// unattended says that nobody can be asked, whatever the streams are.
	unattended bool
	// leastContext refuses a plan with fewer tokens.
	leastContext uint32
}

func (a *app) host() (*host, error) {
	c, err := a.config()
	if err != nil {
		return nil, err
	}
	h := &host{app: a, config: c, store: hub.Store{Dirs: c.Models.Dirs, HFCache: c.Models.HFCache}, log: a.logger(c)}
	problems, err := h.load(&loader.Ledger{})
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		h.log.Warn(p.String())
	}
	for _, p := range h.plugins.Problems {
		h.log.Warn("plugin cannot be used", "plugin", p.Name, "dir", p.Dir, "error", p.Err)
	}
	return h, nil
}

// again is the same host with what is installed now.
func (h *host) again() (*host, error) {
	next := *h
	_, err := next.load(h.Ledger)
	return &next, err
}

// load reads what is installed and what the sources' last indexes offer.
func (h *host) load(ledger *loader.Ledger) ([]corefamily.Problem, error) {
	c := h.config
	var err error
	if h.plugins, err = findPlugins(c); err != nil {
		return nil, err
	}
	m, err := h.app.manager(c, h.plugins)
	if err != nil {
		return nil, err
	}
	offers, err := m.IndexOffers()
	if err != nil {
		return nil, err
	}
	list, problems := corefamily.New(append(offers, m.Offers...))
	h.Host = &loader.Host{
		Families: list, Find: h.plugins.finder(m), RuntimeDir: runtimeDir(c), Budget: c.MemoryBudget, Ledger: ledger, Logger: h.log,
	}
	return problems, nil
}

// logger writes the log to stderr.
func (a *app) logger(c *config.Config) *slog.Logger {
	var level slog.Level
	// The configuration allows only names that slog knows.
	_ = level.UnmarshalText([]byte(c.LogLevel))
	return slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: level}))
}

// runtimeVariant is the only one this version looks for by itself.
const runtimeVariant = "cpu"

// runtimeDir is the configured runtime, or the one beside the executable, for plugins that were not installed with one.
func runtimeDir(c *config.Config) string {
	if c.Runtime != "" {
		if abs, err := filepath.Abs(c.Runtime); err == nil {
			return abs
		}
		return c.Runtime
	}
	return filepath.Join(besideExecutable(), "runtime", runtimeVariant)
}

// besideExecutable is the real folder of this executable; empty when the system does not say.
func besideExecutable() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	return filepath.Dir(exe)
}

func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print one JSON value")
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// note tells a person something on stderr that is no error.
func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Err, "note: %s\n", oneLine(fmt.Sprintf(format, args...)))
}
