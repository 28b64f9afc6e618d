package loader

import (
	"log/slog"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// Plugin is an installed plugin.
type Plugin struct {
	Name string
	// Exe is the absolute path of its executable.
	Exe string
	// Verify says, right before each start, whether the executable is the one that was installed.
	Verify func() error
	// Check compares what the running plugin says of itself with its manifest.
	Check func(*cladev1.DescribeResponse) error
	// RuntimeDir is the runtime that it was installed with; empty: the host's.
	RuntimeDir string
	// Hold keeps it from being removed until the result is called; nil where nobody removes it.
	Hold func() (release func(), err error)
}

// Host is what the loader takes from the rest of the host.
type Host struct {
	Families *corefamily.List
	// Find finds an installed plugin, or answers PluginMissing with the next step.
	Find func(name string) (Plugin, error)
	// RuntimeDir is handed to the plugin; empty when none is installed, which the plugin then reports.
	RuntimeDir string
	// Budget in bytes, of all open models together; 0 is what the machine has available.
	Budget uint64
	// Ledger is the memory of the models that are open at once; nil when each is opened alone.
	Ledger *Ledger
	Logger *slog.Logger
	// Start starts a plugin process; nil is core/supervise.
	Start Starter
}

// Decision is steps 1: all that is known of a model before a process starts. It owns the artifact until Close, or until
// Open hands it to the Model.
type Decision struct {
	Model               hub.Model
	Artifact            *artifact.Artifact
	Family              corefamily.Entry
	Plugin              Plugin
	Parsed              family.Parsed
	Profile             *cladev1.Profile
	Cell                family.Residence
	ConfigFingerprint   string
	ArtifactFingerprint string
	// GraphFingerprint is what keys of the graph table are compared with; empty until the plugin says it, where it does.
	GraphFingerprint string
	// Implementation stands in for the family's own graphs; nil for those.
	Implementation *corefamily.ImplementationEntry
	// Auxiliaries go with the model: a tower that lies beside its weights, the draft and the adapters that a person named.
	Auxiliaries []Auxiliary
	// Passed says why targeted families that know the type did not take the model.
	Passed []string
	// PluginErr is why the plugin cannot be started; Decide still succeeds, so that `show` can say all the rest.
	PluginErr error

	host    *Host
	choices Choices
	draft   *cladev1.Draft // nil: none
	release func()         // of Plugin.Hold; may be nil
}

func (h *Host) logger() *slog.Logger {
	if h.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Logger
}

// ledger is the host's, or an empty one.
func (h *Host) ledger() *Ledger {
	if h.Ledger == nil {
		return &Ledger{}
	}
	return h.Ledger
}

// MissingPlugin names the plugin that has to be installed before the model can be opened.
func (d *Decision) MissingPlugin() (string, bool) {
	if contract.KindOf(d.PluginErr) != contract.PluginMissing {
		return "", false
	}
	return d.pluginName(), true
}

// Close releases the artifact and the plugin.
func (d *Decision) Close() error {
	if d.release != nil {
		d.release()
	}
	return d.Artifact.Close()
}
