package tokenizer

import "strings"

// inText is a stage that changes what a token in the middle of a text stands for. A string here may hold part of a character.
type inText interface {
	tokenText(token string) string
}

// TokenBytes are the bytes that id adds to a text that goes on on both sides, nil for an id without a token: part of a
// character where the token is one byte of it, a leading space where a word begins. What a decoder does at the ends of a
// text only, such as dropping the first space, is not in them; nor is the space between the tokens of a tokenizer that has no
// decoder.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	token, ok := t.Token(id)
	if !ok {
		return nil
	}
	for _, st := range t.inText {
		token = st.tokenText(token)
	}
	return []byte(token)
}

// textStages are the stages of a decoder that TokenBytes asks.
func textStages(makers []stageMaker) []inText {
	var all []inText
	for _, m := range makers {
		if st, ok := m().(inText); ok {
			all = append(all, st)
		}
	}
	return all
}

func (*joinBytes) tokenText(token string) string { return string(appendTokenBytes(nil, token)) }

func (*fallbackBytes) tokenText(token string) string {
	if b, ok := tokenByte(token); ok {
		return string([]byte{b})
	}
	return token
}

func (d replaceEach) tokenText(token string) string {
	return strings.ReplaceAll(token, d.find, d.content)
}

func (d *replaceJoined) tokenText(token string) string {
	return strings.ReplaceAll(token, d.find, d.content)
}

func (d stripEach) tokenText(token string) string { return d.cut(token) }

func (d *joinWords) tokenText(token string) string {
	rest, inside := strings.CutPrefix(token, d.prefix)
	if !inside {
		rest = " " + token
	}
	if d.clean {
		rest = cleanWords(rest)
	}
	return rest
}

func (d *unmark) tokenText(token string) string { return d.spaced.Replace(token) }

func (d *endWords) tokenText(token string) string {
	return strings.ReplaceAll(token, d.suffix, " ")
}

func (d *ctc) tokenText(token string) string {
	token = strings.ReplaceAll(token, d.pad, "")
	if d.clean {
		token = strings.ReplaceAll(cleanWords(token), d.delimiter, " ")
	}
	return token
}
