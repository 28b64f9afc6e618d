package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"
)

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
	case "Replace":
		return b.replaceDecoder(path, raw, *joined)
	case "Strip":
		return b.stripDecoder(path, raw, *joined)
	}
	make, err := tokenStage(kind, path, raw)
	if err != nil {
		return err
	}
	if *joined {
		b.decoder = append(b.decoder, func() stage { return &whole{} })
	}
	b.decoder = append(b.decoder, make)
	*joined = *joined || kind == "ByteLevel"
	return nil
}

// tokenStage reads the decoders that work token by token.
func tokenStage(kind, path string, raw json.RawMessage) (stageMaker, error) {
	switch kind {
	case "ByteLevel":
		return func() stage { return &joinBytes{} }, component(path, raw, &byteLevelSpec{})
	case "ByteFallback":
		return func() stage { return &fallbackBytes{} }, component(path, raw, &typed{})
	case "Metaspace":
		m, err := parseMetaspace(path, raw)
		return newUnmark(m), err
	case "WordPiece":
		v := struct {
			typed
			Prefix  string `json:"prefix"`
			Cleanup bool   `json:"cleanup"`
		}{}
		err := component(path, raw, &v)
		return func() stage { return &joinWords{prefix: v.Prefix, clean: v.Cleanup} }, err
	case "BPEDecoder":
		v := struct {
			typed
			Suffix string `json:"suffix"`
		}{}
		err := component(path, raw, &v)
		return func() stage { return &endWords{suffix: v.Suffix} }, err
	case "CTC":
		v := struct {
			typed
			PadToken  string `json:"pad_token"`
			Delimiter string `json:"word_delimiter_token"`
			Cleanup   bool   `json:"cleanup"`
		}{}
		err := component(path, raw, &v)
		return func() stage { return &ctc{pad: v.PadToken, delimiter: v.Delimiter, clean: v.Cleanup} }, err
	}
	return nil, unsupported(at(path), "the decoder %q is not implemented", kind)
}

func (b *builder) replaceDecoder(path string, raw json.RawMessage, joined bool) error {
	r, err := parseReplace(path, raw)
	if err != nil {
		return err
	}
	find, ok := r.find.(literal)
	switch {
	case !ok:
		return unsupported(at(path+".pattern"), "a Regex in a decoder is not implemented")
	case joined:
		b.decoder = append(b.decoder, func() stage { return &replaceJoined{find: string(find), content: r.content} })
	default:
		b.decoder = append(b.decoder, func() stage { return replaceEach{string(find), r.content} })
	}
	return nil
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
