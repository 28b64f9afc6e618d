package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// file is tokenizer.json. The parts whose shape depends on their type are decoded by type.
type file struct {
	AddedTokens   []addedEntry    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
}

type addedEntry struct {
	ID         *int64 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// FromJSON builds a Tokenizer from the bytes of tokenizer.json and, unless empty, of tokenizer_config.json.
func FromJSON(tokenizerJSON, tokenizerConfig []byte) (*Tokenizer, error) {
	return fromJSON(tokenizerJSON, tokenizerConfig, nil)
}

func fromJSON(tokenizerJSON, tokenizerConfig, specialMap []byte) (*Tokenizer, error) {
	if len(tokenizerJSON) > maxJSONBytes {
		return nil, corrupt(jsonFile, "is %d bytes, more than the limit of %d", len(tokenizerJSON), maxJSONBytes)
	}
	var f file
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return nil, corrupt(jsonFile, "is not a tokenizer: %w", err)
	}
	cfg, err := parseConfig(tokenizerConfig, specialMap)
	if err != nil {
		return nil, err
	}
	b := &builder{strictIDs: true}
	if err := b.json(&f, cfg); err != nil {
		return nil, err
	}
	t, err := b.finish(cfg)
	if err != nil {
		return nil, err
	}
	t.digest = digest("json", tokenizerJSON, tokenizerConfig, specialMap)
	return t, nil
}

func (b *builder) json(f *file, cfg *config) error {
	err := b.parseModel(f.Model)
	if err != nil {
		return err
	}
	if b.normalizer, err = parseNormalizer("normalizer", f.Normalizer, 0); err != nil {
		return err
	}
	if err = b.preTokenizer("pre_tokenizer", f.PreTokenizer, 0); err != nil {
		return err
	}
	if err = b.decoderChain("decoder", f.Decoder); err != nil {
		return err
	}
	for i, a := range f.AddedTokens {
		subject := fmt.Sprintf("%s: added_tokens[%d]", jsonFile, i)
		if a.ID == nil {
			return corrupt(subject, "has no id")
		}
		if err := b.addToken(subject, a, *a.ID); err != nil {
			return err
		}
	}
	if err := b.configTokens(cfg); err != nil {
		return err
	}
	if err := checkTruncation("truncation", f.Truncation); err != nil {
		return err
	}
	if err := cfg.padding("padding", f.Padding); err != nil {
		return err
	}
	return b.postProcessor("post_processor", f.PostProcessor, 0)
}

// at names a place in tokenizer.json.
func at(path string) string { return jsonFile + ": " + path }

func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// typeOf is the "type" of a component.
func typeOf(path string, raw json.RawMessage) (string, error) {
	var v struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", corrupt(at(path), "is not a component: %w", err)
	}
	if v.Type == nil {
		return "", corrupt(at(path), "has no type")
	}
	return *v.Type, nil
}

// component decodes raw into v, refusing fields that v does not have: none is skipped.
func component(path string, raw json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		return nil
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return unsupported(at(path), "the field %s is not implemented", name)
	}
	return corrupt(at(path), "cannot be read: %w", err)
}

// sequenceOf decodes the members of a Sequence.
func sequenceOf(path, field string, raw json.RawMessage, depth int) ([]json.RawMessage, error) {
	if depth >= maxNesting {
		return nil, corrupt(at(path), "Sequences are nested more than %d deep", maxNesting)
	}
	var v map[string]json.RawMessage
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, corrupt(at(path), "cannot be read: %w", err)
	}
	var members []json.RawMessage
	if err := json.Unmarshal(v[field], &members); err != nil {
		return nil, corrupt(at(path+"."+field), "is not a list of components: %w", err)
	}
	return members, nil
}

// patternSpec is {"String": s} or {"Regex": p}.
type patternSpec struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

func (p patternSpec) matcher(path string) (matcher, error) {
	switch {
	case p.String != nil && p.Regex == nil:
		if *p.String == "" {
			return nil, corrupt(at(path), "the pattern is empty")
		}
		return literal(*p.String), nil
	case p.Regex != nil && p.String == nil:
		if sc, ok := scanners[*p.Regex]; ok {
			return sc, nil
		}
		return newRegex(at(path), *p.Regex)
	}
	return nil, corrupt(at(path), "a pattern is either a String or a Regex")
}
