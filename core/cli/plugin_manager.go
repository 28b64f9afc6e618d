package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/clademl/clade/core/config"
	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/install"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
)

// release is set by the linker in a release of the host.
var release string

// storeOf is the configured plugin store.
func storeOf(c *config.Config) (*store.Store, error) {
	dir := c.Plugins.Store
	if dir == "" {
		dir = os.Getenv("XDG_DATA_HOME")
		if dir == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, contract.Errorf(contract.NotFound, "plugin store", "no home directory: %w", err).WithNext("set HOME or CLADE_PLUGINS_STORE")
			}
			dir = filepath.Join(home, ".local", "share")
		}
		dir = filepath.Join(dir, "clade", "store")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, dir, "%w", err)
	}
	return &store.Store{Dir: abs}, nil
}

// besideConfig is a file of the user's configuration folder, unless it is named.
func besideConfig(named, name string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	file, err := config.DefaultFile()
	return filepath.Join(filepath.Dir(file), name), err
}

// manager is what installs plugins for this machine, telling a person how it goes.
func (a *app) manager(c *config.Config, set *pluginSet) (*install.Manager, error) {
	s, err := storeOf(c)
	if err != nil {
		return nil, err
	}
	trusted, err := besideConfig(c.Plugins.Trust, "trust.json")
	if err != nil {
		return nil, err
	}
	lock, err := besideConfig(c.Plugins.Lock, "plugins.lock")
	if err != nil {
		return nil, err
	}
	offers, err := corefamily.Embedded()
	if err != nil {
		return nil, contract.Errorf(contract.Internal, "families", "%w", err)
	}
	bar := &fetches{app: a}
	return &install.Manager{
		Store: s, Trust: &trust.File{Path: trusted, Store: s}, LockFile: lock, Machine: thisMachine(c), Release: release != "",
		Offers: append(offers, set.offers()...), Progress: bar.show,
		Waiting: func() { a.note("another process is changing %s; waiting", s.Dir) },
	}, nil
}

// thisMachine is what plugins are chosen for.
func thisMachine(c *config.Config) index.Machine {
	m := index.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Variants: []string{runtimeVariant}}
	switch {
	case c.Plugins.Variant != "auto":
		m.Variants = []string{c.Plugins.Variant}
	case runtime.GOOS == "darwin" && runtime.GOARCH == "arm64":
		m.Variants = []string{"metal", runtimeVariant}
	case fileExists("/dev/nvidiactl"):
		m.Variants = []string{"cuda13", runtimeVariant}
	}
	return m
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pluginManager is the manager of a verb that needs no model.
func (a *app) pluginManager() (*install.Manager, *config.Config, error) {
	c, err := a.config()
	if err != nil {
		return nil, nil, err
	}
	set, err := findPlugins(c)
	if err != nil {
		return nil, nil, err
	}
	m, err := a.manager(c, set)
	return m, c, err
}

// fetches shows the downloads of an installation one after the other.
type fetches struct {
	app *app
	now *transfer
}

func (f *fetches) show(p install.Progress) {
	if f.now == nil || f.now.name != p.What {
		f.now = &transfer{app: f.app, name: p.What, begun: time.Now()}
	}
	f.now.show(hub.Progress{Done: p.Done, Total: p.Total})
	if p.Done == p.Total {
		f.now.end()
	}
}
