package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/clademl/clade/sdk/contract"
)

// GGUFVocab is what GGUF metadata (tokenizer.ggml.*) says of a tokenizer. Ids are -1 where the file names none.
type GGUFVocab struct {
	// Model is tokenizer.ggml.model: gpt2, gemma4, whitespace (BPE), llama (SentencePiece's BPE), bert (WordPiece), t5 (Unigram).
	Model    string
	Pre      string // tokenizer.ggml.pre names the split pattern of BPE
	Tokens   []string
	Types    []int64   // one of the type constants each
	Scores   []float64 // of llama and t5
	Merges   []string  // of BPE
	Charsmap []byte    // of t5: SentencePiece's table of replacements

	BOS, EOS, EOT, EOM, UNK, PAD, SEP, CLS, MASK int64

	AddBOS, AddEOS                    *bool // nil: what the model or the pre-tokenizer's models do
	AddSpacePrefix, RemoveExtraSpaces *bool
	Lowercase, StripAccents           *bool // of bert and whitespace

	ChatTemplate *string
	// ToolTemplate is the one named tool_use.
	ToolTemplate *string
}

// Token types of GGUF.
const (
	typeNormal      = 1
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
	typeUnused      = 5
	typeByte        = 6
)

const ggufSubject = "GGUF metadata"

func ggufKey(key string) string { return ggufSubject + ": tokenizer.ggml." + key }

// FromGGUF builds a Tokenizer from GGUF metadata. The split pattern and the normalizer of BPE are those of the models that the
// pre-tokenizer's name stands for; a name that is not known is refused.
func FromGGUF(v GGUFVocab) (*Tokenizer, error) {
	b := &builder{}
	var ends modelEnds
	var err error
	switch v.Model {
	case "gpt2", "gemma4", "whitespace":
		ends, err = v.bpe(b)
	case "llama":
		ends, err = modelEnds{bos: true}, v.spm(b)
	case "bert":
		ends, err = modelEnds{bos: true, sep: true, fixed: true}, v.wpm(b)
	case "t5":
		ends, err = modelEnds{eos: true}, v.ugm(b)
	default:
		return nil, unsupported(ggufKey("model"), "the tokenizer model %q is not implemented; gpt2, gemma4, whitespace, llama, bert and t5 are", v.Model)
	}
	if err != nil {
		return nil, err
	}
	if err := v.addedTokens(b); err != nil {
		return nil, err
	}
	cfg, err := v.config(b, ends)
	if err != nil {
		return nil, err
	}
	t, err := b.finish(cfg)
	if err != nil {
		return nil, err
	}
	t.digest = v.digest()
	return t, nil
}

// modelEnds is what goes around a text unless the file says otherwise, which it cannot where fixed is set: llama.cpp does not
// read the flags of such models.
type modelEnds struct{ bos, eos, sep, fixed bool }

// bpe builds byte-level BPE and the kinds that spell a space ▁.
func (v *GGUFVocab) bpe(b *builder) (modelEnds, error) {
	name := v.Pre
	if v.Model == "gemma4" {
		name = "gemma4"
	}
	pre, ok := preTokenizers[name]
	if !ok {
		return modelEnds{}, contract.Errorf(contract.UnsupportedModel, ggufKey("pre"),
			"the pre-tokenizer %q is not known", v.Pre).WithNext("convert the model from its safetensors files, which carry tokenizer.json")
	}
	voc, err := v.vocabulary()
	if err != nil {
		return modelEnds{}, err
	}
	m := &bpe{vocab: voc, unk: -1, ignoreMerges: pre.ignoreMerges}
	if err := v.readMerges(m); err != nil {
		return modelEnds{}, err
	}
	b.vocab, b.model = voc, m
	if pre.nfc {
		b.normalizer = unicodeForms["NFC"]
	}
	b.decoder = []stageMaker{func() stage { return &joinBytes{} }}
	switch {
	case pre.plain && pre.spaces:
		m.byteFallback = true
		b.decoder = []stageMaker{func() stage { return &fallbackBytes{} }}
	case pre.plain:
		m.byteFallback, m.wholeLines = true, pre.wholeLines
		b.normalizer = replace{find: literal(" "), content: spmSpace}
		b.decoder = sentencePieceDecoder(false)
	}
	if b.steps, err = pre.steps(); err != nil {
		return modelEnds{}, err
	}
	if v.Model == "whitespace" {
		b.steps = append([]step{fields{}}, b.steps...)
		if choose(v.Lowercase, name != "whitespace") {
			b.normalizer = lowercase{}
		}
	}
	return modelEnds{bos: pre.addBOS}, nil
}

