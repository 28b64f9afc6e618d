package hub

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestReferences(t *testing.T) {
	for text, want := range map[string]Reference{
		"org/name":               {ID: "org/name"},
		"hf.co/org/name":         {ID: "org/name"},
		"org/name:Q4_K_M":        {ID: "org/name", Quant: "Q4_K_M"},
		"org/name/a.gguf":        {ID: "org/name", File: "a.gguf"},
		"org/name/Q4/a-001.gguf": {ID: "org/name", File: "Q4/a-001.gguf"},
	} {
		got, err := ParseReference(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "name", "/name", "org/", "../x/y", "org/na me", "org/name/a.bin", "org/name/../../a.gguf", "org/name:a b", "org/a--b", "-x/y"} {
		_, err := ParseReference(text)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), text)
	}
}

func TestChoosingOfAGGUF(t *testing.T) {
	repo := Repository{ID: "org/name"}
	for _, f := range []string{
		"m-Q4_K_M.gguf", "m-Q4_K.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf", "BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf", "config.json",
	} {
		repo.Files = append(repo.Files, File{Path: f})
	}
	choose := func(ref string) ([]string, error) {
		r, err := ParseReference(ref)
		require.NoError(t, err)
		files, err := repo.Choose(r)
		var out []string
		for _, f := range files {
			out = append(out, f.Path)
		}
		return out, err
	}
	for ref, want := range map[string][]string{
		"org/name:q4_k_m":          {"m-Q4_K_M.gguf"},
		"org/name:Q4_K":            {"m-Q4_K.gguf"},
		"org/name:BF16":            {"BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"},
		"org/name/m-Q8_0.gguf":     {"m-Q8_0.gguf"},
		"org/name/mmproj-F16.gguf": {"mmproj-F16.gguf"},
	} {
		got, err := choose(ref)
		require.NoError(t, err)
		require.Equal(t, want, got, ref)
	}
	_, err := choose("org/name")
	require.ErrorContains(t, err, "has several GGUF files: BF16/m-BF16-00001-of-00002.gguf,")
	require.ErrorContains(t, err, "name one as org/name:QUANT")
	_, err = choose("org/name:Q2_K")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	_, err = Repository{ID: "org/name", Files: []File{{Path: "pytorch_model.bin"}}}.Choose(Reference{ID: "org/name"})
	require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
}

func TestRemovingLeavesWhatOthersNeed(t *testing.T) {
	h := newFakeHub(t, map[string]string{"a-Q4_0.gguf": "aaaa", "a-Q8_0.gguf": "bbbbbb"})
	s := Store{HFCache: t.TempDir(), Dirs: []string{t.TempDir()}}
	for _, quant := range []string{"Q4_0", "Q8_0"} {
		_, err := prepared(t, s, h, "org/name:"+quant).Run(t.Context(), none)
		require.NoError(t, err)
	}
	m, err := s.Resolve("Q4_0")
	require.NoError(t, err)
	require.EqualValues(t, 4, m.Size())
	freed, err := s.Remove(m)
	require.NoError(t, err)
	require.EqualValues(t, 4, freed)
	other, err := s.Resolve("Q8_0")
	require.NoError(t, err)
	require.EqualValues(t, 6, other.Size())
	freed, err = s.Remove(other)
	require.NoError(t, err)
	require.EqualValues(t, 6, freed)
	require.NoDirExists(t, filepath.Join(s.HFCache, "models--org--name"))
	_, err = s.Remove(Model{ID: "x", Path: t.TempDir(), Source: SourcePath})
	require.ErrorContains(t, err, "outside the model folders")
}
