package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// embedding is what `clade embed --json` prints.
type embedding struct {
	Embedding  []float32
	Embeddings [][]float32
	Dimensions int
	Tokens     int
}

// embedder is a tiny embedding model whose tokens are bytes; <|endoftext|> follows them.
func embedder(t *testing.T) string {
	t.Helper()
	model, err := tiny.Qwen3("qwen3-embedding")[0].Write(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, tiny.WriteByteTokenizer(model, "<|endoftext|>"))
	return model
}

func idsOf(text string) []int32 {
	var ids []int32
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return append(ids, tiny.ByteVocab)
}

func TestEmbedEqualsTheOracle(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(repository(), "plugins", "qwen", "testdata", "qwen3.json"))
	require.NoError(t, err)
	var file struct {
		Checkpoints []struct {
			Name       string
			Vocab      int
			Embeddings map[string]string
		}
	}
	require.NoError(t, json.Unmarshal(data, &file))
	seen := false
	for _, g := range file.Checkpoints {
		if g.Name != "qwen3-embedding" {
			continue
		}
		seen = true
		raw, err := base64.StdEncoding.DecodeString(g.Embeddings["40"])
		require.NoError(t, err)
		var got embedding
		ids := write(t, filepath.Join(t.TempDir(), "ids"), tiny.Prompt(40, g.Vocab))
		jsonOf(t, &got, "embed", embedder(t), "--ids", ids, "--json", "--dtype", "float32")
		require.Equal(t, 40, got.Tokens)
		var ab, aa, bb float64
		for i, v := range floats(raw) {
			ab, aa, bb = ab+float64(v)*float64(got.Embedding[i]), aa+float64(v)*float64(v), bb+float64(got.Embedding[i])*float64(got.Embedding[i])
		}
		require.GreaterOrEqual(t, ab/math.Sqrt(aa*bb), 1-1e-6)
		require.InDelta(t, 1, bb, 1e-6)
	}
	require.True(t, seen)
}

// A text is its tokens without special ones, and the family's last one; the instruction stands before it in the family's form.
func TestEmbedPutsTextsIntoTheFamilysForm(t *testing.T) {
	model := embedder(t)
	plain := func(ids []int32) []float32 {
		var r embedding
		jsonOf(t, &r, "embed", model, "--ids", write(t, filepath.Join(t.TempDir(), "ids"), ids), "--json")
		return r.Embedding
	}
	var r embedding
	jsonOf(t, &r, "embed", model, "--text", "Paris", "--text", "Rome, é", "--json")
	require.Equal(t, [][]float32{plain(idsOf("Paris")), plain(idsOf("Rome, é"))}, r.Embeddings)
	require.Equal(t, len(idsOf("Paris"))+len(idsOf("Rome, é")), r.Tokens)
	jsonOf(t, &r, "embed", model, "--text", "Paris", "--instruct", "Find the city", "--dimensions", "32", "--json")
	whole := plain(idsOf("Instruct: Find the city\nQuery:Paris"))
	require.Len(t, r.Embedding, 32)
	for i, v := range r.Embedding {
		require.InDelta(t, whole[i]/whole[0], v/r.Embedding[0], 1e-5, "value %d", i)
	}
	lines := strings.Fields(ok(t, "embed", model, "--text", "Paris"))
	require.Len(t, lines, 64)
	for args, mention := range map[string]string{
		"--text Paris --dimensions 16": "less than the 32", "--text Paris --dimensions 65": "more than the 64",
		"--text a --ids b": "either --ids or --text", "--ids b --instruct c": "--instruct",
	} {
		got := clade(t, append([]string{"embed", model}, strings.Fields(args)...)...)
		require.Equal(t, 2, got.code, "%s: %s", args, got.errors)
		require.Contains(t, got.errors, mention)
	}
}

func TestServedEmbeddingsAreThoseOfTheCommandLine(t *testing.T) {
	model := embedder(t)
	s := startServer(t, model)
	var want embedding
	jsonOf(t, &want, "embed", model, "--text", "Paris", "--text", "Rome", "--json")
	res, err := http.Post(s.url+"/v1/embeddings", "application/json", bytes.NewReader([]byte(`{"input":["Paris","Rome"]}`))) //nolint:noctx // a test
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	var got struct {
		Data  []struct{ Embedding []float32 }
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
		}
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&got))
	require.Len(t, got.Data, 2)
	require.Equal(t, want.Embeddings[0], got.Data[0].Embedding)
	require.Equal(t, want.Embeddings[1], got.Data[1].Embedding)
	require.Equal(t, want.Tokens, got.Usage.PromptTokens)
}
