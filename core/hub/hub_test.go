package hub

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func touch(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

const (
	revA = "0123456789012345678901234567890123456789"
	revB = "abcdefabcdefabcdefabcdefabcdefabcdefabcd"
)

func newStore(t *testing.T) Store {
	t.Helper()
	root := t.TempDir()
	s := Store{Dirs: []string{filepath.Join(root, "models"), filepath.Join(root, "absent")}, HFCache: filepath.Join(root, "hf")}
	touch(t, filepath.Join(root, "models", "tiny-llama", "config.json"), "{}")
	touch(t, filepath.Join(root, "models", "acme", "tiny-qwen", "config.json"), "{}")
	touch(t, filepath.Join(root, "models", "SmolLM2.Q4_1.gguf"), "GGUF")
	touch(t, filepath.Join(root, "models", "notes.txt"), "")
	repo := filepath.Join(s.HFCache, "models--org--big--name")
	touch(t, filepath.Join(repo, "snapshots", revA, "config.json"), "{}")
	touch(t, filepath.Join(repo, "snapshots", revB, "config.json"), "{}")
	touch(t, filepath.Join(repo, "refs", "main"), revA+"\n")
	quants := filepath.Join(s.HFCache, "models--org--quants", "snapshots", revB)
	touch(t, filepath.Join(quants, "x-Q4_0.gguf"), "GGUF")
	touch(t, filepath.Join(quants, "x-Q8_0.gguf"), "GGUF")
	touch(t, filepath.Join(s.HFCache, "datasets--org--d", "snapshots", revA, "config.json"), "{}")
	return s
}

func TestListsFoldersAndTheHuggingFaceCache(t *testing.T) {
	models, err := newStore(t).List()
	require.NoError(t, err)
	var ids []string
	for _, m := range models {
		ids = append(ids, m.ID)
	}
	require.Equal(t, []string{"SmolLM2.Q4_1", "acme/tiny-qwen", "org/big--name", "org/quants/x-Q4_0.gguf", "org/quants/x-Q8_0.gguf", "tiny-llama"}, ids)
}

func TestResolve(t *testing.T) {
	s := newStore(t)
	tests := []struct{ arg, id string }{
		{"smollm2", "SmolLM2.Q4_1"},
		{"org/big--name", "org/big--name"},
		{"tiny-llama", "tiny-llama"}, // exact beats being a substring
		{"q8_0", "org/quants/x-Q8_0.gguf"},
		{filepath.Join(s.Dirs[0], "tiny-llama"), "tiny-llama"},
		{filepath.Join(s.HFCache, "models--org--big--name", "snapshots", revB), "org/big--name"},
	}
	for _, tt := range tests {
		t.Run(tt.arg, func(t *testing.T) {
			m, err := s.Resolve(tt.arg)
			require.NoError(t, err)
			require.Equal(t, tt.id, m.ID)
			require.True(t, filepath.IsAbs(m.Path))
		})
	}
	m, err := s.Resolve("big")
	require.NoError(t, err)
	require.Equal(t, revA, filepath.Base(m.Path), "refs/main decides the revision")
}

func TestAmbiguousModelListsTheCandidates(t *testing.T) {
	_, err := newStore(t).Resolve("tiny")
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.ErrorContains(t, err, "acme/tiny-qwen, tiny-llama")
}

func TestAbsentModelIsNotFoundWithTheNextStep(t *testing.T) {
	s := newStore(t)
	for _, arg := range []string{"no-such", "./no-such", "/no/such"} {
		_, err := s.Resolve(arg)
		require.Equal(t, contract.NotFound, contract.KindOf(err), arg)
	}
	_, err := s.Resolve("no-such")
	require.ErrorContains(t, err, s.Dirs[0])
	_, err = s.Resolve("")
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	_, err = s.Resolve(filepath.Join(s.Dirs[0], "notes.txt"))
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
}
