package reply

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/clademl/clade/core/chat/toolcall"
)

const offered = `[{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}, {"function": {"name": "g"}}]`

func tools(t require.TestingT) *toolcall.Tools {
	out, err := toolcall.NewTools([]byte(offered))
	require.NoError(t, err)
	return out
}

// write makes parts readable: <r:reasoning>, {call name args repairs}, text, and !problem behind the text it is about.
func write(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p.Reasoning != "":
			fmt.Fprintf(&b, "<r:%s>", p.Reasoning)
		case p.Call != nil:
			fmt.Fprintf(&b, "{%s %s %s}", p.Call.Name, p.Call.Arguments, strings.Join(p.Call.Repairs, ","))
		default:
			b.WriteString(p.Text)
		}
		if p.Problem != "" {
			b.WriteString("!problem")
		}
	}
	return b.String()
}

// run pushes pieces; |X| in the text is a token X where the format has it as one.
func run(f Format, inside bool, pieces []Piece) []Part {
	r := NewReader(f, inside)
	var out []Part
	for _, p := range pieces {
		out = append(out, r.Push(p)...)
	}
	return join(append(out, r.End()...))
}

// pieces cuts a text into its tokens and texts.
func pieces(f Format, text string) []Piece {
	var out []Piece
	for text != "" {
		at, mark := len(text), ""
		for m := range f.Tokens {
			if k := strings.Index(text, m); k >= 0 && k < at {
				at, mark = k, m
			}
		}
		if at > 0 {
			out = append(out, Piece{Text: text[:at]})
		}
		if mark != "" {
			out = append(out, Piece{Token: mark})
		}
		text = text[at+len(mark):]
	}
	return out
}

func formats(t require.TestingT) map[string]Format {
	think, gemma, bracket := ThinkTags, GemmaChannel, BracketTags
	set := func(marks ...string) map[string]bool {
		out := map[string]bool{}
		for _, m := range marks {
			out[m] = true
		}
		return out
	}
	return map[string]Format{
		"qwen":       {Reasoning: &think, Calls: toolcall.Detect("<tool_call><function=", "", ""), Tools: tools(t)},
		"hermes":     {Reasoning: &think, Calls: toolcall.Detect("<tool_call>", "", ""), Tools: tools(t)},
		"gemma":      {Reasoning: &gemma, Calls: []*toolcall.Syntax{toolcall.Gemma}, Tools: tools(t), Tokens: set("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", `<|"|>`)},
		"mistral":    {Reasoning: &bracket, Calls: []*toolcall.Syntax{toolcall.Mistral}, Tools: tools(t), Tokens: set("[TOOL_CALLS]", "[THINK]", "[/THINK]")},
		"minicpm5":   {Reasoning: &think, Calls: []*toolcall.Syntax{toolcall.Attributes}, Tools: tools(t)},
		"llama":      {Calls: toolcall.Detect("<|python_tag|>", "", ""), Tools: tools(t)},
		"pythonic":   {Calls: toolcall.Detect("[func_name1(params_name1", "", ""), Tools: tools(t)},
		"no tools":   {Reasoning: &think},
		"plain text": {},
	}
}

