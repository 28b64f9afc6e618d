package tokenizer

import (
	"errors"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// Files beside the weights that hold a template and nothing else. The second is how processors of media wrote it once.
const (
	templateFile       = "chat_template.jinja"
	legacyTemplateFile = "chat_template.json"
)

// FromArtifact builds the Tokenizer of a model: from GGUF metadata, or from tokenizer.json with tokenizer_config.json,
// special_tokens_map.json and chat_template.jinja beside it where they exist. chat_template.jinja wins over the template in
// tokenizer_config.json, and that over chat_template.json; special_tokens_map.json wins over the names there unless that file has an added_tokens_decoder, beside
// which it is not read.
func FromArtifact(a *artifact.Artifact) (*Tokenizer, error) {
	if m := a.GGUF(); m != nil {
		v, err := ggufVocab(m)
		if err != nil {
			return nil, err
		}
		return FromGGUF(v)
	}
	tokens, err := a.File(jsonFile)
	if err != nil {
		return nil, err
	}
	config, err := optionalFile(a, configFile)
	if err != nil {
		return nil, err
	}
	specials, err := optionalFile(a, specialsFile)
	if err != nil {
		return nil, err
	}
	t, err := fromJSON(tokens, config, specials)
	if err != nil {
		return nil, err
	}
	template, err := optionalFile(a, templateFile)
	if err != nil {
		return nil, err
	}
	if template != nil {
		t.chatTemplate, t.hasTemplate = string(template), true
		t.digest = digest("json", tokens, config, specials, template)
	}
	if t.hasTemplate {
		return t, nil
	}
	return t, t.legacyTemplate(a, tokens, config, specials)
}

// legacyTemplate takes the template of chat_template.json, if there is one.
func (t *Tokenizer) legacyTemplate(a *artifact.Artifact, parts ...[]byte) error {
	data, err := optionalFile(a, legacyTemplateFile)
	if err != nil || data == nil {
		return err
	}
	raw, err := sideFile(legacyTemplateFile, data)
	if err != nil {
		return err
	}
	c := &config{}
	if err := c.template(legacyTemplateFile, raw["chat_template"]); err != nil {
		return err
	}
	t.chatTemplate, t.hasTemplate = c.chatTemplate, c.hasTemplate
	if c.toolTemplate != "" {
		t.toolTemplate = c.toolTemplate
	}
	t.digest = digest("json", append(parts, data)...)
	return nil
}

func optionalFile(a *artifact.Artifact, name string) ([]byte, error) {
	data, err := a.File(name)
	var e *contract.Error
	if errors.As(err, &e) && e.Kind == contract.NotFound {
		return nil, nil
	}
	return data, err
}

// ggufVocab collects the metadata of a tokenizer. A key of another type than the format says is corrupt, not absent.
func ggufVocab(m *artifact.GGUFMetadata) (GGUFVocab, error) {
	r := metaReader{m: m}
	v := GGUFVocab{
		Model:  r.text("model"),
		Pre:    r.text("pre"),
		Tokens: r.texts("tokens"),
		Merges: r.texts("merges"),
		BOS:    r.id("bos_token_id"),
		EOS:    r.id("eos_token_id"),
		EOT:    r.id("eot_token_id"),
		EOM:    r.id("eom_token_id"),
		UNK:    r.id("unknown_token_id"),
		PAD:    r.id("padding_token_id"),
		SEP:    r.id("seperator_token_id"),
		CLS:    r.id("cls_token_id"),
		MASK:   r.id("mask_token_id"),
		AddBOS: r.flag("add_bos_token"),
		AddEOS: r.flag("add_eos_token"),

		AddSpacePrefix:    r.flag("add_space_prefix"),
		RemoveExtraSpaces: r.flag("remove_extra_whitespaces"),
		Lowercase:         r.flag("normalizer.lowercase"),
		StripAccents:      r.flag("normalizer.strip_accents"),
	}
	if r.has("scores") && (v.Model == "llama" || v.Model == "t5") {
		v.Scores = r.floats("scores")
	}
	if r.has("precompiled_charsmap") && v.Model == "t5" {
		v.Charsmap = r.bytes("precompiled_charsmap")
	}
	if r.has("token_type") {
		var ok bool
		v.Types, ok = m.Ints("tokenizer.ggml.token_type")
		r.check("token_type", ok)
	}
	v.ChatTemplate, v.ToolTemplate = r.template("tokenizer.chat_template"), r.template("tokenizer.chat_template."+toolTemplate)
	if r.err == nil && !r.has("model") {
		r.err = corrupt(ggufKey("model"), "is missing: the file carries no tokenizer")
	}
	return v, r.err
}

// metaReader holds the first error of a run of reads.
type metaReader struct {
	m   *artifact.GGUFMetadata
	err error
}

func (r *metaReader) has(key string) bool {
	_, ok := r.m.Get("tokenizer.ggml." + key)
	return ok
}

func (r *metaReader) check(key string, ok bool) {
	if !ok && r.err == nil && r.has(key) {
		r.err = corrupt(ggufKey(key), "has another type than the format says")
	}
}

// template reads a template by its whole key; nil when there is none.
func (r *metaReader) template(key string) *string {
	if _, there := r.m.Get(key); !there {
		return nil
	}
	s, ok := r.m.String(key)
	if !ok && r.err == nil {
		r.err = corrupt(ggufSubject+": "+key, "is not a string")
	}
	return &s
}

func (r *metaReader) text(key string) string {
	s, ok := r.m.String("tokenizer.ggml." + key)
	r.check(key, ok)
	return s
}

func (r *metaReader) texts(key string) []string {
	s, ok := r.m.Strings("tokenizer.ggml." + key)
	r.check(key, ok)
	return s
}

func (r *metaReader) id(key string) int64 {
	n, ok := r.m.Int("tokenizer.ggml." + key)
	r.check(key, ok)
	if !ok || n == 1<<32-1 { // converters write -1 as an unsigned number
		return -1
	}
	return n
}

func (r *metaReader) floats(key string) []float64 {
	f, ok := r.m.Floats("tokenizer.ggml." + key)
	if ints, whole := r.m.Ints("tokenizer.ggml." + key); !ok && whole {
		for _, n := range ints {
			f = append(f, float64(n))
		}
		return f
	}
	r.check(key, ok)
	f = slices.Clone(f)
	for i, x := range f {
		f[i] = float64(float32(x)) // metadata holds the decimal form of the 32-bit number; ties depend on the number itself
	}
	return f
}

// bytes reads an array of 8-bit numbers, signed or not.
func (r *metaReader) bytes(key string) []byte {
	ints, ok := r.m.Ints("tokenizer.ggml." + key)
	r.check(key, ok)
	b := make([]byte, len(ints))
	for i, n := range ints {
		b[i] = byte(n)
	}
	return b
}

func (r *metaReader) flag(key string) *bool {
	b, ok := r.m.Bool("tokenizer.ggml." + key)
	r.check(key, ok)
	if !ok {
		return nil
	}
	return &b
}
