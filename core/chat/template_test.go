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
		"huge text":            {`{{ 'a' * 1000000000 }}`, "a value of more than"},
		"huge list":            {`{{ [1] * 1000000000 }}`, "a value of more than"},
		"doubled text":         {`{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}`, "a value of more than"},
		"doubled list":         {`{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}`, "a value of more than"},
		"square by replace":    {`{% set a = 'a' * 100000 %}{{ a | replace('a', a) | length }}`, "a value of more than"},
		"square by join":       {`{% set a = 'a' * 100000 %}{{ a | join(a) | length }}`, "too long"},
		"wide indent":          {`{{ 'a' | indent(10000000000) }}`, "too wide"},
		"wide text":            {`{{ 'a'.rjust(10000000000) }}`, "too wide"},
		"batch filled":         {`{{ [1] | batch(10000000000, 0) }}`, "batch wants"},
		"text made a list":     {`{{ ('a' * 60000000) | list | length }}`, "a value of more than"},
		"many values held":     {`{% set ns = namespace(l=[]) %}{% set b = 'a' * 60000000 %}{% for i in range(10000) %}{% set ns.l = ns.l + [b ~ i] %}{% endfor %}`, "holds more than"},
		"long literal in loop": {`{% for i in range(99999) %}` + strings.Repeat("long text ", 10000) + `{% endfor %}`, "writes more than"},
		"library panics":       {`{{ messages[0].content.split('') [10:2:-0] }}`, ""},
		"inner loop in macros": {`{% macro m() %}{% for a in range(99999) %}{% endfor %}{% endmacro %}{% for a in range(99999) %}{{ m() }}{% endfor %}`, "loop iterations"},
	} {
		t.Run(name, func(t *testing.T) {
			start, before := time.Now(), heapBytes()
			_, err := renderText(t, c.src)
			require.Less(t, time.Since(start), maxRender)
			require.Less(t, heapBytes(), before+2*maxHeld)
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

func TestLongChainsAreRefusedNotFollowedDown(t *testing.T) {
	for _, src := range []string{
		"{{ a" + strings.Repeat(" + a", 50_000) + " }}", "{{ a" + strings.Repeat(".a", 50_000) + " }}", "{{ " + strings.Repeat("not ", 50_000) + "a }}",
		"{{ " + strings.Repeat("-", 50_000) + "1 }}", "{{ a" + strings.Repeat(" and a", 40_000) + " }}", "{{ a" + strings.Repeat("|string", 30_000) + " }}",
		"{{ a" + strings.Repeat(" if a else a", 20_000) + " }}", "{{ " + strings.Repeat("'a'", 50_000) + " }}",
	} {
		_, err := NewTemplate(src, nil)
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err), "%.20s", src)
	}
}

func TestTemplateRaisesItsOwnTextWithTheLine(t *testing.T) {
	_, err := renderText(t, "{# 1 #}\n{%- if true %}\n  {{- raise_exception('Only user!') }}\n{% endif %}")
	requireRaised(t, err, "Only user!")
	require.EqualError(t, err, "chat template, line 3: Only user!")
}

func TestBrokenTemplateNamesItsLine(t *testing.T) {
	_, err := NewTemplate("a\nb\n{{ x | }}", nil)
	require.ErrorContains(t, err, "line 3: an expression ends too early: want the name of a filter")
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
		if len(src) > 512 {
			return
		}
		tpl, err := NewTemplate(src, nil)
		if err != nil {
			return
		}
		_, _ = tpl.Render(oneMessage, RenderOptions{})
	})
}
