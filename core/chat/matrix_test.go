package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// matrix is testdata/matrix.json, made by testdata/matrix.py with transformers.
type matrix struct {
	Now        time.Time         `json:"now"`
	Specials   map[string]string `json:"specials"`
	Renderings []struct {
		Template     string  `json:"template"`
		Conversation string  `json:"conversation"`
		Raised       *string `json:"raised"`
		Failed       *string `json:"failed"`
		Bytes        int     `json:"bytes"`
		SHA256       string  `json:"sha256"`
	} `json:"renderings"`
}

type conversations struct {
	Tools         json.RawMessage `json:"tools"`
	Conversations []struct {
		Name                string          `json:"name"`
		Messages            json.RawMessage `json:"messages"`
		Tools               bool            `json:"tools"`
		AddGenerationPrompt *bool           `json:"add_generation_prompt"`
		Kwargs              json.RawMessage `json:"kwargs"`
	} `json:"conversations"`
}

func templateSource(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("testdata", name+".jinja")
	switch {
	case name == "smollm2":
		var cases struct {
			Templates map[string]string `json:"templates"`
		}
		load(t, "testdata/cases.json", &cases)
		return cases.Templates[name]
	case strings.HasSuffix(name, ".jinja"):
		path = filepath.Join(jinjaTestdata(t), "templates", name)
	}
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(src)
}

// kwargs reads template variables as the command line and the API do, in the order they came.
func kwargsOf(t *testing.T, raw json.RawMessage) map[string]any {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	v, err := parseJSON(raw)
	require.NoError(t, err)
	return v.(*Object).values
}

// TestEveryTemplateRendersEveryConversationAsTransformersDoes holds 19 templates x 12 conversations.
func TestEveryTemplateRendersEveryConversationAsTransformersDoes(t *testing.T) {
	var m matrix
	load(t, "testdata/matrix.json", &m)
	var all conversations
	load(t, "testdata/conversations.json", &all)
	require.Len(t, m.Renderings, 19*12)
	for i, want := range m.Renderings {
		t.Run(want.Template+"/"+want.Conversation, func(t *testing.T) {
			c := all.Conversations[i%len(all.Conversations)]
			require.Equal(t, want.Conversation, c.Name)
			tpl, err := NewTemplate(templateSource(t, want.Template), m.Specials)
			require.NoError(t, err)
			o := RenderOptions{AddGenerationPrompt: c.AddGenerationPrompt == nil || *c.AddGenerationPrompt, Kwargs: kwargsOf(t, c.Kwargs), Now: m.Now}
			if c.Tools {
				o.ToolsJSON = all.Tools
			}
			got, err := tpl.Render(rawMessages(t, c.Messages), o)
			if dir := os.Getenv("CLADE_TEST_DUMP"); dir != "" { // to compare with matrix.py --text
				name := strings.ReplaceAll(want.Template+"__"+c.Name, " ", "_")
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(got), 0o600))
			}
			switch {
			case want.Raised != nil && strings.HasPrefix(*want.Raised, "No filter named"):
				require.NoError(t, err) // transformers has no from_json; the library has, and the template was written for it
			case want.Raised != nil:
				requireRaised(t, err, *want.Raised)
			case want.Failed != nil:
				require.Equal(t, contract.InvalidArgument, contract.KindOf(err), "Python: %s; here: %q", *want.Failed, got)
			default:
				require.NoError(t, err)
				sum := sha256.Sum256([]byte(got))
				require.Equal(t, want.SHA256, hex.EncodeToString(sum[:12]), "%d bytes, want %d", len(got), want.Bytes)
			}
		})
	}
}
