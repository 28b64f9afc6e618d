package tokenizer

import "strings"

// whole hands all pieces on as one, for a stage behind one that joins them: only the end of the text tells it.
type whole struct{ held strings.Builder }

func (d *whole) push(piece string, _ func(string)) { d.held.WriteString(piece) }

func (d *whole) flush(emit func(string)) {
	emit(d.held.String())
	d.held.Reset()
}

// joinWords is WordPiece: a token with the prefix goes on with a word, others begin one.
type joinWords struct {
	prefix string
	clean  bool
	begun  bool
}

func (d *joinWords) push(piece string, emit func(string)) {
	if d.begun {
		rest, inside := strings.CutPrefix(piece, d.prefix)
		if !inside {
			rest = " " + piece
		}
		piece = rest
	}
	d.begun = true
	if d.clean {
		piece = cleanWords(piece)
	}
	emit(piece)
}

func (*joinWords) flush(func(string)) {}

// cleanWords undoes the spaces that BERT's splitting puts in English, within one piece. The order is that of `tokenizers`.
func cleanWords(s string) string {
	if strings.IndexByte(s, ' ') < 0 {
		return s
	}
	for _, r := range [][2]string{
		{" .", "."},
		{" ?", "?"},
		{" !", "!"},
		{" ,", ","},
		{" ' ", "'"},
		{" n't", "n't"},
		{" 'm", "'m"},
		{" do not", " don't"},
		{" 's", "'s"},
		{" 've", "'ve"},
		{" 're", "'re"},
	} {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	return s
}

// unmark is Metaspace as a decoder: marks are spaces, but those of the first token are nothing where one was prepended.
type unmark struct {
	mark   string
	keep   bool // the first token's too
	begun  bool
	spaced *strings.Replacer
}

func newUnmark(m metaspace) stageMaker {
	spaced := strings.NewReplacer(m.mark, " ")
	return func() stage { return &unmark{mark: m.mark, keep: m.prepend == prependNever, spaced: spaced} }
}

func (d *unmark) push(piece string, emit func(string)) {
	if d.begun || d.keep {
		piece = d.spaced.Replace(piece)
	} else {
		piece = strings.ReplaceAll(piece, d.mark, "")
	}
	d.begun = true
	emit(piece)
}

func (*unmark) flush(func(string)) {}

// endWords is BPEDecoder: the suffix is a space, but in the last token nothing.
type endWords struct {
	suffix string
	held   string
	begun  bool
}

func (d *endWords) push(piece string, emit func(string)) {
	if d.begun {
		emit(strings.ReplaceAll(d.held, d.suffix, " "))
	}
	d.held, d.begun = piece, true
}

func (d *endWords) flush(emit func(string)) {
	if d.begun {
		emit(strings.ReplaceAll(d.held, d.suffix, ""))
	}
	d.held, d.begun = "", false
}

// ctc is CTC: a token counts once however often it follows itself, and the pad token separates.
type ctc struct {
	pad, delimiter string
	clean          bool
	last           string
	begun          bool
}

func (d *ctc) push(piece string, emit func(string)) {
	if d.begun && piece == d.last {
		return
	}
	d.last, d.begun = piece, true
	piece = strings.ReplaceAll(piece, d.pad, "")
	if d.clean {
		piece = strings.ReplaceAll(cleanWords(piece), d.delimiter, " ")
	}
	if piece != "" {
		emit(piece)
	}
}

func (*ctc) flush(func(string)) {}
