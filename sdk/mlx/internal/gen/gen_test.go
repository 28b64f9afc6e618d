package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	require.NoError(t, run("../..", "", true))
}

const sampleHeader = `/* words; with a semicolon */
#ifndef MLX_SAMPLE_H
#define MLX_SAMPLE_H
#ifdef __cplusplus
extern "C" {
#endif
typedef struct mlx_thing_ {
  void* ctx;
} mlx_thing;
static mlx_thing mlx_thing_empty;
typedef enum mlx_side_ { MLX_LEFT, MLX_RIGHT } mlx_side;
typedef struct mlx_pair_ {
  int a;
  bool b;
} mlx_pair;
// a comment; with a semicolon
int mlx_do(
    mlx_array* res,
    const mlx_array a /* may be null */,
    int (*fun)(void*, const char* x),
    const mlx_stream s);
void mlx_report(const char* fmt, ...);
#ifdef HAS_FLOAT16
const float16_t* mlx_half(const mlx_array arr);
#endif
const bool* mlx_flags();
#ifdef __cplusplus
}
#endif
#endif
`

func TestHeaderBecomesTableLines(t *testing.T) {
	var got []string
	for _, d := range declarations(sampleHeader) {
		line, _, err := d.tableLine()
		require.NoError(t, err)
		if line != "" {
			got = append(got, line)
		}
	}
	require.Equal(t, []string{
		"handle mlx_thing",
		"enum mlx_side MLX_LEFT, MLX_RIGHT",
		"type typedef struct mlx_pair_ { int a; bool b; } mlx_pair",
		"func int mlx_do(mlx_array* res, const mlx_array a?, int (*fun)(void*, const char* x), const mlx_stream s)",
		"optional const float16_t* mlx_half(const mlx_array arr)",
		"func const bool* mlx_flags()",
	}, got)
}

func TestUnknownHeaderIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, h := range append([]string{"novelty"}, headers...) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, h+".h"), nil, 0o600))
	}
	_, err := extract(dir)
	require.ErrorContains(t, err, "novelty.h is not covered")
}

func TestMissingHeaderIsRefused(t *testing.T) {
	_, err := extract(t.TempDir())
	require.ErrorContains(t, err, "string.h")
}

func TestUnknownDeclarationIsRefused(t *testing.T) {
	_, _, err := declaration{text: "int mlx_table[3]"}.tableLine()
	require.ErrorContains(t, err, "not understood")
}

// An operation that the generator cannot express stops it: none is lost in silence.
func TestOpsThatCannotBeExpressedAreRefused(t *testing.T) {
	cases := map[string]string{
		"func int mlx_x(mlx_array* res, mlx_new_type t, const mlx_stream s)":       `"mlx_new_type" is not understood`,
		"func int mlx_x(mlx_array* res, const int* shape, const mlx_stream s)":     "shape has no length",
		"func int mlx_x(const mlx_array a)":                                        "first parameter is no result",
		"func void mlx_x(mlx_array* res)":                                          "does not return a code",
		"func int mlx_a_b(mlx_array* res)\nfunc int mlx_a__b(mlx_array* res)":      "are both AB in Go",
		"func int mlx_x(mlx_array* res, int (*f)(void*), const mlx_stream stream)": `type "" is not understood`,
	}
	for table, want := range cases {
		a, err := parseTable("header ops\n" + table)
		require.NoError(t, err)
		_, err = a.ops()
		require.ErrorContains(t, err, want)
	}
}

func TestBrokenTableIsRefused(t *testing.T) {
	for table, want := range map[string]string{
		"verb x":             `line 1: unknown kind "verb"`,
		"# c\nfunc nonsense": "line 2: not a function",
		"func int f(int)":    "parameter 0 has no name",
	} {
		_, err := parseTable(table)
		require.ErrorContains(t, err, want)
	}
}

func TestAxisFormHasTheShortName(t *testing.T) {
	names := map[string]bool{"mlx_sum": true, "mlx_sum_axis": true, "mlx_sum_axes": true, "mlx_tensordot": true, "mlx_tensordot_axis": true}
	require.Equal(t, "Sum", goName("mlx_sum_axis", names))
	require.Equal(t, "SumAll", goName("mlx_sum", names))
	require.Equal(t, "SumAxes", goName("mlx_sum_axes", names))
	require.Equal(t, "Tensordot", goName("mlx_tensordot", names))
	require.Equal(t, "IRFFT2", goName("mlx_fft_irfft2", names))
	require.Equal(t, "FFTShift", goName("mlx_fft_fftshift", names))
}

func TestCheckReportsADifferentFile(t *testing.T) {
	dir := t.TempDir()
	table, err := os.ReadFile("../../" + tableFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, tableFile), table, 0o600))
	require.ErrorContains(t, run(dir, "", true), "run go generate ./mlx")
	require.NoError(t, run(dir, "", false))
	require.NoError(t, run(dir, "", true))
	changed := strings.Replace(string(table), "func int mlx_abs(", "func int mlx_absolute(", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, tableFile), []byte(changed), 0o600))
	require.Error(t, run(dir, "", true))
}
