package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// key is one setting: its name in the file, its text default, and how its text becomes a field. A list has one element
// of texts an item, every other key exactly one.
type key struct {
	name   string
	def    string
	doc    string
	list   bool
	secret bool
	set    func(c *Config, texts []string) error
}

// env is the key's environment variable: serve.api_key is CLADE_SERVE_API_KEY.
func (k key) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// keys is the closed list, in the order `clade config` prints.
var keys = []key{
	{
		name: "models.dirs", list: true, def: "~/.local/share/clade/models", doc: "folders that hold models: directories with a config.json, or .gguf files",
		set: paths(func(c *Config) *[]string { return &c.Models.Dirs }),
	},
	{
		name: "models.hf_cache", doc: "Hugging Face cache; empty: HF_HUB_CACHE, HF_HOME/hub, or ~/.cache/huggingface/hub",
		set: path(func(c *Config) *string { return &c.Models.HFCache }),
	},
	{
		name: "models.auto_pull", def: "ask", doc: "ask, always or never: download a hub model that is named and not here; ask needs a terminal",
		set: oneOf(func(c *Config) *string { return &c.Models.AutoPull }, "ask", "always", "never"),
	},
	{
		name: "plugins.dirs", list: true, doc: "folders of built plugins; they stand before those beside the executable and the store",
		set: paths(func(c *Config) *[]string { return &c.Plugins.Dirs }),
	},
	{
		name: "plugins.store", doc: "folder of installed plugins; empty: XDG_DATA_HOME/clade/store or ~/.local/share/clade/store",
		set: path(func(c *Config) *string { return &c.Plugins.Store }),
	},
	{
		name: "plugins.trust", doc: "file of the trusted sources; empty: trust.json beside the configuration file",
		set: path(func(c *Config) *string { return &c.Plugins.Trust }),
	},
	{
		name: "plugins.lock", doc: "file that locks versions; empty: plugins.lock beside the configuration file",
		set: path(func(c *Config) *string { return &c.Plugins.Lock }),
	},
	{
		name: "plugins.auto_install", def: "ask", doc: "ask, always or never: install the plugin of a model that is opened; ask is for terminals",
		set: oneOf(func(c *Config) *string { return &c.Plugins.AutoInstall }, "ask", "always", "never"),
	},
	{
		name: "plugins.variant", def: "auto", doc: "runtime to install: cpu, cuda13, metal, or auto for what the machine has",
		set: text(func(c *Config) *string { return &c.Plugins.Variant }),
	},
	{
		name: "runtime", doc: "directory of the native runtime; empty: the one installed with a plugin, for a plugin from a folder runtime/cpu beside the executable",
		set: path(func(c *Config) *string { return &c.Runtime }),
	},
	{
		name: "memory_budget", def: "0", doc: "bytes that models may take (4GiB, 800MB); 0: what the machine has available",
		set: size(func(c *Config) *uint64 { return &c.MemoryBudget }),
	},
	{
		name: "log_level", def: "warn", doc: "debug, info, warn or error; the log goes to stderr",
		set: oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error"),
	},
	{name: "model.device", def: "auto", doc: "exact device string, or auto", set: text(func(c *Config) *string { return &c.Model.Device })},
	{
		name: "model.dtype", def: "native", doc: "native, float32, bfloat16 or float16",
		set: oneOf(func(c *Config) *string { return &c.Model.DType }, "native", "float32", "bfloat16", "float16"),
	},
	{name: "model.kv", def: "native", doc: "KV cache scheme: native, f32, bf16, BITS, affine:BITSgGROUP, turbo:kNvM, layers:I-J=BITS, or config", set: text(func(c *Config) *string { return &c.Model.KV })},
	{name: "model.kv_window", def: "0", doc: "TOKENS or TOKENS+KEEP: attend to the last TOKENS and the first KEEP (4) instead of all, and keep no others; 0: all", set: text(func(c *Config) *string { return &c.Model.KVWindow })},
	{name: "model.context", def: "0", doc: "tokens of context; 0: the model's own", set: number32(func(c *Config) *uint32 { return &c.Model.Context })},
	{name: "model.max_generation", def: "0", doc: "most tokens of one answer; 0: the context", set: number32(func(c *Config) *uint32 { return &c.Model.MaxGeneration })},
	{name: "model.rows", def: "0", doc: "sequences that generate at once; 0: the family's own", set: number32(func(c *Config) *uint32 { return &c.Model.Rows })},
	{
		name: "model.prefill_chunk", def: "0", doc: "most prompt tokens of one evaluation; 0: the default",
		set: number32(func(c *Config) *uint32 { return &c.Model.PrefillChunk }),
	},
	{
		name: "model.paging", def: "auto", doc: "true, false or auto (off): keep full-attention caches in pages",
		set: oneOf(func(c *Config) *string { return &c.Model.Paging }, "auto", "true", "false"),
	},
	{name: "model.threads", def: "0", doc: "most threads a model computes with; 0: the machine's cores", set: number32(func(c *Config) *uint32 { return &c.Model.Threads })},
	{
		name: "model.kernels", def: "auto", doc: "auto, require, off or fast",
		set: oneOf(func(c *Config) *string { return &c.Model.Kernels }, "auto", "require", "off", "fast"),
	},
	{name: "model.pin", def: "none", doc: "processors that the computing threads keep to, such as 0-3,8; none: the system places them", set: text(func(c *Config) *string { return &c.Model.Pin })},
	{name: "model.numa", def: "none", doc: "interleave, or the number of the memory node that holds packed weights; none: where they are written first", set: text(func(c *Config) *string { return &c.Model.NUMA })},
	{name: "model.prefix_cache", def: "512MiB", doc: "bytes that the beginnings of earlier requests may keep, so that they are not computed again; 0: none", set: size(func(c *Config) *uint64 { return &c.Model.PrefixCache })},
	{name: "model.adapter_memory", def: "0", doc: "bytes that adapters loaded while the model is served may take, beside those it was opened with; 0: none can be", set: size(func(c *Config) *uint64 { return &c.Model.AdapterMemory })},
	{name: "model.prefix_disk", def: "0", doc: "bytes of files that keep them beyond the process, for all models together; 0: none", set: size(func(c *Config) *uint64 { return &c.Model.PrefixDisk })},
	{
		name: "model.prefix_disk_dir", doc: "folder of those files, for its user alone; empty: XDG_CACHE_HOME/clade/prefix or ~/.cache/clade/prefix",
		set: path(func(c *Config) *string { return &c.Model.PrefixDiskDir }),
	},
	{
		name: "model.deterministic", def: "auto", doc: "true, false or auto (on where every kernel of the plan has the property)",
		set: oneOf(func(c *Config) *string { return &c.Model.Deterministic }, "auto", "true", "false"),
	},
	{name: "serve.host", def: "127.0.0.1", doc: "address to listen on", set: text(func(c *Config) *string { return &c.Serve.Host })},
	{name: "serve.port", def: "8080", doc: "port to listen on; 0: any free one", set: func(c *Config, t []string) error {
		n, err := strconv.ParseUint(t[0], 10, 16)
		c.Serve.Port = uint16(n)
		return wrapNumber(err, "a port from 0 to 65535")
	}},
	{
		name: "serve.api_key", secret: true, doc: "key that clients must send; required on an address others can reach",
		set: text(func(c *Config) *string { return &c.Serve.APIKey }),
	},
	{
		name: "serve.allowed_hosts", list: true, doc: "Host headers accepted beside loopback names and the listening address",
		set: func(c *Config, t []string) error { c.Serve.AllowedHosts = t; return nil },
	},
	{
		name: "serve.insecure_no_auth", def: "false", doc: "serve on a reachable address without an API key",
		set: boolean(func(c *Config) *bool { return &c.Serve.InsecureNoAuth }),
	},
	{name: "serve.drain_timeout", def: "30s", doc: "time that running requests get after SIGTERM", set: func(c *Config, t []string) error {
		d, err := time.ParseDuration(t[0])
		if err != nil || d < 0 {
			return fmt.Errorf("want a duration such as 30s")
		}
		c.Serve.DrainTimeout = d
		return nil
	}},
	{name: "serve.max_request_bytes", def: "32MiB", doc: "largest request body", set: size(func(c *Config) *uint64 { return &c.Serve.MaxRequestBytes })},
	{
		name: "serve.keep_alive", def: "5m", doc: "time after which a model that nobody uses is unloaded; 0: at once, -1: never",
		set: func(c *Config, t []string) error {
			if t[0] == "-1" || t[0] == "0" {
				c.Serve.KeepAlive = -time.Duration(len(t[0]) - 1)
				return nil
			}
			d, err := time.ParseDuration(t[0])
			if err != nil {
				return fmt.Errorf("want a duration such as 5m, 0, or -1 for ever")
			}
			c.Serve.KeepAlive = d
			return nil
		},
	},
	{
		name: "serve.lazy", def: "false", doc: "open a model at its first request instead of at start",
		set: boolean(func(c *Config) *bool { return &c.Serve.Lazy }),
	},
	{
		name: "serve.temperature", doc: "temperature of requests that name none",
		set: optionalFloat(func(c *Config) **float64 { return &c.Serve.Temperature }, 0, 100),
	},
	{
		name: "serve.top_p", doc: "top_p of requests that name none",
		set: optionalFloat(func(c *Config) **float64 { return &c.Serve.TopP }, 0, 1),
	},
	{name: "serve.top_k", doc: "top_k of requests that name none", set: optional32(func(c *Config) **uint32 { return &c.Serve.TopK })},
	{
		name: "serve.min_p", doc: "min_p of requests that name none",
		set: optionalFloat(func(c *Config) **float64 { return &c.Serve.MinP }, 0, 1),
	},
	{name: "serve.max_tokens", doc: "max_tokens of requests that name none", set: optional32(func(c *Config) **uint32 { return &c.Serve.MaxTokens })},
	{
		name: "serve.adapters", doc: "adapters of requests that choose nothing: none, or names such as a+b:0.5; empty: all that the model is opened with",
		set: text(func(c *Config) *string { return &c.Serve.Adapters }),
	},
	{
		name: "serve.adapter_dir", doc: "folder that clients may load adapters from (POST /v1/load_lora_adapter); empty: clients may load and unload none",
		set: path(func(c *Config) *string { return &c.Serve.AdapterDir }),
	},
	{
		name: "serve.volatile_headers", def: "drop", doc: "drop or keep: lines of system prompts that clients write for others than the model and that change with every request",
		set: oneOf(func(c *Config) *string { return &c.Serve.VolatileHeaders }, "drop", "keep"),
	},
	{
		name: "serve.thinking", doc: "on or off: whether models with a switch reason, in requests that say nothing of it; empty: the model's own choice",
		set: oneOf(func(c *Config) *string { return &c.Serve.Thinking }, "", "on", "off"),
	},
}

