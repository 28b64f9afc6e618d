package tokenizer

import "strings"

// Patterns beside those that have a scanner.
const (
	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	patternO200K = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternPunctuation = `[\p{P}\$\+<=>\^~\|]+`
	patternFalcon      = "[\\p{P}\\$\\+<=>\\^~\\|`]+"
	patternNumbers     = `\p{N}+`
	patternThreeDigits = `[0-9][0-9][0-9]`
	patternUpTo3       = `\p{N}{1,3}`
	patternCJK         = `[一-龥぀-ゟ゠-ヿ]+`
	patternDeepSeekCJK = `[一-龥ࠀ-一\uAC00-\uD7FF]+`
	asciiMark          = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
	patternDeepSeek    = asciiMark + `[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternSpark       = asciiMark + `[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+`
	patternDeepSeekABC = `\s?[A-Za-z\u00B5` +
		`\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-` +
		`\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-` +
		`\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15` +
		`\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC` +
		`\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107` +
		`\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149` +
		`\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F` +
		`\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A` +
		"\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943]+"
	patternDeepSeekMarks = `\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+`
	patternBailing       = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	patternSeedCoder     = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternUfakzeka      = `[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternExaoneMoE     = contractions + `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`
	patternJais2         = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|` +
		`\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`
	patternBloom  = ` ?[^(\s|.,!?…。，、।۔،)]+`
	patternAfmoe  = `[一-鿿㐀-䶿\uF900-\uFAFF぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+`
	patternYoutu  = `[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+`
	patternLines  = `[^\n]+|[\n]+`
	patternChars  = `\S+`
	patternLayout = "([\\t\\n]|    |  )"
	patternMarks  = "[\\p{P}!-/:-@\\[-`{-~]"
)

// These two are o200k's pattern with single digits, and without Han in words.
var (
	patternYoutuWords = strings.Replace(patternO200K, `\p{N}{1,3}`, `\p{N}`, 1)
	patternKimi       = `\p{Han}+|` + strings.NewReplacer(
		`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, `(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])`,
		`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`, `(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])`,
		`[\r\n/]*`, `[\r\n]*`,
	).Replace(patternO200K)
)

func splits(patterns ...string) []splitter {
	var all []splitter
	for _, p := range patterns {
		all = append(all, splitter{pattern: p})
	}
	return all
}

func with(first splitter, patterns ...string) []splitter {
	return append([]splitter{first}, splits(patterns...)...)
}

// preTokenizers is the table of known names: those of llama.cpp. Files from before the key exists say nothing and mean
// "default".
var preTokenizers = func() map[string]preTokenizer {
	table := map[string]preTokenizer{}
	for _, k := range []struct {
		names string
		pre   preTokenizer
	}{
		{" default", preTokenizer{split: splits(patternPunctuation, patternGPT2, patternNumbers, patternThreeDigits)}},
		{"gpt-2 phi-2 gigachat exaone4 olmo trillion granite-docling mpt jais jina-es jina-de jina-v2-es jina-v2-de a.x-4.0 mellum " +
			"modern-bert jina-v1-en jina-v2-code roberta-bpe", preTokenizer{split: splits(patternGPT2)}},
		{"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", preTokenizer{split: with(eachDigit, patternGPT2)}},
		{"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 jina-v5-nano", preTokenizer{split: splits(patternLlama3), ignoreMerges: true, addBOS: true}},
		{"dbrx smaug-bpe", preTokenizer{split: splits(patternLlama3)}},
		{"glm4 chatglm-bpe", preTokenizer{split: splits(patternLlama3), ignoreMerges: true}},
		{"qwen2 deepseek-r1-qwen megrez kormo f2llmv2", preTokenizer{split: splits(patternQwen2), nfc: true}},
		{"stablelm2 hunyuan solar-open grok-2", preTokenizer{split: splits(patternQwen2)}},
		{"qwen35", preTokenizer{split: splits(patternQwen35), nfc: true}},
		{"gpt-4o llama4 kanana2 talkie minimax-m2", preTokenizer{split: splits(patternO200K)}},
		{"granite-embed-multi-97m", preTokenizer{split: splits(patternO200K), ignoreMerges: true}},
		{"tekken", preTokenizer{split: splits(patternTekken), ignoreMerges: true, addBOS: true}},
		{"minicpm5", preTokenizer{split: splits(patternUpTo3, patternMiniCPM), ignoreMerges: true}},
		{"deepseek-llm", preTokenizer{split: splits(`[\r\n]`, patternDeepSeekABC, patternDeepSeekMarks, `\s+\z`, patternDeepSeekCJK, patternNumbers)}},
		{"deepseek-coder", preTokenizer{split: splits(`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, patternDeepSeekCJK, `\p{N}`)}},
		{"deepseek-v3 hunyuan-dense joyai-llm hy_v4", preTokenizer{split: splits(patternUpTo3, patternCJK, patternDeepSeek)}},
		{"spark2_5", preTokenizer{split: splits(patternUpTo3, patternCJK, patternSpark, `\p{N}`)}},
		{"youtu", preTokenizer{split: splits(patternYoutu, patternYoutuWords), ignoreMerges: true}},
		{"falcon", preTokenizer{split: splits(patternFalcon, patternGPT2, patternThreeDigits)}},
		{"jais-2", preTokenizer{split: splits(patternJais2)}},
		{"poro-chat bloom gpt3-finnish", preTokenizer{split: splits(patternBloom)}},
		{"viking", preTokenizer{split: splits(patternBloom, `\p{N}`)}},
		{"chameleon", preTokenizer{split: splits(`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, patternLayout, `\p{N}`, patternMarks, patternGPT2), addBOS: true}},
		{"tiny_aya cohere2moe", preTokenizer{split: with(byThrees, patternO200K)}},
		{"superbpe", preTokenizer{split: []splitter{byThrees}}},
		{"kimi-k2", preTokenizer{split: splits(patternKimi)}},
		{"bailingmoe bailingmoe2 llada-moe", preTokenizer{split: splits(patternBailing)}},
		{"seed-coder", preTokenizer{split: splits(patternSeedCoder)}},
		{"ufakzeka", preTokenizer{split: splits(patternUfakzeka)}},
		{"afmoe", preTokenizer{split: with(byThrees, patternAfmoe, patternDeepSeek)}},
		{"laguna", preTokenizer{split: splits(patternLines, patternQwen2)}},
		{"exaone-moe", preTokenizer{split: splits(patternExaoneMoE)}},
		{"gemma4 granite-embed-multi-311m", preTokenizer{split: splits(patternLines), plain: true, wholeLines: true, addBOS: true}},
		{"whitespace", preTokenizer{split: splits(patternChars), plain: true, spaces: true}},
		{"sarvam-moe", preTokenizer{split: splits(patternLines), plain: true}},
	} {
		for name := range strings.SplitSeq(k.names, " ") {
			table[name] = k.pre
		}
	}
	return table
}()
