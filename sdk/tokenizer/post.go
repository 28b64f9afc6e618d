package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// postProcessor adds what it puts around a single text to prefix and suffix. Later members of a Sequence wrap earlier ones.
func (b *builder) postProcessor(path string, raw json.RawMessage, depth int) error {
	if absent(raw) {
		return nil
	}
	kind, err := typeOf(path, raw)
	if err != nil {
		return err
	}
	switch kind {
	case "Sequence":
		members, err := sequenceOf(path, "processors", raw, depth)
		if err != nil {
			return err
		}
		for i, m := range members {
			if err := b.postProcessor(fmt.Sprintf("%s.processors[%d]", path, i), m, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		return component(path, raw, &byteLevelSpec{}) // offsets only
	case "TemplateProcessing":
		return b.template(path, raw)
	case "BertProcessing", "RobertaProcessing":
		return b.pairProcessing(path, raw)
	}
	return unsupported(at(path), "the post-processor %q is not implemented", kind)
}

type templatePiece struct {
	SpecialToken *struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	} `json:"Sequence"`
}

func (b *builder) template(path string, raw json.RawMessage) error {
	var v struct {
		typed
		Single        []templatePiece `json:"single"`
		Pair          json.RawMessage `json:"pair"` // two texts are never encoded together here
		SpecialTokens map[string]struct {
			ID     string   `json:"id"`
			IDs    []int32  `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
	}
	if err := component(path, raw, &v); err != nil {
		return err
	}
	var before, after []int32
	seen := false
	for i, p := range v.Single {
		here := at(fmt.Sprintf("%s.single[%d]", path, i))
		switch {
		case p.Sequence != nil && p.SpecialToken == nil:
			if seen || p.Sequence.ID != "A" {
				return corrupt(here, "a single text is the Sequence A once, found %q", p.Sequence.ID)
			}
			seen = true
		case p.SpecialToken != nil && p.Sequence == nil:
			tok, ok := v.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return corrupt(here, "%q is not in special_tokens", p.SpecialToken.ID)
			}
			for _, id := range tok.IDs {
				if !b.vocab.has(int64(id)) {
					return corrupt(here, "%q has the id %d, which has no token", p.SpecialToken.ID, id)
				}
			}
			if seen {
				after = append(after, tok.IDs...)
			} else {
				before = append(before, tok.IDs...)
			}
		default:
			return corrupt(here, "is neither a SpecialToken nor a Sequence")
		}
	}
	if !seen {
		return corrupt(at(path+".single"), "has no Sequence A")
	}
	b.prefix = slices.Concat(before, b.prefix)
	b.suffix = slices.Concat(b.suffix, after)
	return nil
}

// pairProcessing reads BertProcessing and RobertaProcessing, which differ in offsets and in pairs of texts.
func (b *builder) pairProcessing(path string, raw json.RawMessage) error {
	v := struct {
		typed
		Sep            json.RawMessage `json:"sep"`
		Cls            json.RawMessage `json:"cls"`
		TrimOffsets    *bool           `json:"trim_offsets"`     // offsets only
		AddPrefixSpace *bool           `json:"add_prefix_space"` // offsets only
	}{}
	if err := component(path, raw, &v); err != nil {
		return err
	}
	id := func(field string, raw json.RawMessage) (int32, error) {
		var text string
		var n int64
		pair := [2]any{&text, &n}
		if err := json.Unmarshal(raw, &pair); err != nil {
			return 0, corrupt(at(path+"."+field), "is not a token with its id: %w", err)
		}
		if !b.vocab.has(n) {
			return 0, corrupt(at(path+"."+field), "%q has the id %d, which has no token", text, n)
		}
		return int32(n), nil
	}
	cls, err := id("cls", v.Cls)
	if err != nil {
		return err
	}
	sep, err := id("sep", v.Sep)
	if err != nil {
		return err
	}
	b.prefix = slices.Concat([]int32{cls}, b.prefix)
	b.suffix = slices.Concat(b.suffix, []int32{sep})
	return nil
}
