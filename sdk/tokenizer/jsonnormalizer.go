package tokenizer

import (
	"encoding/json"
	"fmt"

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
	case "StripAccents":
		return mapped(dropCombining), component(path, raw, &typed{})
	case "Nmt":
		return mapped(nmt), component(path, raw, &typed{})
	case "ByteLevel":
		return byteSpelling{}, component(path, raw, &typed{})
	case "Precompiled":
		return parsePrecompiled(path, raw)
	case "Strip":
		v := struct {
			typed
			Left  bool `json:"strip_left"`
			Right bool `json:"strip_right"`
		}{}
		err := component(path, raw, &v)
		return stripSpace{v.Left, v.Right}, err
	case "BertNormalizer":
		return parseBertNormalizer(path, raw)
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
	"NFC":  {norm.NFC, keepNFD},
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

func parseBertNormalizer(path string, raw json.RawMessage) (normalizer, error) {
	v := struct {
		typed
		CleanText    bool  `json:"clean_text"`
		Chinese      bool  `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"`
		Lowercase    bool  `json:"lowercase"`
	}{}
	if err := component(path, raw, &v); err != nil {
		return nil, err
	}
	accents := v.Lowercase
	if v.StripAccents != nil {
		accents = *v.StripAccents
	}
	return bertNormalizer(v.CleanText, v.Chinese, accents, v.Lowercase), nil
}
