package mlx

import (
	"debug/elf"
	"debug/macho"
	"runtime"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exported lists the functions of mlx-c that a library file defines.
func exported(t *testing.T, path string) []string {
	t.Helper()
	var out []string
	add := func(name string) {
		if strings.HasPrefix(name, "mlx_") || strings.HasPrefix(name, "_mlx_") {
			out = append(out, name)
		}
	}
	if runtime.GOOS == "darwin" {
		f, err := macho.Open(path)
		require.NoError(t, err)
		defer f.Close()
		for _, s := range f.Symtab.Syms {
			if s.Sect != 0 && s.Type&1 != 0 {
				add(strings.TrimPrefix(s.Name, "_"))
			}
		}
		return out
	}
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	syms, err := f.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range syms {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			add(s.Name)
		}
	}
	return out
}

// The table is the library's whole C interface: nothing required is missing, and nothing is there that the table lacks.
func TestLibraryExportsExactlyTheTable(t *testing.T) {
	path, ok := testRuntime.Library("libmlxc")
	require.True(t, ok)
	var want []string
	for _, s := range testRuntime.Symbols() {
		require.True(t, s.Found || s.Optional, s.Name)
		if s.Found {
			want = append(want, s.Name)
		}
	}
	want = append(want, "_mlx_error") // variadic: mlx-c's own, never called from here
	got := exported(t, path)
	sort.Strings(want)
	sort.Strings(got)
	require.Equal(t, want, got)
}

func TestVersionAtOpen(t *testing.T) {
	got, err := reportedVersion()
	require.NoError(t, err)
	require.Equal(t, Version, got)
	info := testRuntime.Info()
	require.Equal(t, Version, info.MLX)
	require.Equal(t, CVersion, info.MLXC)
	require.NotEmpty(t, info.Devices)
	require.Equal(t, CPU, info.Devices[0].Kind)
	require.Equal(t, cpuName(), info.Devices[0].Name)
}

func TestOptionalSymbolsAreQueryable(t *testing.T) {
	require.True(t, testRuntime.Has("mlx_matmul"))
	require.False(t, testRuntime.Has("mlx_no_such_function"))
	optional := 0
	for _, s := range testRuntime.Symbols() {
		if s.Optional {
			optional++
			require.Equal(t, s.Found, testRuntime.Has(s.Name))
		}
	}
	require.Equal(t, 4, optional) // the half-precision accessors, absent on x86
}