var replies = []struct{ format, reply, want string }{
	{"qwen", "<think>\nhm\n</think>\n\nHi <b>", "<r:hm>Hi <b>"},
	{"qwen", "  plain \n", "  plain \n"},
	{"qwen", "<think>a</think>b<think>c</think> d", "<r:a>b<r:c>d"},
	{"qwen", "<think>never closed ", "<r:never closed>"},
	{"qwen", "<think>\n\n</think>\n\nanswer", "answer"},
	{"qwen", "a < b <thin <tool", "a < b <thin <tool"},
	{"qwen", "Look:\n\n<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>\n", `Look:{f {"a":"x"} }`},
	{"qwen", "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call> done", `{f {} }{g {} }done`},
	{"qwen", "<tool_call>\n<function=f><parameter=a>say </tool_call> now</parameter></function>\n</tool_call>", `{f {"a":"say </tool_call> now"} }`},
	{"qwen", "<function=g></function> tail", "{g {} }tail"},
	{"qwen", "x <tool_call>nonsense here</tool_call> y", "x <tool_call>nonsense here</tool_call>!problem y"},
	{"qwen", "<tool_call>{\"name\":\"rm\"}</tool_call>", "<tool_call>{\"name\":\"rm\"}</tool_call>!problem"},
	{"qwen", "<tool_call>{\"name\":\"f\",\"arg", "<tool_call>{\"name\":\"f\",\"arg!problem"},
	{"qwen", "<tool_call>{\"name\":\"f\"}", "{f {} no closing marker}"},
	{"qwen", "<tool_call>{\"name\":\"f\"}\n<tool_call>{\"name\":\"g\"}</tool_call>", "{f {} no closing marker}{g {} }"},
	{"qwen", "<tool_call>{\"name\":\"f\",}</tool_call>", "{f {} trailing commas}"},
	{"qwen", "<think>call <tool_call>{}</tool_call></think>ok", "<r:call <tool_call>{}</tool_call>>ok"},
	{"hermes", "{\"name\": \"f\", \"arguments\": {\"a\": \"}\"}}", `{f {"a":"}"} }`},
	{"hermes", "{\"answer\": 1, \"name\": \"f\"} rest", "{\"answer\": 1, \"name\": \"f\"} rest"},
	{"hermes", "{\"name\": \"Bob\", \"arguments\": {}}", "{\"name\": \"Bob\", \"arguments\": {}}!problem"},
	{"hermes", "{\"name\": \"Bob\"", "{\"name\": \"Bob\""},
	{"hermes", "{x} no", "{x} no"},
	{"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\"}}</tool_call>", `{f {"a":"</tool_call>"} }`},
	{"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"cut</tool_call> and text", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"cut</tool_call>!problem and text"},
	{"gemma", "<|channel>thought\nhm\n<channel|>Hi", "<r:hm>Hi"},
	{"gemma", "<|channel>final\ntext<channel|>", "final\ntext"},
	{"gemma", "<|channel>thought\n<channel|>x", "x"},
	{"gemma", `Let me. <|tool_call>call:f{a:<|"|>x<channel|>}<|"|>}<tool_call|><|tool_call>call:g{}<tool_call|>`, `Let me.{f {"a":"x<channel|>}"} }{g {} }`},
	{"gemma", `<|tool_call>call:f{a:<tool_call|>b`, `<|tool_call>call:f{a:<tool_call|>!problemb`},
	{"gemma", `<|tool_call>call:g{}<|tool_call>call:g{}<tool_call|>`, `{g {} no closing marker}{g {} }`},
	{"mistral", "[THINK]hm[/THINK]ok [TOOL_CALLS]f[ARGS]{\"a\": \"]}\"}[TOOL_CALLS]g[ARGS]{}", `<r:hm>ok{f {"a":"]}"} }{g {} }`},
	{"mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}] after", "{f {} }after"},
	{"mistral", "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[ARGS]!problem"},
	{"mistral", "[TOOL_CALLS]" + strings.Repeat("w ", 300), "[TOOL_CALLS]" + strings.Repeat("w ", 256) + "!problem" + strings.Repeat("w ", 44)},
	{"minicpm5", "Ok\n<function name=\"f\"><param name=\"a\"><![CDATA[1 < 2 </function> ]]></param></function>\n<function name=\"g\"></function>", `Ok{f {"a":"1 < 2 </function> "} }{g {} }`},
	{"llama", "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": \"x\"}}", `{f {"a":"x"} }`},
	{"llama", "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}", `{f {} }; {"name": "g", "parameters": {}}`},
	{"llama", "<|python_tag|>f.call(a='x')", `<|python_tag|>f.call(a='x')!problem`},
	{"pythonic", "[f(a='[x]'), g()]", `{f {"a":"[x]"} }{g {} }`},
	{"pythonic", "[1] is a list", "[1] is a list"},
	{"pythonic", "[see](http://x)", "[see](http://x)"},
	{"no tools", "<think>x</think>{\"name\": \"f\"}<tool_call>", "<r:x>{\"name\": \"f\"}<tool_call>"},
	{"plain text", "<think>x</think> [TOOL_CALLS]", "<think>x</think> [TOOL_CALLS]"},
}

func TestReplyIsSplit(t *testing.T) {
	all := formats(t)
	for _, c := range replies {
		t.Run(c.format+"/"+c.reply[:min(len(c.reply), 60)], func(t *testing.T) {
			f := all[c.format]
			require.Equal(t, c.want, write(run(f, false, pieces(f, c.reply))))
		})
	}
}

func TestPromptThatOpensAThoughtBeginsInside(t *testing.T) {
	f := formats(t)["qwen"]
	require.True(t, f.Reasoning.Inside("<|im_start|>assistant\n<think>\n"))
	require.False(t, f.Reasoning.Inside("<think>\n\n</think>\n\n"))
	require.False(t, f.Reasoning.Inside("user: what is <think>?\nassistant:"), "a message that names the marker opens nothing")
	require.False(t, (*Reasoning)(nil).Inside("<think>"))
	require.Equal(t, "<r:hm>ok", write(run(f, true, pieces(f, "hm\n</think>\n\nok"))))
	g := formats(t)["gemma"]
	require.Equal(t, "<r:hm>ok", write(run(g, true, pieces(g, "hm\n<channel|>ok"))))
}

func TestTextThatSpellsATokenIsText(t *testing.T) {
	f := formats(t)["gemma"]
	out := run(f, false, []Piece{{Text: "<|channel>thought\nx<channel|> <|tool_call>call:g{}<tool_call|>"}})
	require.Equal(t, "<|channel>thought\nx<channel|> <|tool_call>call:g{}<tool_call|>", write(out))
}

// cut cuts texts anywhere; tokens stay whole.
func cut(t *rapid.T, in []Piece) []Piece {
	var out []Piece
	for _, p := range in {
		for rest := p.Text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			out = append(out, Piece{Text: rest[:n]})
			rest = rest[n:]
		}
		if p.Token != "" {
			out = append(out, Piece{Token: p.Token})
		}
	}
	return out
}

