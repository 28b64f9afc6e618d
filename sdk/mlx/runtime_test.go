package mlx

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func writeManifest(t *testing.T, m any) string {
	t.Helper()
	dir := t.TempDir()
	b, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, manifestFile), b, 0o600))
	return dir
}

func goodManifest() Manifest {
	return Manifest{
		Variant: "cpu", MLX: Version, MLXC: CVersion, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Libraries: map[string]string{"libmlx": "lib/libmlx.so", "libmlxc": "lib/libmlxc.so"},
	}
}

func TestOpenRefusesWhatDoesNotFit(t *testing.T) {
	cases := []struct {
		name string
		edit func(*Manifest)
		kind contract.Kind
		text string
	}{
		{"other MLX", func(m *Manifest) { m.MLX = "0.32.4" }, contract.PluginMismatch, "MLX 0.32.4"},
		{"other mlx-c", func(m *Manifest) { m.MLXC = "0.7.0" }, contract.PluginMismatch, "mlx-c 0.7.0"},
		{"other system", func(m *Manifest) { m.OS = "plan9" }, contract.PluginMismatch, "plan9/"},
		{"no library", func(m *Manifest) { delete(m.Libraries, "libmlxc") }, contract.ArtifactCorrupt, "libraries.libmlxc"},
		{"path outside", func(m *Manifest) { m.Libraries["libmlx"] = "../../evil.so" }, contract.ArtifactCorrupt, "../../evil.so"},
		{"absolute path", func(m *Manifest) { m.Libraries["libmlx"] = "/evil.so" }, contract.ArtifactCorrupt, "/evil.so"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := goodManifest()
			c.edit(&m)
			_, err := readManifest(writeManifest(t, m))
			require.ErrorContains(t, err, c.text)
			require.Equal(t, c.kind, contract.KindOf(err))
		})
	}
}

func TestOpenWithoutManifestNamesTheNextStep(t *testing.T) {
	dir := t.TempDir()
	_, err := readManifest(dir)
	require.ErrorContains(t, err, filepath.Join(dir, "runtime.json"))
	require.ErrorContains(t, err, "make setup")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	_, err = readManifest(writeManifest(t, "text"))
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
}

// Mapped, a truncated library is a SIGBUS in the middle of a load.
func TestATruncatedLibraryIsToldBeforeItIsMapped(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "libmlx.so"), []byte("short"), 0o600))
	m := Manifest{}
	require.NoError(t, json.Unmarshal([]byte(`{"files":[{"path":"libmlx.so","size":6},{"path":"gone.so","size":6}]}`), &m))
	err := m.checkSize(dir, "libmlx.so")
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
	require.ErrorContains(t, err, "libmlx.so: has 5 bytes, runtime.json says 6; run make setup")
	require.NoError(t, m.checkSize(dir, "gone.so"))
	require.NoError(t, m.checkSize(dir, "unlisted.so"))
}

func TestFailedLoadListsTriedPaths(t *testing.T) {
	dir := writeManifest(t, goodManifest())
	m, err := readManifest(dir)
	require.NoError(t, err)
	err = (&Runtime{dir: dir, manifest: *m}).load()
	require.ErrorContains(t, err, filepath.Join(dir, "lib/libmlx.so"))
	require.Equal(t, contract.NotFound, contract.KindOf(err))
}

// A library without the table's functions is refused by name and does not disturb the one already loaded.
func TestLibraryWithoutFunctionsIsRefused(t *testing.T) {
	path, _ := testRuntime.Library("libmlx")
	rel, err := filepath.Rel(testRuntime.dir, path)
	require.NoError(t, err)
	m := testRuntime.manifest
	m.Libraries = map[string]string{"libmlx": rel, "libmlxc": rel}
	err = (&Runtime{dir: testRuntime.dir, manifest: m}).load()
	require.ErrorContains(t, err, "more functions of mlx-c "+CVersion)
	require.Equal(t, contract.PluginMismatch, contract.KindOf(err))
	TestMatmul(t)
}

func TestSecondRuntimeInOneProcessIsRefused(t *testing.T) {
	again, err := Open(testRuntime.dir)
	require.NoError(t, err)
	require.Same(t, testRuntime, again)
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "already loaded")
}

// The trap: on CUDA MLX multiplies float32 in TF32 unless the environment says otherwise.
func TestFloat32IsNotTF32(t *testing.T) {
	require.Equal(t, "0", os.Getenv(tf32))
}

func TestGPUName(t *testing.T) {
	require.Equal(t, "cuda-sm90", gpuName("", 9, 0))
	require.Equal(t, "cuda-sm90", gpuName("sm_90", 0, 0))
	require.Equal(t, "metal-applegpu_g16s", gpuName("applegpu_g16s", 0, 0))
}

func TestMemoryCountsArrays(t *testing.T) {
	require.NoError(t, testRuntime.ClearCache())
	do(t, func(s *Scope) {
		before, err := testRuntime.Memory()
		require.NoError(t, err)
		require.NoError(t, testRuntime.ResetPeak())
		_, _, err = s.Empty(Float32, 1024, 1024)
		require.NoError(t, err)
		after, err := testRuntime.Memory()
		require.NoError(t, err)
		require.GreaterOrEqual(t, after.Active-before.Active, int64(4<<20))
		require.GreaterOrEqual(t, after.Peak, after.Active)
	})
	before, err := testRuntime.SetCacheLimit(1 << 20)
	require.NoError(t, err)
	set, err := testRuntime.SetCacheLimit(before)
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), set)
}
