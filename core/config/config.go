// Package config is the settings of one run of clade: a closed list of keys, each with a default, resolved as
// flags > environment (CLADE_*) > file > defaults, and each with the source it came from.
//
// Invariants: a key exists in one place, the table in keys.go; a key, variable or value that is not understood is an
// error naming it, never ignored; loading reads one small file and nothing else.
// Not for: what a model's own files say (sdk/artifact), or the precedence of generation settings (core/generate).
package config

import (
	"time"
)

// Source says which layer set a value.
type Source string

// The layers, weakest first.
const (
	FromDefault Source = "default"
	FromFile    Source = "file"
	FromEnv     Source = "environment"
	FromFlag    Source = "flag"
)

// Config is every setting, resolved.
type Config struct {
	Models  Models
	Plugins Plugins
	// Runtime is the native runtime's directory for every plugin; empty: that of the plugin's installation, or runtime/<variant>
	// beside the executable.
	Runtime string
	// MemoryBudget is what models may take, in bytes; 0: what the machine or its control group has available.
	MemoryBudget uint64
	Model        ModelDefaults
	Serve        Serve
	// LogLevel is debug, info, warn or error; the log goes to stderr.
	LogLevel string

	values map[string]Value
	file   string
}

// Models says where local models lie.
type Models struct {
	Dirs    []string
	HFCache string
	// AutoPull is ask, always or never: whether a hub model that is named and not here is downloaded.
	AutoPull string
}

// Plugins says where plugins lie and how they are installed.
type Plugins struct {
	// Dirs are folders of built plugins, which stand before those beside the executable and those of the Store.
	Dirs []string
	// Store, Trust and Lock are empty for their default places.
	Store, Trust, Lock string
	// AutoInstall is ask, always or never; Variant a runtime's, or auto.
	AutoInstall, Variant string
}

// ModelDefaults is what a model is opened with when a command does not say otherwise.
type ModelDefaults struct {
	Device      string
	DType       string
	KV          string
	Context     uint32
	Threads     uint32
	Kernels     string
	Pin         string
	PrefixCache uint64
	// AdapterMemory is a number of bytes, 0 for none.
	AdapterMemory uint64
	// PrefixDisk is a number of bytes, 0 for none; PrefixDiskDir is empty for its default place.
	PrefixDisk    uint64
	PrefixDiskDir string
	NUMA          string
	Deterministic string
	Paging        string
	KVWindow      string
	Rows          uint32
	PrefillChunk  uint32
	MaxGeneration uint32
}

// Serve is the HTTP server's part.
type Serve struct {
	Host            string
	Port            uint16
	APIKey          string
	AllowedHosts    []string
	InsecureNoAuth  bool
	DrainTimeout    time.Duration
	MaxRequestBytes uint64
	Lazy            bool
	// KeepAlive unloads a model that was not used for so long; negative: never, zero: at once.
	KeepAlive   time.Duration
	Temperature *float64
	TopP        *float64
	TopK        *uint32
	MinP        *float64
	MaxTokens   *uint32
	// Adapters of requests that choose none; empty: all that the model is opened with. AdapterDir is the folder that clients may load
	// from; empty: they may not.
	Adapters, AdapterDir string
	// VolatileHeaders is drop or keep.
	VolatileHeaders string
	// Thinking is on, off, or empty: the family's or the template's choice.
	Thinking string
}

// Value is one resolved key, as `clade config` prints it.
type Value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source Source `json:"source"`
	Env    string `json:"env"`
	Doc    string `json:"doc"`
}

// Set reports whether a person set the key: any source but the default.
func (c *Config) Set(key string) bool { return c.values[key].Source != FromDefault }

// Values is every key in the table's order.
func (c *Config) Values() []Value {
	out := make([]Value, 0, len(keys))
	for _, k := range keys {
		out = append(out, c.values[k.name])
	}
	return out
}

// File is the path of the configuration file, whether it exists or not.
func (c *Config) File() string { return c.file }
