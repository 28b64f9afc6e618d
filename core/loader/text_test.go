package loader

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/hub"
)

// As transformers chooses: a conversation with tools takes the template named tool_use.
func TestToolsTakeTheTemplateThatIsNamedForThem(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(tinyModel(t).Path)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"chat_template": [
		{"name": "default", "template": "plain {{ messages[0].content }}"},
		{"name": "tool_use", "template": "{{ tools[0].function.name if tools else 'none' }} {{ messages[0].content }}"}]}`), 0o600))
	d, err := hostOf(t, newFake()).Decide(hub.Model{ID: "tiny", Path: dir})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	text, err := d.ReadText()
	require.NoError(t, err)
	c := chat.Conversation{Messages: []map[string]any{{"role": "user", "content": "hi"}}}
	out, err := text.Render(c, true)
	require.NoError(t, err)
	require.Equal(t, "plain hi", out)
	c.Tools = []byte(`[{"type": "function", "function": {"name": "look"}}]`)
	out, err = text.Render(c, true)
	require.NoError(t, err)
	require.Equal(t, "look hi", out)
}
