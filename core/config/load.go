package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"

	"github.com/clademl/clade/sdk/contract"
)

const (
	envPrefix = "CLADE_"
	// envFile names the configuration file itself.
	envFile = envPrefix + "CONFIG"
	// envTest prefixes variables that belong to our own tests.
	envTest = envPrefix + "TEST_"
)

// foreign are variables under our prefix that are no settings of the host's: of the contract between host and plugin, of the
// native build (native/setup) and of the tools that test and measure this repository. A person who has them set for one of those
// runs clade too.
var foreign = []string{
	envFile, contract.EnvLiveness, "CLADE_PLUGIN",
	"CLADE_MLXC_DIR", "CLADE_SMOLLM2", "CLADE_ORACLE_PYTHON", "CLADE_BENCH_INTERVAL",
}

// Options is where Load reads from; the zero value is this process's environment and the user's file.
type Options struct {
	// File replaces the default path; a file named here must exist.
	File string
	// Environ replaces os.Environ().
	Environ []string
	// Flags are the values that flags set on the command line, by key; a list is separated like a path list.
	Flags map[string]string
}

// DefaultFile is the path of the user's configuration file.
func DefaultFile() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", contract.Errorf(contract.NotFound, "configuration", "no home directory: %w", err).WithNext("set HOME or CLADE_CONFIG")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "clade", "config.yaml"), nil
}

// Path is the file that Load reads under o, and whether a person named it.
func Path(o Options) (path string, named bool, err error) {
	if o.File != "" {
		return o.File, true, nil
	}
	for _, kv := range o.environ() {
		if v, ok := strings.CutPrefix(kv, envFile+"="); ok && v != "" {
			return v, true, nil
		}
	}
	path, err = DefaultFile()
	return path, false, err
}

func (o Options) environ() []string {
	if o.Environ != nil {
		return o.Environ
	}
	return os.Environ()
}

// Load resolves every key. Errors are InvalidArgument naming the key and where it was set.
func Load(o Options) (*Config, error) {
	path, named, err := Path(o)
	if err != nil {
		return nil, err
	}
	layers, err := readLayers(o, path, named)
	if err != nil {
		return nil, err
	}
	c := &Config{values: map[string]Value{}, file: path}
	for _, k := range keys {
		if err := c.resolve(k, layers); err != nil {
			return nil, err
		}
	}
	return c, nil
}

type layer struct {
	source Source
	where  func(k key) string
	values *koanf.Koanf
}

// readLayers reads the layers, strongest first.
func readLayers(o Options, path string, named bool) ([]layer, error) {
	flags, fileValues, envValues, defaults := koanf.New("."), koanf.New("."), koanf.New("."), koanf.New(".")
	byFlag := map[string]any{}
	for k, v := range o.Flags {
		byFlag[k] = v
	}
	byDefault := map[string]any{}
	for _, k := range keys {
		byDefault[k.name] = k.def
	}
	if err := errors.Join(flags.Load(confmap.Provider(byFlag, "."), nil), defaults.Load(confmap.Provider(byDefault, "."), nil)); err != nil {
		return nil, contract.Errorf(contract.Internal, "configuration", "%w", err)
	}
	if err := loadFile(fileValues, path, named); err != nil {
		return nil, err
	}
	if err := loadEnv(envValues, o.environ()); err != nil {
		return nil, err
	}
	return []layer{
		{FromFlag, func(k key) string { return "flag for " + k.name }, flags},
		{FromEnv, func(k key) string { return k.env() }, envValues},
		{FromFile, func(k key) string { return path + ": " + k.name }, fileValues},
		{FromDefault, func(k key) string { return "default of " + k.name }, defaults},
	}, nil
}

func loadFile(into *koanf.Koanf, path string, named bool) error {
	data, err := readBounded(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !named:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return contract.Errorf(contract.NotFound, path, "no such configuration file")
	case err != nil:
		return contract.Errorf(contract.NotFound, path, "the configuration cannot be read: %w", err)
	}
	values, err := yaml.Parser().Unmarshal(data)
	if err == nil {
		err = into.Load(confmap.Provider(values, ""), nil) // nested already
	}
	if err != nil {
		return contract.Errorf(contract.InvalidArgument, path, "not a configuration file: %w", err)
	}
	for _, name := range into.Keys() {
		if !known(name) {
			return contract.Errorf(contract.InvalidArgument, path, "unknown key %q", name).WithNext("`clade config` lists the keys")
		}
	}
	return nil
}

// maxFile bounds a configuration file, in bytes; a device that never ends would take the machine's memory.
const maxFile = 1 << 20

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return data, err
}

func loadEnv(into *koanf.Koanf, environ []string) error {
	byEnv := map[string]string{}
	for _, k := range keys {
		byEnv[k.env()] = k.name
	}
	var unknown []string
	err := into.Load(env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			if slices.Contains(foreign, name) || strings.HasPrefix(name, envTest) {
				return "", nil
			}
			if byEnv[name] == "" {
				unknown = append(unknown, name)
			}
			return byEnv[name], value
		},
	}), nil)
	if err != nil {
		return contract.Errorf(contract.InvalidArgument, "environment", "%w", err)
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return contract.Errorf(contract.InvalidArgument, unknown[0], "unknown environment variable").WithNext("`clade config` lists the known ones")
	}
	return nil
}

func known(name string) bool {
	return slices.ContainsFunc(keys, func(k key) bool { return k.name == name })
}

// resolve takes the strongest layer that has k, parses it and records where it came from.
func (c *Config) resolve(k key, layers []layer) error {
	for _, l := range layers {
		if !l.values.Exists(k.name) {
			continue
		}
		texts, err := textsOf(k, l.values.Get(k.name))
		if err == nil {
			err = k.set(c, texts)
		}
		if err != nil {
			return contract.Errorf(contract.InvalidArgument, l.where(k), "%w", err)
		}
		shown := strings.Join(texts, string(filepath.ListSeparator))
		if k.secret && shown != "" {
			shown = "(set)"
		}
		c.values[k.name] = Value{Key: k.name, Value: shown, Source: l.source, Env: k.env(), Doc: k.doc}
		return nil
	}
	return contract.Errorf(contract.Internal, k.name, "no default")
}

// textsOf turns what a layer holds into texts: a YAML list for a list key, a scalar for every other.
func textsOf(k key, v any) ([]string, error) {
	switch v := v.(type) {
	case string:
		if !k.list {
			return []string{v}, nil
		}
		return filepath.SplitList(v), nil
	case []any:
		if !k.list {
			return nil, fmt.Errorf("want one value, not a list")
		}
		out := make([]string, 0, len(v))
		for _, item := range v {
			s, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("want a list of texts, found %v", item)
			}
			out = append(out, s)
		}
		return out, nil
	case bool, int, int64, uint64, float64:
		return []string{fmt.Sprint(v)}, nil
	case nil:
		return nil, fmt.Errorf("has no value")
	}
	return nil, fmt.Errorf("want a text, number or list")
}

func expandHome(p string) (string, error) {
	rest, ok := strings.CutPrefix(p, "~/")
	if !ok {
		return p, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory for %s", p)
	}
	return filepath.Join(home, rest), nil
}
