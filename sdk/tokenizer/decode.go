package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A decoder is a chain of stages that turn tokens into text. Each stage takes one piece at a time and passes on what is
// final, so that a Stream gives text as early as its decoder allows; Decode is a Stream that is flushed.
type stage interface {
	push(piece string, emit func(string))
	flush(emit func(string))
}

// stageMaker makes a fresh stage; decoders are immutable lists of these.
type stageMaker func() stage

// joinBytes is ByteLevel: all tokens' bytes are one text, invalid parts of it U+FFFD.
type joinBytes struct{ held []byte }

func (d *joinBytes) push(piece string, emit func(string)) {
	d.held = appendTokenBytes(d.held, piece)
	n := len(d.held) - incompleteTail(d.held)
	if n > 0 {
		emit(validText(string(d.held[:n])))
		d.held = append(d.held[:0], d.held[n:]...)
	}
}

func (d *joinBytes) flush(emit func(string)) {
	if len(d.held) > 0 {
		emit(validText(string(d.held)))
		d.held = d.held[:0]
	}
}

// fallbackBytes is ByteFallback: a run of <0xNN> tokens is text if it is UTF-8 as a whole, else one U+FFFD for each. Only
// the end of the run tells, so the run is held.
type fallbackBytes struct{ held []byte }

func (d *fallbackBytes) push(piece string, emit func(string)) {
	if b, ok := tokenByte(piece); ok {
		d.held = append(d.held, b)
		return
	}
	d.flush(emit)
	emit(piece)
}

func (d *fallbackBytes) flush(emit func(string)) {
	if len(d.held) == 0 {
		return
	}
	if utf8.Valid(d.held) {
		emit(string(d.held))
	} else {
		for range d.held {
			emit("\uFFFD")
		}
	}
	d.held = d.held[:0]
}

// tokenByte is the byte of a token <0xNN>.
func tokenByte(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	hi, lo := hexValue(token[3]), hexValue(token[4])
	return hi<<4 | lo, hi < 16 && lo < 16
}

func hexValue(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xFF
}

// replaceEach is Replace on separate tokens.
type replaceEach struct{ find, content string }

func (d replaceEach) push(piece string, emit func(string)) {
	emit(strings.ReplaceAll(piece, d.find, d.content))
}

func (replaceEach) flush(func(string)) {}

// replaceJoined is Replace on the one joined text: what may be the start of a match is held.
type replaceJoined struct {
	find, content string
	held          string
}

func (d *replaceJoined) push(piece string, emit func(string)) {
	d.held += piece
	var b strings.Builder
	for {
		k := strings.Index(d.held, d.find)
		if k < 0 {
			break
		}
		b.WriteString(d.held[:k])
		b.WriteString(d.content)
		d.held = d.held[k+len(d.find):]
	}
	keep := min(len(d.held), len(d.find)-1)
	for ; keep > 0 && !strings.HasPrefix(d.find, d.held[len(d.held)-keep:]); keep-- {
	}
	b.WriteString(d.held[:len(d.held)-keep])
	d.held = d.held[len(d.held)-keep:]
	if b.Len() > 0 {
		emit(b.String())
	}
}

func (d *replaceJoined) flush(emit func(string)) {
	if d.held != "" {
		emit(d.held)
		d.held = ""
	}
}

// strip takes up to start characters c from the front and up to stop from the end.
type strip struct {
	c           rune
	start, stop int
}

func (d strip) cut(s string) string {
	for range d.start {
		t, ok := strings.CutPrefix(s, string(d.c))
		if !ok {
			break
		}
		s = t
	}
	for range d.stop {
		t, ok := strings.CutSuffix(s, string(d.c))
		if !ok {
			break
		}
		s = t
	}
	return s
}

// stripEach is Strip on separate tokens.
type stripEach struct{ strip }

func (d stripEach) push(piece string, emit func(string)) { emit(d.cut(piece)) }
func (stripEach) flush(func(string))                     {}

// stripJoined is Strip on the one joined text.
type stripJoined struct {
	strip
	begun bool
	held  string // up to stop characters c at the end
}

func (d *stripJoined) push(piece string, emit func(string)) {
	for !d.begun && piece != "" {
		t, ok := strings.CutPrefix(piece, string(d.c))
		if d.begun = !ok || d.start == 0; d.begun {
			break
		}
		d.start--
		piece = t
	}
	piece = d.held + piece
	n := len(piece)
	for range d.stop {
		t, ok := strings.CutSuffix(piece[:n], string(d.c))
		if !ok {
			break
		}
		n = len(t)
	}
	d.held = piece[n:]
	if n > 0 {
		emit(piece[:n])
	}
}

func (d *stripJoined) flush(func(string)) { d.held = "" }

// spaced is what `tokenizers` does without a decoder: tokens with a space between them.
type spaced struct{ begun bool }

func (d *spaced) push(piece string, emit func(string)) {
	if d.begun {
		emit(" ")
	}
	d.begun = true
	emit(piece)
}

func (*spaced) flush(func(string)) {}
