package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func write(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
	return p
}

func valueOf(c *Config, key string) Value { return c.values[key] }

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	file := write(t, "serve: {port: 1111, host: 127.0.0.2, lazy: true}\nmemory_budget: 3GiB\n")
	c, err := Load(Options{
		File:    file,
		Environ: []string{"CLADE_SERVE_PORT=2222", "CLADE_SERVE_HOST=127.0.0.3", "HOME=/h"},
		Flags:   map[string]string{"serve.port": "3333"},
	})
	require.NoError(t, err)
	require.EqualValues(t, 3333, c.Serve.Port)
	require.Equal(t, FromFlag, valueOf(c, "serve.port").Source)
	require.Equal(t, "127.0.0.3", c.Serve.Host)
	require.Equal(t, FromEnv, valueOf(c, "serve.host").Source)
	require.True(t, c.Serve.Lazy)
	require.EqualValues(t, 3<<30, c.MemoryBudget)
	require.Equal(t, FromFile, valueOf(c, "memory_budget").Source)
	require.Equal(t, "native", c.Model.DType)
	require.False(t, c.Set("model.dtype"))
	require.True(t, c.Set("serve.port"))
}

func TestUnknownAndMalformedSettingsAreErrorsNamingThem(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		want string
	}{
		{"unknown key", Options{File: write(t, "serve: {prot: 1}\n"), Environ: []string{}}, `unknown key "serve.prot"`},
		{"section as scalar", Options{File: write(t, "serve: 5\n"), Environ: []string{}}, `unknown key "serve"`},
		{"unknown variable", Options{File: write(t, ""), Environ: []string{"CLADE_SERVE_PROT=1"}}, "CLADE_SERVE_PROT: unknown"},
		{"bad port", Options{File: write(t, "serve: {port: 70000}\n"), Environ: []string{}}, "serve.port: want a port"},
		{"bad size", Options{File: write(t, ""), Environ: []string{"CLADE_MEMORY_BUDGET=lots"}}, "CLADE_MEMORY_BUDGET"},
		{"list for scalar", Options{File: write(t, "runtime: [a, b]\n"), Environ: []string{}}, "runtime: want one value"},
		{"null", Options{File: write(t, "runtime:\n"), Environ: []string{}}, "runtime: has no value"},
		{"bad enum", Options{File: write(t, ""), Environ: []string{}, Flags: map[string]string{"model.dtype": "int3"}}, "model.dtype"},
		{"not yaml", Options{File: write(t, "a: [\n"), Environ: []string{}}, "not a configuration file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(tt.o)
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
		})
	}
}

func TestNamedFileMustExistAndDefaultFileMayNot(t *testing.T) {
	_, err := Load(Options{File: filepath.Join(t.TempDir(), "none.yaml"), Environ: []string{}})
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	_, err = Load(Options{Environ: []string{}})
	require.NoError(t, err)
}

func TestSecretIsNeverPrinted(t *testing.T) {
	c, err := Load(Options{File: write(t, "serve: {api_key: hush}\n"), Environ: []string{}})
	require.NoError(t, err)
	require.Equal(t, "hush", c.Serve.APIKey)
	require.Equal(t, "(set)", valueOf(c, "serve.api_key").Value)
}

// Whoever builds the runtime with their own mlx-c, or keeps the test model elsewhere, runs clade in the same shell.
func TestVariablesOfTheBuildAndTheTestsAreNoUnknownSettings(t *testing.T) {
	_, err := Load(Options{File: write(t, ""), Environ: []string{
		"CLADE_MLXC_DIR=/opt/mlx-c", "CLADE_SMOLLM2=/m", "CLADE_TEST_SMOLLM2=/m", "CLADE_ORACLE_PYTHON=/p", "CLADE_BENCH_INTERVAL=1", "CLADE_CONFIG=",
	}})
	require.NoError(t, err)
}

func TestAConfigurationFileThatNeverEndsIsRefusedNotRead(t *testing.T) {
	_, err := Load(Options{File: "/dev/zero", Environ: []string{}})
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	if !strings.Contains(err.Error(), "no such") { // a system without it
		require.ErrorContains(t, err, "/dev/zero: the configuration cannot be read: is larger than 1048576 bytes")
	}
}

func TestListsComeFromPathListsAndYAML(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	c, err := Load(Options{File: write(t, "models: {dirs: [/a, ~/b]}\n"), Environ: []string{"CLADE_PLUGINS_DIRS=/x:/y"}})
	require.NoError(t, err)
	require.Equal(t, []string{"/a", "/home/u/b"}, c.Models.Dirs)
	require.Equal(t, []string{"/x", "/y"}, c.Plugins.Dirs)
}

func TestEveryKeyHasADocAndItsOwnVariable(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range keys {
		require.NotEmpty(t, k.doc, k.name)
		require.False(t, seen[k.env()], k.env())
		seen[k.env()] = true
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]uint64{"0": 0, "1024": 1024, "4GiB": 4 << 30, "1.5g": 3 << 29, "800MB": 800e6, "7 KiB": 7 << 10, "18446744073709551615": 1<<64 - 1} {
		got, err := ParseBytes(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "x", "-1", "NaN", "1e400GiB", "99999999TiB"} {
		_, err := ParseBytes(in)
		require.Error(t, err, in)
	}
	require.Equal(t, "1.5 GiB", FormatBytes(3<<29))
	require.Equal(t, "12 B", FormatBytes(12))
}
