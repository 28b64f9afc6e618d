package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// golden is testdata/golden.json, made by testdata/golden.py with transformers.
type golden struct {
	Now       time.Time         `json:"now"`
	Specials  map[string]string `json:"specials"`
	Own       []rendered        `json:"own"`
	Published []rendered        `json:"published"`
}

type rendered struct {
	Name     string  `json:"name"`
	Template string  `json:"template"`
	Request  string  `json:"request"`
	Text     *string `json:"text"`
	Raised   *string `json:"raised"`
	Failed   *string `json:"failed"`
	Bytes    int     `json:"bytes"`
	SHA256   string  `json:"sha256"`
}

type testCase struct {
	Name                string          `json:"name"`
	Template            string          `json:"template"`
	Messages            json.RawMessage `json:"messages"`
	Tools               json.RawMessage `json:"tools"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt"`
	Kwargs              map[string]any  `json:"kwargs"`
}

func load(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v))
}

// rawMessages reads messages as they are, parts of content and all, as transformers is given them.
func rawMessages(t *testing.T, data []byte) []map[string]any {
	t.Helper()
	v, err := parseJSON(data)
	require.NoError(t, err)
	var out []map[string]any
	for _, m := range v.([]any) {
		out = append(out, m.(*Object).values)
	}
	return out
}

func (g *golden) render(t *testing.T, template string, c testCase) (string, error) {
	t.Helper()
	tpl, err := NewTemplate(template, g.Specials)
	if err != nil {
		return "", err
	}
	opts := RenderOptions{AddGenerationPrompt: true, Kwargs: c.Kwargs, Now: g.Now}
	if c.AddGenerationPrompt != nil {
		opts.AddGenerationPrompt = *c.AddGenerationPrompt
	}
	if len(c.Tools) > 0 && string(c.Tools) != "null" {
		opts.ToolsJSON = c.Tools
	}
	return tpl.Render(rawMessages(t, c.Messages), opts)
}

func TestRenderingEqualsTransformers(t *testing.T) {
	var g golden
	load(t, "testdata/golden.json", &g)
	var cases struct {
		Templates map[string]string `json:"templates"`
		Cases     []testCase        `json:"cases"`
	}
	load(t, "testdata/cases.json", &cases)
	require.Len(t, g.Own, len(cases.Cases))
	for i, c := range cases.Cases {
		t.Run(c.Name, func(t *testing.T) {
			want := g.Own[i]
			require.Equal(t, c.Name, want.Name)
			src, ok := cases.Templates[c.Template]
			if !ok {
				src = c.Template
			}
			got, err := g.render(t, src, c)
			switch {
			case want.Raised != nil && jinjasOwnWords(*want.Raised), want.Failed != nil:
				require.Error(t, err, "Python cannot render this; here: %q", got)
				require.Contains(t, []contract.Kind{contract.InvalidArgument, contract.UnsupportedModel}, contract.KindOf(err))
				return
			case want.Raised != nil:
				requireRaised(t, err, *want.Raised)
				return
			}
			require.NoError(t, err)
			require.NotNil(t, want.Text)
			require.Equal(t, *want.Text, got)
		})
	}
}

// jinjasOwnWords tells what jinja2 says of an error from what a template raises.
func jinjasOwnWords(message string) bool {
	for _, s := range []string{"has no attribute", "is undefined", "has no element", "No filter named", "No test named"} {
		if strings.Contains(message, s) {
			return true
		}
	}
	return false
}

func requireRaised(t *testing.T, err error, message string) {
	t.Helper()
	var e *contract.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, contract.InvalidArgument, e.Kind)
	require.Equal(t, message, e.Message)
}

// jinjaTestdata is the jinja module's own testdata.
var jinjaFolder = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ardanlabs/jinja").Output()
	return filepath.Join(strings.TrimSpace(string(out)), "testdata"), err
})

func jinjaTestdata(t *testing.T) string {
	t.Helper()
	dir, err := jinjaFolder()
	require.NoError(t, err)
	return dir
}

// TestPublishedTemplatesEqualTransformers renders the templates and requests in the jinja module's own testdata.
func TestPublishedTemplatesEqualTransformers(t *testing.T) {
	var g golden
	load(t, "testdata/golden.json", &g)
	module := jinjaTestdata(t)
	for _, want := range g.Published {
		t.Run(want.Template+"/"+want.Request, func(t *testing.T) {
			src, err := os.ReadFile(filepath.Join(module, "templates", want.Template))
			require.NoError(t, err)
			c := testCase{Kwargs: map[string]any{}}
			var body map[string]json.RawMessage
			load(t, filepath.Join(module, "requests", want.Request), &body)
			c.Messages, c.Tools = body["messages"], body["tools"]
			if raw, ok := body["enable_thinking"]; ok {
				c.Kwargs["enable_thinking"], err = parseJSON(raw)
				require.NoError(t, err)
			}
			got, err := g.render(t, string(src), c)
			switch {
			case want.Failed != nil:
				// Python itself cannot render these; what is asked here is that nothing worse than an error happens.
				if err != nil {
					require.True(t, errors.As(err, new(*contract.Error)))
				}
			case want.Raised != nil && strings.HasPrefix(*want.Raised, "No filter named"):
				// transformers has no from_json; the library has, and the template was written for it.
				require.NoError(t, err)
			case want.Raised != nil && jinjasOwnWords(*want.Raised):
				require.Error(t, err)
			case want.Raised != nil:
				requireRaised(t, err, *want.Raised)
			default:
				require.NoError(t, err)
				sum := sha256.Sum256([]byte(got))
				require.Equal(t, want.SHA256, hex.EncodeToString(sum[:]), "%d bytes, want %d", len(got), want.Bytes)
			}
		})
	}
}
