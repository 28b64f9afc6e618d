package tokenizer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// folder is a model whose tokenizer has the given files beside tokenizer.json.
func folder(t *testing.T, files map[string]string) *artifact.Artifact {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, nil))
	files["config.json"], files["tokenizer.json"] = `{"model_type": "llama"}`, `{`+okModel+`}`
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	a, err := artifact.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func TestTheTemplateComesFromTheStrongestFile(t *testing.T) {
	const config, jinja, legacy = "tokenizer_config.json", "chat_template.jinja", "chat_template.json"
	digests := map[string]bool{}
	for _, tt := range []struct {
		name       string
		files      map[string]string
		want, tool string
	}{
		{"none", map[string]string{}, "", ""},
		{"the config", map[string]string{config: `{"chat_template": "C"}`}, "C", ""},
		{"the file", map[string]string{config: `{"chat_template": "C"}`, jinja: "J"}, "J", ""},
		{"the older file", map[string]string{legacy: `{"chat_template": "L"}`}, "L", ""},
		{"the config before the older file", map[string]string{config: `{"chat_template": "C"}`, legacy: `{"chat_template": "L"}`}, "C", ""},
		{"named ones", map[string]string{legacy: `{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}`}, "D", "T"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tok, err := FromArtifact(folder(t, tt.files))
			require.NoError(t, err)
			got, ok := tok.ChatTemplate()
			require.Equal(t, tt.want != "", ok)
			require.Equal(t, tt.want, got)
			tool, ok := tok.ToolTemplate()
			require.Equal(t, tt.tool != "", ok)
			require.Equal(t, tt.tool, tool)
			require.Equal(t, tt.name == "the config before the older file", digests[tok.Digest()], "what defines a tokenizer is in its digest, and nothing else")
			digests[tok.Digest()] = true
		})
	}
	_, err := FromArtifact(folder(t, map[string]string{legacy: `{"chat_template": 3}`}))
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
	require.ErrorContains(t, err, "chat_template.json: chat_template")
}
