package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func parseNormalizer(path string, raw json.RawMessage, depth int) (normalizer, error) {
	if absent(raw) {
		return nil, nil
	}
	kind, err := typeOf(path, raw)
	if err != nil {
		return nil, err
	}
	if form, ok := unicodeForms[kind]; ok {
		return form, component(path, raw, &typed{})
	}
	switch kind {
	case "Lowercase":
		return lowercase{}, component(path, raw, &typed{})
	case "Prepend":
		var v struct {
			typed
			Prepend string `json:"prepend"`
		}
		err := component(path, raw, &v)
		return prepend(v.Prepend), err
	case "Replace":
		return parseReplace(path, raw)
	case "Sequence":
		members, err := sequenceOf(path, "normalizers", raw, depth)
		if err != nil {
			return nil, err
		}
		var ns normalizers
		for i, m := range members {
			n, err := parseNormalizer(fmt.Sprintf("%s.normalizers[%d]", path, i), m, depth+1)
			if err != nil {
				return nil, err
			}
			if n != nil {
				ns = append(ns, n)
			}
		}
		return ns, nil
	}
	return nil, unsupported(at(path), "the normalizer %q is not implemented", kind)
}

// typed is the field that every component has.
type typed struct {
	Type string `json:"type"`
}

var unicodeForms = map[string]unicodeForm{
	"NFC":  {norm.NFC, nil},
	"NFD":  {norm.NFD, keepNFD},
	"NFKC": {norm.NFKC, keepNFK},
	"NFKD": {norm.NFKD, keepNFK},
}

type replaceSpec struct {
	typed
	Pattern patternSpec `json:"pattern"`
	Content string      `json:"content"`
}

func parseReplace(path string, raw json.RawMessage) (replace, error) {
	var v replaceSpec
	if err := component(path, raw, &v); err != nil {
		return replace{}, err
	}
	find, err := v.Pattern.matcher(path + ".pattern")
	return replace{find: find, content: v.Content}, err
}

// preTokenizer appends the steps of one pre-tokenizer.
func (b *builder) preTokenizer(path string, raw json.RawMessage, depth int) error {
	if absent(raw) {
		return nil
	}
	kind, err := typeOf(path, raw)
	if err != nil {
		return err
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
		if err := component(path, raw, &v); err != nil {
			return err
		}
		b.steps = append(b.steps, digitsStep{v.IndividualDigits})
		return nil
	case "Split":
		return b.split(path, raw)
	}
	return unsupported(at(path), "the pre-tokenizer %q is not implemented", kind)
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
	switch v.Behavior {
	case removed, isolated, contiguous, mergedWithPrevious, mergedWithNext:
	default:
		return unsupported(at(path+".behavior"), "%q is not implemented", v.Behavior)
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

// decoderChain builds the decoder. joined tells whether the pieces before a stage are one text already.
func (b *builder) decoderChain(path string, raw json.RawMessage) error {
	if absent(raw) {
		b.decoder = []stageMaker{func() stage { return &spaced{} }}
		return nil
	}
	joined := false
	return b.decoderPart(path, raw, 0, &joined)
}

func (b *builder) decoderPart(path string, raw json.RawMessage, depth int, joined *bool) error {
	kind, err := typeOf(path, raw)
	if err != nil {
		return err
	}
	add := func(m stageMaker) { b.decoder = append(b.decoder, m) }
	switch kind {
	case "Sequence":
		members, err := sequenceOf(path, "decoders", raw, depth)
		if err != nil {
			return err
		}
		for i, m := range members {
			if err := b.decoderPart(fmt.Sprintf("%s.decoders[%d]", path, i), m, depth+1, joined); err != nil {
				return err
			}
		}
		return nil
	case "Fuse":
		*joined = true
		return component(path, raw, &typed{})
	case "ByteLevel", "ByteFallback":
		if *joined {
			return unsupported(at(path), "the decoder %q behind one that joins the tokens is not implemented", kind)
		}
		if kind == "ByteFallback" {
			add(func() stage { return &fallbackBytes{} })
			return component(path, raw, &typed{})
		}
		*joined = true
		add(func() stage { return &joinBytes{} })
		return component(path, raw, &byteLevelSpec{})
	case "Replace":
		r, err := parseReplace(path, raw)
		if err != nil {
			return err
		}
		find, ok := r.find.(literal)
		if !ok {
			return unsupported(at(path+".pattern"), "a Regex in a decoder is not implemented")
		}
		if *joined {
			add(func() stage { return &replaceJoined{find: string(find), content: r.content} })
		} else {
			add(func() stage { return replaceEach{string(find), r.content} })
		}
		return nil
	case "Strip":
		return b.stripDecoder(path, raw, *joined)
	}
	return unsupported(at(path), "the decoder %q is not implemented", kind)
}

func (b *builder) stripDecoder(path string, raw json.RawMessage, joined bool) error {
	var v struct {
		typed
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}
	if err := component(path, raw, &v); err != nil {
		return err
	}
	c, n := utf8.DecodeRuneInString(v.Content)
	if n == 0 || n != len(v.Content) || v.Start < 0 || v.Stop < 0 || v.Start > unicode.MaxRune || v.Stop > unicode.MaxRune {
		return corrupt(at(path), "content must be one character, start and stop small counts")
	}
	s := strip{c, v.Start, v.Stop}
	if joined {
		b.decoder = append(b.decoder, func() stage { return &stripJoined{strip: s} })
	} else {
		b.decoder = append(b.decoder, func() stage { return stripEach{s} })
	}
	return nil
}
