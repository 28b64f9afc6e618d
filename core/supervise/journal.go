package supervise

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of what is kept of a plugin's output.
const (
	maxLine   = 8 << 10 // bytes of a line; the rest of it is dropped
	keepLines = 100
	keepBytes = 64 << 10
	// A line that is a fault only if death follows counts for this long.
	hintAge = 10 * time.Second
)

// lineWriter cuts a byte stream into lines of at most maxLine bytes. A longer line is handed on as soon as it reaches the
// limit, so a line without an end is seen too. It is an io.Writer for one goroutine.
type lineWriter struct {
	sink func(line []byte, cut bool)
	buf  []byte
	skip bool
}

func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := len(p)
		nl := -1
		for i, c := range p {
			if c == '\n' {
				nl, end = i, i
				break
			}
		}
		if !w.skip {
			take := min(end, maxLine-len(w.buf))
			w.buf = append(w.buf, p[:take]...)
			if take < end {
				w.sink(w.buf, true)
				w.buf, w.skip = w.buf[:0], true
			}
		}
		if nl < 0 {
			break
		}
		if !w.skip {
			w.sink(w.buf, false)
		}
		w.buf, w.skip = w.buf[:0], false
		p = p[nl+1:]
	}
	return n, nil
}

// flush hands on a last line that has no end.
func (w *lineWriter) flush() {
	if len(w.buf) > 0 {
		w.sink(w.buf, false)
		w.buf = w.buf[:0]
	}
}

// journal keeps the tail of a plugin's output and the first cause of its death.
type journal struct {
	log func(line string)

	mu    sync.Mutex
	tail  []string
	bytes int
	fatal string
	hint  string
	hintT time.Time
}

// fatalPrefixes begin lines after which a process does not go on.
var fatalPrefixes = []string{
	"panic: ", "fatal error: ", "terminate called", "libc++abi: ", "SIGSEGV", "SIGABRT", "SIGBUS", "runtime: out of memory",
	"dyld[", "dyld: ",
}

// fatalParts are found inside such lines.
var fatalParts = []string{
	"Assertion `", "Assertion failed", "assertion failed", "error while loading shared libraries", "symbol lookup error",
	"stack smashing detected", "double free or corruption", "malloc(): ", "free(): ", "corrupted size vs",
}

func (j *journal) line(raw []byte, cut bool) {
	text := printable(raw)
	if cut {
		text += " ..."
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tail = append(j.tail, text)
	for j.bytes += len(text); len(j.tail) > keepLines || j.bytes > keepBytes; j.tail = j.tail[1:] {
		j.bytes -= len(j.tail[0])
	}
	j.note(strings.TrimSpace(text))
	if j.log != nil {
		j.log(text)
	}
}

// note keeps the first fatal line and the latest hint.
func (j *journal) note(text string) {
	switch {
	case strings.HasPrefix(j.fatal, "terminate called") && strings.HasPrefix(text, "what():"):
		j.fatal += ", " + text
	case j.fatal != "":
	case fatal(text):
		j.fatal = text
	case strings.HasPrefix(strings.ToLower(text), "mlx error") || strings.HasPrefix(text, "mlx:"):
		if now := time.Now(); j.hint == "" || now.Sub(j.hintT) > hintAge {
			j.hint, j.hintT = text, now
		}
	}
}

func fatal(text string) bool {
	for _, p := range fatalPrefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	for _, p := range fatalParts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

// cause is the first line that explains a death, or "".
func (j *journal) cause() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fatal != "" {
		return clip(j.fatal)
	}
	if j.hint != "" && time.Since(j.hintT) < hintAge {
		return clip(j.hint)
	}
	return ""
}

// lastWords is the end of the output in one line, or "".
func (j *journal) lastWords() string {
	const lines = 3
	j.mu.Lock()
	defer j.mu.Unlock()
	return clip(strings.Join(j.tail[max(0, len(j.tail)-lines):], " | "))
}

// Tail is what the plugin printed last, for bug reports.
func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.tail...)
}

// clip bounds what goes into an error.
func clip(s string) string {
	const enough = 300
	if len(s) <= enough {
		return s
	}
	return strings.ToValidUTF8(s[:enough], "") + " ..."
}

// printable writes every byte that is no printable text as \xNN, so that a plugin cannot send escapes to a terminal.
func printable(raw []byte) string {
	var b strings.Builder
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		switch {
		case r == utf8.RuneError && n == 1, r != '\t' && !unicode.IsPrint(r):
			for _, c := range raw[:n] {
				if !(c == '\r' && len(raw) == 1) {
					fmt.Fprintf(&b, `\x%02x`, c)
				}
			}
		default:
			b.WriteRune(r)
		}
		raw = raw[n:]
	}
	return b.String()
}
