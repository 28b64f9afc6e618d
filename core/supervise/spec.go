package supervise

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/clademl/clade/core/machine"
	"github.com/clademl/clade/sdk/contract"
)

// Defaults of a Spec, and limits of calls that have no heartbeat.
const (
	defaultStartTimeout = 10 * time.Second
	defaultSilence      = 10 * time.Second
	defaultStall        = 2 * time.Minute
	defaultStop         = 10 * time.Second

	quickCall   = 10 * time.Second // Describe, Stats, Tune, health
	plannedCall = 2 * time.Minute  // Inspect and Plan: the first loads the runtime, CUDA's takes many seconds
)

// Spec says what to start. Its zero durations are the defaults.
type Spec struct {
	// Path is the absolute path of the executable.
	Path string
	// RuntimeDir is passed as CLADE_RUNTIME; empty when none is installed yet.
	RuntimeDir string
	// Env is added to the allow-listed environment, as KEY=value.
	Env []string
	// Logger gets each line that the plugin prints, at debug level, and its start and end; nil discards them.
	Logger *slog.Logger
	// StartTimeout bounds Start until the health check; default 10 s.
	StartTimeout time.Duration
	// Silence without any message on a stream is a hang; default 10 s.
	Silence time.Duration
	// Stall is how long a stream's heartbeats may come without their counts advancing; default 2 min.
	Stall time.Duration

	// oomKills counts what the kernel killed for memory; nil is the machine's.
	oomKills func() (uint64, bool)
}

func (s Spec) complete() (Spec, error) {
	if s.StartTimeout == 0 {
		s.StartTimeout = defaultStartTimeout
	}
	if s.Silence == 0 {
		s.Silence = defaultSilence
	}
	if s.Stall == 0 {
		s.Stall = defaultStall
	}
	if s.oomKills == nil {
		s.oomKills = machine.OOMKills
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if !filepath.IsAbs(s.Path) {
		return s, contract.Errorf(contract.Internal, s.Path, "the plugin's path is not absolute")
	}
	info, err := os.Stat(s.Path)
	switch {
	case err != nil:
		return s, contract.Errorf(contract.PluginMissing, s.Path, "%w", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return s, contract.Errorf(contract.PluginMissing, s.Path, "is not an executable file")
	}
	return s, nil
}

// name is how messages call the plugin: "clade-universal".
func (s Spec) name() string { return filepath.Base(s.Path) }
