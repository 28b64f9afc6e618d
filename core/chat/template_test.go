package chat

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

var oneMessage = []map[string]any{{"role": "user", "content": "q"}}

func renderText(t *testing.T, src string) (string, error) {
	t.Helper()
	tpl, err := NewTemplate(src, nil)
	require.NoError(t, err)
	return tpl.Render(oneMessage, RenderOptions{})
}

func TestHostileTemplateEndsWithAnError(t *testing.T) {
	for name, c := range map[string]struct{ src, want string }{
		"nested loops":         {`{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}`, "loop iterations"},
		"recursion":            {`{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}`, "calls itself without end"},
		"recursion of two":     {`{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}`, ""},
		"recursion by caller":  {`{% macro a() %}{% call a() %}{{ caller() }}{% endcall %}{% endmacro %}{{ a() }}`, "calls itself without end"},
		"huge range":           {`{{ range(1000000000000) }}`, "range is longer"},
		"a value in itself":    {`{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}`, "nested too deep"},
		"json of itself":       {`{% set ns = namespace() %}{% set ns.a = ns %}{{ ns | tojson }}`, "nested more than"},
		"negative repeat":      {`{{ 'a' * -1 }}`, "cannot render"},
		"library panics":       {`{{ messages[0].content.split('') [10:2:-0] }}`, ""},
		"inner loop in macros": {`{% macro m() %}{% for a in range(99999) %}{% endfor %}{% endmacro %}{% for a in range(99999) %}{{ m() }}{% endfor %}`, "loop iterations"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := renderText(t, c.src)
			require.Less(t, time.Since(start), maxRender)
			if c.want == "" {
				return // any end will do
			}
			require.ErrorContains(t, err, c.want)
			require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestDeepBracketsAndLongSourceAreRefused(t *testing.T) {
	for _, src := range []string{
		"{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}",
		"{{ " + strings.Repeat("[", 100_000),
		strings.Repeat("x", maxSource+1),
	} {
		_, err := NewTemplate(src, nil)
		require.Error(t, err)
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
	}
}

func TestBrokenTemplateIsRefusedInOneLine(t *testing.T) {
	for _, src := range []string{
		"{{ 'a }}", "{% if x %}", "{{ x", "{# x", "{% raw %}x", "{% nope %}", "{{ ) }}", "{% for x %}{% endfor %}",
	} {
		_, err := NewTemplate(src, nil)
		require.Error(t, err, src)
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestTemplateRaisesItsOwnText(t *testing.T) {
	_, err := renderText(t, `{{ raise_exception('Only user\nand assistant roles!') }}`)
	requireRaised(t, err, "Only user\nand assistant roles!")
}

func TestSpecialTokensAndKwargsReachTheTemplate(t *testing.T) {
	tpl, err := NewTemplate("{{ bos_token }}|{{ enable_thinking }}|{{ tools is none }}|{{ add_generation_prompt }}", map[string]string{"bos_token": "<s>"})
	require.NoError(t, err)
	got, err := tpl.Render(oneMessage, RenderOptions{Kwargs: map[string]any{"enable_thinking": false}})
	require.NoError(t, err)
	require.Equal(t, "<s>|False|True|False", got)
}

func TestToolsKeepTheClientsOrderOfKeys(t *testing.T) {
	tpl, err := NewTemplate("{{ tools | tojson }}", nil)
	require.NoError(t, err)
	const tools = `[{"function": {"parameters": {"z": 1, "a": 2}, "name": "f"}, "type": "function"}]`
	got, err := tpl.Render(oneMessage, RenderOptions{ToolsJSON: []byte(tools)})
	require.NoError(t, err)
	require.Equal(t, tools, got)

	parsed, err := ParseTools([]byte(tools))
	require.NoError(t, err)
	got, err = tpl.Render(oneMessage, RenderOptions{Tools: parsed})
	require.NoError(t, err)
	require.Equal(t, `[{"type": "function", "function": {"parameters": {"z": 1, "a": 2}, "name": "f"}}]`, got)
}

func TestTemplateServesConcurrentRequests(t *testing.T) {
	tpl, err := NewTemplate("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", nil)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			got, err := tpl.Render([]map[string]any{{"role": "a"}, {"role": "b"}}, RenderOptions{})
			require.NoError(t, err)
			require.Equal(t, "2", got)
		})
	}
	wg.Wait()
}

func TestValueThatIsNotJSONIsRefused(t *testing.T) {
	tpl, err := NewTemplate("x", nil)
	require.NoError(t, err)
	_, err = tpl.Render([]map[string]any{{"role": make(chan int)}}, RenderOptions{})
	require.ErrorContains(t, err, "chan int")
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"{% for m in messages %}{{ m.role ~ m['content'] }}{% endfor %}", "{%- if a -%} b {%+ endif %}", "{% raw %}{{{% endraw %}",
		"{{ {'a': {'b': [1, 2.5e3]}} | tojson(indent=2) }}", "{# c #}\n{% macro m(x='y') %}{{ x }}{% endmacro %}{{ m() }}",
		`{{ "\x41\u00e9\101" }}`, "{{ messages[::-1] }}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if strings.Contains(src, "*") || len(src) > 512 {
			return // one expression can ask for any amount of memory; see limits.go
		}
		tpl, err := NewTemplate(src, nil)
		if err != nil {
			return
		}
		_, _ = tpl.Render(oneMessage, RenderOptions{})
	})
}