func TestPartsDoNotDependOnHowTheReplyIsCut(t *testing.T) {
	all := formats(t)
	for _, c := range replies {
		f := all[c.format]
		in := pieces(f, c.reply)
		var bytewise []Piece
		for _, p := range in {
			for i := range len(p.Text) {
				bytewise = append(bytewise, Piece{Text: p.Text[i : i+1]})
			}
			if p.Token != "" {
				bytewise = append(bytewise, p)
			}
		}
		require.Equal(t, c.want, write(run(f, false, bytewise)), c.reply)
	}
	words := []string{
		"<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "<function=", "</function>", "<parameter=a>", "</parameter>",
		`{"name": "f"`, `, "arguments": {"a": "x"}}`, "{", "}", "[", "]", `"`, "\n", " ", "x", "f", "(", ")", "call:f{", `<|"|>`, "<|channel>", "thought\n",
		"<channel|>", "<|tool_call>", "<tool_call|>", "[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]", `<function name="f">`, `<param name="a">`, "</param>",
		"<![CDATA[", "]]>", "<|python_tag|>", "f(a='x')", "\\", "'", "<", "é",
	}
	rapid.Check(t, func(t *rapid.T) {
		f := all[rapid.SampledFrom([]string{"qwen", "hermes", "gemma", "mistral", "minicpm5", "llama", "pythonic"}).Draw(t, "format")]
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 0, 14).Draw(t, "words"), "")
		inside := rapid.Bool().Draw(t, "inside")
		whole := pieces(f, text)
		require.Equal(t, write(run(f, inside, whole)), write(run(f, inside, cut(t, whole))), text)
	})
}

func TestWithoutCallsTheAnswerIsTheTextByteForByte(t *testing.T) {
	f := formats(t)["hermes"]
	f.Reasoning = nil
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ \n<>{}"a/:_tolcaf\[\]]{0,40}`).Draw(t, "text")
		var got strings.Builder
		for _, p := range run(f, false, cut(t, []Piece{{Text: text}})) {
			require.Nil(t, p.Call)
			got.WriteString(p.Text)
		}
		require.Equal(t, text, got.String())
	})
}

// FuzzReply holds that no reply panics, and that what comes out can be sent at every step.
func FuzzReply(f *testing.F) {
	for _, c := range replies {
		f.Add(c.format, c.reply, uint8(3))
	}
	all := formats(f)
	f.Fuzz(func(t *testing.T, name, text string, step uint8) {
		format, ok := all[name]
		if !ok {
			return
		}
		r := NewReader(format, false)
		var parts []Part
		for rest := text; rest != ""; {
			n := min(int(step%7)+1, len(rest))
			parts = append(parts, r.Push(Piece{Text: rest[:n]})...)
			rest = rest[n:]
		}
		for _, p := range append(parts, r.End()...) {
			if p.Call != nil && !json.Valid([]byte(p.Call.Arguments)) {
				t.Fatalf("arguments %q", p.Call.Arguments)
			}
		}
	})
}
