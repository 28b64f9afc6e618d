package chat

import (
	"fmt"
	"strings"
	"unicode"
)

// writeRepr is Python's repr of a string.
func writeRepr(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7F || r > 0x7F && r <= 0xFF && !unicode.IsPrint(r):
			fmt.Fprintf(b, `\x%02x`, r)
		case r > 0xFFFF && !unicode.IsPrint(r):
			fmt.Fprintf(b, `\U%08x`, r)
		case r > 0xFF && !unicode.IsPrint(r):
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteRune(quote)
}
