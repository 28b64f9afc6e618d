package tokenizer

import (
	"encoding/binary"
	"fmt"

	"github.com/clademl/clade/sdk/contract"
)

// GGUFVocab is what GGUF metadata (tokenizer.ggml.*) says of a tokenizer. Ids are -1 where the file names none.
type GGUFVocab struct {
	Model  string // tokenizer.ggml.model; "gpt2" is byte-level BPE
	Pre    string // tokenizer.ggml.pre names the split pattern
	Tokens []string
	Types  []int64 // one of the tokenType constants each
	Merges []string

	BOS, EOS, EOT, EOM, UNK, PAD, SEP, MASK int64

	AddBOS, AddEOS *bool // nil: what the pre-tokenizer's models do

	ChatTemplate *string
}

// Token types of GGUF.
const (
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
)

const ggufSubject = "GGUF metadata"

func ggufKey(key string) string { return ggufSubject + ": tokenizer.ggml." + key }

// FromGGUF builds a Tokenizer from GGUF metadata. The split pattern and the normalizer are those of the models that the
// pre-tokenizer's name stands for; a name that is not known is refused.
func FromGGUF(v GGUFVocab) (*Tokenizer, error) {
	if v.Model != "gpt2" {
		return nil, unsupported(ggufKey("model"), "the tokenizer model %q is not implemented; gpt2 is", v.Model)
	}
	pre, ok := preTokenizers[v.Pre]
	if !ok {
		return nil, contract.Errorf(contract.UnsupportedModel, ggufKey("pre"),
			"the pre-tokenizer %q is not known", v.Pre).WithNext("convert the model from its safetensors files, which carry tokenizer.json")
	}
	m, err := v.model(pre)
	if err != nil {
		return nil, err
	}
	b := &builder{vocab: m.vocab, model: m, decoder: []stageMaker{func() stage { return &joinBytes{} }}}
	if pre.nfc {
		b.normalizer = unicodeForms["NFC"]
	}
	if b.steps, err = pre.steps(); err != nil {
		return nil, err
	}
	if err := v.addedTokens(b); err != nil {
		return nil, err
	}
	cfg, err := v.config(b, pre)
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

func (v *GGUFVocab) model(pre preTokenizer) (*bpe, error) {
	if len(v.Tokens) == 0 || len(v.Tokens) > maxVocab {
		return nil, corrupt(ggufKey("tokens"), "has %d tokens, want 1 to %d", len(v.Tokens), maxVocab)
	}
	if len(v.Types) != 0 && len(v.Types) != len(v.Tokens) {
		return nil, corrupt(ggufKey("token_type"), "has %d entries for %d tokens", len(v.Types), len(v.Tokens))
	}
	if len(v.Merges) > maxMerges {
		return nil, corrupt(ggufKey("merges"), "has %d merges, more than the limit of %d", len(v.Merges), maxMerges)
	}
	m := &bpe{unk: -1, ignoreMerges: pre.ignoreMerges, vocab: newVocab(len(v.Tokens))}
	for id, token := range v.Tokens {
		if token = validText(token); token == "" {
			continue // converters write "" for an id without a token
		}
		if err := m.set(fmt.Sprintf("%s[%d]", ggufKey("tokens"), id), token, int64(id)); err != nil {
			return nil, err
		}
	}
	if len(m.tokens) < len(v.Tokens) {
		m.tokens = append(m.tokens, make([]string, len(v.Tokens)-len(m.tokens))...)
	}
	pairs := make([][2]string, len(v.Merges))
	for i, line := range v.Merges {
		var err error
		if pairs[i], err = splitMerge(line); err != nil {
			return nil, corrupt(fmt.Sprintf("%s[%d]", ggufKey("merges"), i), "%w", err)
		}
	}
	return m, m.setMerges(pairs, ggufKey("merges"))
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
func (v *GGUFVocab) config(b *builder, pre preTokenizer) (*config, error) {
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
	if choose(v.AddBOS, pre.addBOS) {
		if v.BOS < 0 {
			return nil, corrupt(ggufKey("add_bos_token"), "a begin token is to be added, but bos_token_id is not there")
		}
		b.prefix = []int32{int32(v.BOS)}
	}
	if choose(v.AddEOS, false) {
		if v.EOS < 0 {
			return nil, corrupt(ggufKey("add_eos_token"), "an end token is to be added, but eos_token_id is not there")
		}
		b.suffix = []int32{int32(v.EOS)}
	}
	if v.ChatTemplate != nil {
		cfg.chatTemplate, cfg.hasTemplate = *v.ChatTemplate, true
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
	for _, id := range []int64{v.BOS, v.EOS, v.EOT, v.EOM, v.UNK, v.PAD, v.SEP, v.MASK} {
		facts = binary.AppendVarint(facts, id)
	}
	for _, flag := range []*bool{v.AddBOS, v.AddEOS} {
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
	return digest("gguf", []byte(v.Model), []byte(v.Pre), list(v.Tokens), kinds, list(v.Merges), facts, []byte(template))
}
