package guidance

import (
	"strings"

	"github.com/clademl/clade/sdk/tokenizer"
)

// ForTokenizer is a model's tokenizer as a Vocabulary needs it.
func ForTokenizer(t *tokenizer.Tokenizer) Tokenizer {
	s := &spelling{Tokenizer: t, added: map[int32]string{}}
	for _, a := range t.AddedTokens() {
		s.added[a.ID] = a.Content
	}
	if id, ok := t.ID("Ġ"); ok && t.Decode([]int32{id}, false) == " " {
		s.byteLevel = true
	}
	return s
}

// spelling reads tokens' bytes off the way a vocabulary spells them: in GPT-2's characters, or as SentencePiece does, with U+2581
// for a space and <0xNN> for a byte.
type spelling struct {
	*tokenizer.Tokenizer
	added     map[int32]string
	byteLevel bool
}

func (s *spelling) TokenBytes(id int32) []byte {
	if text, ok := s.added[id]; ok {
		return []byte(text)
	}
	token, ok := s.Token(id)
	switch {
	case !ok:
		return nil
	case s.byteLevel:
		return byteLevel(token)
	}
	if b, ok := byteToken(token); ok {
		return []byte{b}
	}
	return []byte(strings.ReplaceAll(token, "\u2581", " "))
}

// byteOf is GPT-2's table from a printable character to the byte that it stands for.
var byteOf = func() map[rune]byte {
	t, next := map[rune]byte{}, rune(256)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			t[rune(b)] = byte(b)
			continue
		}
		t[next] = byte(b)
		next++
	}
	return t
}()

func byteLevel(token string) []byte {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := byteOf[r]
		if !ok { // not in the table: the token stands for its own characters
			return []byte(token)
		}
		out = append(out, b)
	}
	return out
}

func byteToken(token string) (byte, bool) {
	const digits = "0123456789ABCDEF"
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	hi, lo := strings.IndexByte(digits, token[3]), strings.IndexByte(digits, token[4])
	return byte(hi<<4 | lo), hi >= 0 && lo >= 0
}