// Keys are the names of every key, in the table's order.
func Keys() []string {
	out := make([]string, 0, len(keys))
	for _, k := range keys {
		out = append(out, k.name)
	}
	return out
}

type setter = func(c *Config, texts []string) error

func text(at func(*Config) *string) setter {
	return func(c *Config, t []string) error { *at(c) = t[0]; return nil }
}

func path(at func(*Config) *string) setter {
	return func(c *Config, t []string) error {
		p, err := expandHome(t[0])
		*at(c) = p
		return err
	}
}

func paths(at func(*Config) *[]string) setter {
	return func(c *Config, t []string) error {
		out := make([]string, 0, len(t))
		for _, s := range t {
			p, err := expandHome(s)
			if err != nil {
				return err
			}
			out = append(out, p)
		}
		*at(c) = out
		return nil
	}
}

func oneOf(at func(*Config) *string, allowed ...string) setter {
	return func(c *Config, t []string) error {
		if !slices.Contains(allowed, t[0]) {
			return fmt.Errorf("%q is not one of %s", t[0], strings.Join(allowed, ", "))
		}
		*at(c) = t[0]
		return nil
	}
}

func boolean(at func(*Config) *bool) setter {
	return func(c *Config, t []string) error {
		b, err := strconv.ParseBool(t[0])
		*at(c) = b
		return wrapNumber(err, "true or false")
	}
}

func size(at func(*Config) *uint64) setter {
	return func(c *Config, t []string) error {
		n, err := ParseBytes(t[0])
		*at(c) = n
		return err
	}
}

func number32(at func(*Config) *uint32) setter {
	return func(c *Config, t []string) error {
		n, err := strconv.ParseUint(t[0], 10, 32)
		*at(c) = uint32(n)
		return wrapNumber(err, "a whole number")
	}
}

func optional32(at func(*Config) **uint32) setter {
	return func(c *Config, t []string) error {
		if t[0] == "" {
			return nil
		}
		n, err := strconv.ParseUint(t[0], 10, 32)
		v := uint32(n)
		*at(c) = &v
		return wrapNumber(err, "a whole number")
	}
}

func optionalFloat(at func(*Config) **float64, low, high float64) setter {
	return func(c *Config, t []string) error {
		if t[0] == "" {
			return nil
		}
		v, err := strconv.ParseFloat(t[0], 64)
		if err != nil || math.IsNaN(v) || v < low || v > high {
			return fmt.Errorf("want a number from %g to %g", low, high)
		}
		*at(c) = &v
		return nil
	}
}

func wrapNumber(err error, want string) error {
	if err != nil {
		return fmt.Errorf("want %s", want)
	}
	return nil
}
