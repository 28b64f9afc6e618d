package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// preTokenizer appends the steps of one pre-tokenizer.
func (b *builder) preTokenizer(path string, raw json.RawMessage, depth int) error {
	if absent(raw) {
		return nil
	}
	kind, err := typeOf(path, raw)
	if err != nil {
		return err
	}
	if steps, ok := plainSteps[kind]; ok {
		b.steps = append(b.steps, steps...)
		return component(path, raw, &typed{})
	}
	switch kind {
	case "Sequence":
		members, err := sequenceOf(path, "pretokenizers", raw, depth)
		if err != nil {
			return err
		}
		for i, m := range members {
			if err := b.preTokenizer(fmt.Sprintf("%s.pretokenizers[%d]", path, i), m, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		v := byteLevelSpec{AddPrefixSpace: true, UseRegex: true}
		if err := component(path, raw, &v); err != nil {
			return err
		}
		b.byteLevel(v.AddPrefixSpace, v.UseRegex)
		return nil
	case "Digits":
		var v struct {
			typed
			IndividualDigits bool `json:"individual_digits"`
		}
		err := component(path, raw, &v)
		b.steps = append(b.steps, digitsStep{v.IndividualDigits})
		return err
	case "Split":
		return b.split(path, raw)
	case "Punctuation":
		v := struct {
			typed
			Behavior behavior `json:"behavior"`
		}{Behavior: isolated}
		if err := component(path, raw, &v); err != nil {
			return err
		}
		b.steps = append(b.steps, splitStep{find: class(punct), do: v.Behavior})
		return v.Behavior.check(path)
	case "Metaspace":
		m, err := parseMetaspace(path, raw)
		b.steps = append(b.steps, m)
		return err
	case "CharDelimiterSplit", "FixedLength":
		return b.cutter(kind, path, raw)
	}
	return unsupported(at(path), "the pre-tokenizer %q is not implemented", kind)
}

// plainSteps are the pre-tokenizers without options.
var plainSteps = map[string][]step{
	"Whitespace":       {words{}},
	"WhitespaceSplit":  {fields{}},
	"BertPreTokenizer": {fields{}, splitStep{find: class(punct), do: isolated}},
	"UnicodeScripts":   {scripts{}},
}

// cutter reads the pre-tokenizers of one number or character.
func (b *builder) cutter(kind, path string, raw json.RawMessage) error {
	v := struct {
		typed
		Delimiter *string `json:"delimiter"`
		Length    *int    `json:"length"`
	}{}
	if err := component(path, raw, &v); err != nil {
		return err
	}
	if kind == "FixedLength" {
		length := 5
		if v.Length != nil {
			length = *v.Length
		}
		if length < 1 || v.Delimiter != nil {
			return corrupt(at(path+".length"), "must be a positive number of characters")
		}
		b.steps = append(b.steps, fixedLength(length))
		return nil
	}
	if v.Delimiter == nil || v.Length != nil || utf8.RuneCountInString(*v.Delimiter) != 1 {
		return corrupt(at(path+".delimiter"), "must be one character")
	}
	b.steps = append(b.steps, splitStep{find: literal(*v.Delimiter), do: removed})
	return nil
}

func parseMetaspace(path string, raw json.RawMessage) (metaspace, error) {
	v := struct {
		typed
		Replacement    string        `json:"replacement"`
		AddPrefixSpace *bool         `json:"add_prefix_space"` // until 0.14
		PrependScheme  prependScheme `json:"prepend_scheme"`
		Split          *bool         `json:"split"`
		StrRep         *string       `json:"str_rep"` // until 0.14: replacement again
	}{PrependScheme: prependAlways}
	if err := component(path, raw, &v); err != nil {
		return metaspace{}, err
	}
	if utf8.RuneCountInString(v.Replacement) != 1 {
		return metaspace{}, corrupt(at(path+".replacement"), "must be one character")
	}
	switch v.PrependScheme {
	case prependAlways, prependFirst, prependNever:
	default:
		return metaspace{}, unsupported(at(path+".prepend_scheme"), "%q is not implemented", v.PrependScheme)
	}
	if v.AddPrefixSpace != nil && !*v.AddPrefixSpace {
		v.PrependScheme = prependNever
	}
	return metaspace{v.Replacement, v.PrependScheme, v.Split == nil || *v.Split}, nil
}

type byteLevelSpec struct {
	typed
	AddPrefixSpace bool `json:"add_prefix_space"`
	TrimOffsets    bool `json:"trim_offsets"` // offsets only
	UseRegex       bool `json:"use_regex"`
}

func (b *builder) byteLevel(addPrefixSpace, useRegex bool) {
	if addPrefixSpace {
		b.steps = append(b.steps, prefixSpace{})
	}
	if useRegex {
		b.steps = append(b.steps, scanStep{scanGPT2})
	}
	b.steps = append(b.steps, byteChars{})
}

func (b *builder) split(path string, raw json.RawMessage) error {
	var v struct {
		typed
		Pattern  patternSpec `json:"pattern"`
		Behavior behavior    `json:"behavior"`
		Invert   bool        `json:"invert"`
	}
	if err := component(path, raw, &v); err != nil {
		return err
	}
	if err := v.Behavior.check(path); err != nil {
		return err
	}
	find, err := v.Pattern.matcher(path + ".pattern")
	if err != nil {
		return err
	}
	if sc, ok := find.(scanner); ok && (v.Behavior == isolated || v.Behavior == removed && v.Invert) {
		b.steps = append(b.steps, scanStep{sc})
		return nil
	}
	b.steps = append(b.steps, splitStep{find, v.Behavior, v.Invert})
	return nil
}

func (b behavior) check(path string) error {
	switch b {
	case removed, isolated, contiguous, mergedWithPrevious, mergedWithNext:
		return nil
	}
	return unsupported(at(path+".behavior"), "%q is not implemented", string(b))
}
