package tokenizer

// preTokenizer is what a name in tokenizer.ggml.pre stands for: the pattern, and what the models behind the name do
// besides that GGUF does not say. Sources: the tokenizer.json of those models, and llama.cpp's table of names.
type preTokenizer struct {
	split        []splitter // each behind the one before
	ignoreMerges bool
	addBOS       bool
	nfc          bool
}

// splitter is a pattern, or digits.
type splitter struct {
	pattern string
	digits  bool // Digits(individual_digits)
}

func (p preTokenizer) steps() ([]step, error) {
	var steps []step
	for _, s := range p.split {
		if s.digits {
			steps = append(steps, digitsStep{individual: true})
			continue
		}
		if sc, ok := scanners[s.pattern]; ok {
			steps = append(steps, scanStep{sc})
			continue
		}
		find, err := newRegex(ggufKey("pre"), s.pattern)
		if err != nil {
			return nil, err
		}
		steps = append(steps, splitStep{find: find, do: isolated})
	}
	return append(steps, byteChars{}), nil
}

// Patterns without a scanner of their own.
const (
	patternO200K = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternPunctuation = `[\p{P}\$\+<=>\^~\|]+`
	patternNumbers     = `\p{N}+`
	patternThreeDigits = `[0-9][0-9][0-9]`
)

var (
	preGPT2   = preTokenizer{split: []splitter{{pattern: patternGPT2}}}
	preSmolLM = preTokenizer{split: []splitter{{digits: true}, {pattern: patternGPT2}}}
	preLlama3 = preTokenizer{split: []splitter{{pattern: patternLlama3}}, ignoreMerges: true, addBOS: true}
	preQwen2  = preTokenizer{split: []splitter{{pattern: patternQwen2}}, nfc: true}
	preQwen35 = preTokenizer{split: []splitter{{pattern: patternQwen35}}, nfc: true}
	preGLM4   = preTokenizer{split: []splitter{{pattern: patternLlama3}}, ignoreMerges: true}
	preO200K  = preTokenizer{split: []splitter{{pattern: patternO200K}}}
	preTekken = preTokenizer{split: []splitter{{pattern: patternTekken}}, ignoreMerges: true, addBOS: true}
	preOld    = preTokenizer{split: []splitter{
		{pattern: patternPunctuation}, {pattern: patternGPT2}, {pattern: patternNumbers}, {pattern: patternThreeDigits},
	}}
	preMiniCPM5 = preTokenizer{
		split: []splitter{{pattern: `\p{N}{1,3}`}, {pattern: patternMiniCPM}}, ignoreMerges: true,
	}
)

// preTokenizers is the table of known names; files from before the key exists say nothing and mean "default".
var preTokenizers = map[string]preTokenizer{
	"":        preOld,
	"default": preOld,

	"gpt-2":           preGPT2,
	"phi-2":           preGPT2,
	"gigachat":        preGPT2,
	"exaone4":         preGPT2,
	"olmo":            preGPT2,
	"trillion":        preGPT2,
	"granite-docling": preGPT2,
	"mpt":             preGPT2,

	"smollm":    preSmolLM,
	"starcoder": preSmolLM,
	"refact":    preSmolLM,
	"command-r": preSmolLM,
	"codeshell": preSmolLM,
	"exaone":    preSmolLM,

	"llama-bpe": preLlama3,
	"llama3":    preLlama3,
	"llama-v3":  preLlama3,
	"falcon3":   preLlama3,
	"falcon-h1": preLlama3,
	"pixtral":   preLlama3,
	"lfm2":      preLlama3,

	"glm4":        preGLM4,
	"chatglm-bpe": preGLM4,

	"qwen2":            preQwen2,
	"deepseek-r1-qwen": preQwen2,
	"megrez":           preQwen2,
	"qwen35":           preQwen35,

	"gpt-4o":   preO200K,
	"llama4":   preO200K,
	"tekken":   preTekken,
	"minicpm5": preMiniCPM5,
}
