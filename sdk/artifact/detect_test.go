package artifact

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestFormatFollowsTheFilesOfADirectory(t *testing.T) {
	st := safetensorsFile(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)
	other := safetensorsFile(`{"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)
	gguf := ggufFile{entries: [][]byte{gkv("general.architecture", "llama")}}.bytes()
	for name, c := range map[string]struct {
		files map[string][]byte
		want  Format
		n     int
	}{
		"one file":         {map[string][]byte{"model.safetensors": st}, Safetensors, 1},
		"shards":           {map[string][]byte{"model-00001-of-00002.safetensors": st, "model-00002-of-00002.safetensors": other}, Safetensors, 2},
		"whisper's name":   {map[string][]byte{"weights.safetensors": st}, Safetensors, 1},
		"sidecar is left":  {map[string][]byte{"model.safetensors": st, "optiq_vision.safetensors": st}, Safetensors, 1},
		"gguf beside":      {map[string][]byte{"model.safetensors": st, "x.gguf": gguf}, Safetensors, 1},
		"only a gguf":      {map[string][]byte{"x.gguf": gguf}, GGUF, 0},
		"colibri":          {map[string][]byte{"out-00000.safetensors": st, "out-mtp-00000.safetensors": other}, Colibri, 2},
		"colibri with gap": {map[string][]byte{"out-00007.safetensors": st, "out-idx-00003.safetensors": other}, Colibri, 2},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Open(modelDir(t, c.files))
			require.NoError(t, err)
			defer func() { require.NoError(t, a.Close()) }()
			require.Equal(t, c.want, a.Format)
			require.Len(t, a.Tensors(), c.n)
			require.True(t, filepath.IsAbs(a.Path))
		})
	}
}

func TestDetectionSaysWhatIsMissingOrAmbiguous(t *testing.T) {
	st := safetensorsFile(`{}`, 0)
	for name, c := range map[string]struct {
		files   map[string][]byte
		kind    contract.Kind
		mention string
	}{
		"nothing":            {nil, contract.NotFound, "no model*.safetensors"},
		"two ggufs":          {map[string][]byte{"a.gguf": nil, "b.gguf": nil}, contract.InvalidArgument, "2 .gguf files"},
		"both formats":       {map[string][]byte{"out-0.safetensors": st, "model.safetensors": st}, contract.ArtifactCorrupt, "Colibri or safetensors"},
		"colibri, no main":   {map[string][]byte{"out-mtp-0.safetensors": st}, contract.NotFound, "main shard"},
		"a broken config":    {map[string][]byte{"model.safetensors": st, "config.json": []byte("{")}, contract.ArtifactCorrupt, "config.json"},
		"a broken gen file":  {map[string][]byte{"model.safetensors": st, "generation_config.json": []byte("x")}, contract.ArtifactCorrupt, "generation_config.json"},
		"an empty gguf file": {map[string][]byte{"a.gguf": nil}, contract.ArtifactCorrupt, "a.gguf"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(modelDir(t, c.files))
			require.Error(t, err)
			require.Equal(t, c.kind, contract.KindOf(err), err.Error())
			require.ErrorContains(t, err, c.mention)
		})
	}
	_, err := Open(filepath.Join(t.TempDir(), "none"))
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	file := filepath.Join(t.TempDir(), "weights.bin")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Open(file)
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
}

func TestMissingConfigIsNotFound(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), safetensorsFile(`{}`, 0), 0o600))
	_, err := Open(dir)
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	require.ErrorContains(t, err, "config.json")
}

func TestSideFilesAreReadByBaseNameOnly(t *testing.T) {
	dir := modelDir(t, map[string][]byte{"model.safetensors": safetensorsFile(`{}`, 0), "tokenizer.json": []byte("{}")})
	a, err := Open(dir)
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	data, err := a.File("tokenizer.json")
	require.NoError(t, err)
	require.Equal(t, "{}", string(data))
	require.True(t, a.HasFile("tokenizer.json"))
	_, err = a.File("merges.txt")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc/passwd", `a\b`} {
		_, err = a.File(name)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), name)
		require.False(t, a.HasFile(name))
	}
}

func TestLinksAreFollowedAndOnlyRegularFilesOpened(t *testing.T) {
	blob := filepath.Join(t.TempDir(), "blob")
	require.NoError(t, os.WriteFile(blob, safetensorsFile(`{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), 0o600))
	dir := modelDir(t, nil)
	link := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.Symlink(blob, link))
	a, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, "model.safetensors", a.Tensors()[0].File)
	require.NoError(t, a.Close())

	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Mkdir(link, 0o700))
	_, err = Open(dir)
	requireCorrupt(t, err, "model.safetensors", "not a regular file")

	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink("/dev/zero", link))
	_, err = Open(dir)
	requireCorrupt(t, err, "model.safetensors", "not a regular file")
}
