package tiny

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Scripted is a checkpoint of the graph qwen3, qwen3-moe, qwen3.5 or qwen3.5-moe that says what a script has, token by token, with a
// tokenizer and a chat template. The tokens of a line follow one another: behind the first, which a prompt ends with, comes the second,
// and so on; the last of all is that of a turn's end. As a token has one successor, lines that share one go on alike. Texts of one byte
// are the tokens of bytes; two line ends are one token; any other text is a token of its own, one in angle brackets an added one. Where the
// graph has a head, it says the same.
func Scripted(graph, template, end string, lines ...[]string) Checkpoint {
	v := newVocabulary(end, lines)
	next := map[int]int{}
	for _, line := range lines {
		for i, text := range line[1:] {
			next[v.id(line[i])] = v.id(text)
		}
	}
	change := func(model []Tensor) {
		succeed(model, 0, func(id, _ int) int {
			if to, ok := next[id]; ok {
				return to
			}
			return -1
		})
	}
	more := map[string]any{
		"vocab_size": v.size(), "max_position_embeddings": 16384, "tie_word_embeddings": false, "eos_token_id": v.id(end), "bos_token_id": nil,
	}
	var c Checkpoint
	switch graph {
	case "qwen3.5":
		c = qwen35Recipe{"scripted-" + graph, more, hfLayout(true), safetensors("F32"), false, change}.checkpoint()
	case "qwen3.5-moe":
		c = qwen35Recipe{"scripted-" + graph, qwen35MoE(more), hfExperts(hfLayout(true)), safetensors("F32"), false, change}.checkpoint()
	case "qwen3":
		c = qwenCheckpoints(nil, qwen3Config, []qwenRecipe{{"scripted-" + graph, more, safetensors("F32")}})[0]
		change(c.Tensors)
	case "qwen3-moe":
		c = qwenCheckpoints(nil, qwen3MoEConfig, []qwenRecipe{{"scripted-" + graph, more, expertByExpert("F32")}})[0]
		change(c.Tensors)
	}
	store := c.store
	c.store = func(c Checkpoint, dir string) error {
		if err := store(c, dir); err != nil {
			return err
		}
		if err := writeJSON(filepath.Join(dir, "tokenizer.json"), v.tokenizer()); err != nil {
			return err
		}
		return writeJSON(filepath.Join(dir, "tokenizer_config.json"), map[string]any{"chat_template": template, "eos_token": end})
	}
	return c
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// lineEnds is the one token of the vocabulary that is merged.
const lineEnds = "\n\n"

// vocabulary is the bytes and the texts of a script.
type vocabulary struct {
	texts []string // from 256 on
	ids   map[string]int
}

func newVocabulary(end string, lines [][]string) *vocabulary {
	v := &vocabulary{ids: map[string]int{}}
	all := append([]string{lineEnds, end}, slices.Concat(lines...)...)
	for _, later := range []bool{false, true} { // added tokens have the ids behind the others
		for _, text := range all {
			if added(text) == later {
				v.add(text)
			}
		}
	}
	return v
}

func added(text string) bool { return strings.HasPrefix(text, "<") && strings.HasSuffix(text, ">") }

func (v *vocabulary) add(text string) {
	if _, known := v.ids[text]; !known && len(text) > 1 {
		v.ids[text] = 256 + len(v.texts)
		v.texts = append(v.texts, text)
	}
}

func (v *vocabulary) id(text string) int {
	if len(text) == 1 {
		return int(text[0])
	}
	return v.ids[text]
}

func (v *vocabulary) size() int { return 256 + len(v.texts) }

// tokenizer is a byte-level tokenizer.json. Without a merge, a text of the script is read byte by byte and only ever written as one.
func (v *vocabulary) tokenizer() map[string]any {
	out := byteTokenizer(nil)
	alphabet := byteAlphabet()
	spell := func(text string) string {
		var b strings.Builder
		for i := range len(text) {
			b.WriteRune(alphabet[text[i]])
		}
		return b.String()
	}
	vocab, tokens := map[string]int{}, []any{}
	for b, r := range alphabet {
		vocab[string(r)] = b
	}
	for i, text := range v.texts {
		if !added(text) {
			vocab[spell(text)] = 256 + i
			continue
		}
		tokens = append(tokens, map[string]any{
			"id": 256 + i, "content": text, "special": strings.HasPrefix(text, "<|"), "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false,
		})
	}
	half := spell(lineEnds[:1])
	out["added_tokens"] = tokens
	model := out["model"].(map[string]any)
	model["vocab"], model["merges"] = vocab, []string{fmt.Sprint(half, " ", half)}
	return out
}