func (v *GGUFVocab) readMerges(m *bpe) error {
	if len(v.Merges) > maxMerges {
		return corrupt(ggufKey("merges"), "has %d merges, more than the limit of %d", len(v.Merges), maxMerges)
	}
	pairs := make([][2]string, len(v.Merges))
	for i, line := range v.Merges {
		var err error
		if pairs[i], err = splitMerge(line); err != nil {
			return corrupt(fmt.Sprintf("%s[%d]", ggufKey("merges"), i), "%w", err)
		}
	}
	return m.setMerges(pairs, ggufKey("merges"))
}

// addedTokens makes control and unknown tokens special added tokens, user-defined ones plain added tokens.
func (v *GGUFVocab) addedTokens(b *builder) error {
	for id, kind := range v.Types {
		if kind != typeControl && kind != typeUserDefined && kind != typeUnknown {
			continue
		}
		e := addedEntry{Content: validText(v.Tokens[id]), Special: kind != typeUserDefined}
		if err := b.addToken(fmt.Sprintf("%s[%d]", ggufKey("tokens"), id), e, int64(id)); err != nil {
			return err
		}
	}
	return nil
}

// config resolves the named ids and what goes around a text.
func (v *GGUFVocab) config(b *builder, ends modelEnds) (*config, error) {
	cfg := &config{specials: map[string]string{}}
	for _, n := range []struct {
		key, name string
		id        int64
		ends      bool
	}{
		{"bos_token_id", "bos_token", v.BOS, false},
		{"eos_token_id", "eos_token", v.EOS, true},
		{"eot_token_id", "", v.EOT, true},
		{"eom_token_id", "", v.EOM, true},
		{"unknown_token_id", "unk_token", v.UNK, false},
		{"padding_token_id", "pad_token", v.PAD, false},
		{"seperator_token_id", "sep_token", v.SEP, false},
		{"cls_token_id", "cls_token", v.CLS, false},
		{"mask_token_id", "mask_token", v.MASK, false},
	} {
		if n.id < 0 {
			continue
		}
		if !b.vocab.has(n.id) {
			return nil, corrupt(ggufKey(n.key), "the id %d has no token", n.id)
		}
		if n.name != "" {
			cfg.specials[n.name] = b.vocab.tokens[n.id]
		}
		if n.ends {
			cfg.eosIDs = append(cfg.eosIDs, int32(n.id))
		}
	}
	flag := func(said *bool, usual bool) bool { return usual && ends.fixed || !ends.fixed && choose(said, usual) }
	for _, end := range []struct {
		add     bool
		flag    string
		key     string
		id      int64
		outside *[]int32
	}{
		{flag(v.AddBOS, ends.bos), "add_bos_token", "bos_token_id", v.BOS, &b.prefix},
		{flag(v.AddEOS, ends.eos), "add_eos_token", "eos_token_id", v.EOS, &b.suffix},
		{ends.sep, "model", "seperator_token_id", v.SEP, &b.suffix},
	} {
		if !end.add {
			continue
		}
		if end.id < 0 {
			return nil, corrupt(ggufKey(end.flag), "asks for the token of %s, which is not there", end.key)
		}
		*end.outside = append(*end.outside, int32(end.id))
	}
	if v.ChatTemplate != nil {
		cfg.chatTemplate, cfg.hasTemplate = *v.ChatTemplate, true
	}
	if v.ToolTemplate != nil {
		cfg.toolTemplate = *v.ToolTemplate
	}
	return cfg, nil
}

func choose(v *bool, otherwise bool) bool {
	if v != nil {
		return *v
	}
	return otherwise
}

func (v *GGUFVocab) digest() string {
	list := func(items []string) []byte {
		var b []byte
		for _, s := range items {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
		return b
	}
	var kinds []byte
	for _, k := range v.Types {
		kinds = binary.AppendVarint(kinds, k)
	}
	var facts []byte
	for _, id := range []int64{v.BOS, v.EOS, v.EOT, v.EOM, v.UNK, v.PAD, v.SEP, v.CLS, v.MASK} {
		facts = binary.AppendVarint(facts, id)
	}
	for _, score := range v.Scores {
		facts = binary.LittleEndian.AppendUint64(facts, math.Float64bits(score))
	}
	for _, flag := range []*bool{v.AddBOS, v.AddEOS, v.AddSpacePrefix, v.RemoveExtraSpaces, v.Lowercase, v.StripAccents} {
		switch {
		case flag == nil:
			facts = append(facts, 2)
		case *flag:
			facts = append(facts, 1)
		default:
			facts = append(facts, 0)
		}
	}
	template := ""
	if v.ChatTemplate != nil {
		template = *v.ChatTemplate
	}
	if v.ToolTemplate != nil {
		template += "\x00" + *v.ToolTemplate
	}
	return digest("gguf", []byte(v.Model), []byte(v.Pre), list(v.Tokens), kinds, list(v.Merges), facts, v.Charsmap, []byte(template))
}
