package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// precompiled is SentencePiece's table of replacements: a Darts double array from texts to offsets in replacements, each of
// which ends with a zero byte.
type precompiled struct {
	units        []uint32
	replacements string
}

// A unit of the array: the label of the edge that led here, whether a text ends, and where the edges go on.
const unitLeaf = 1 << 8

func unitLabel(u uint32) uint32  { return u & (1<<31 | 0xFF) }
func unitOffset(u uint32) uint32 { return (u >> 10) << ((u & (1 << 9)) >> 6) }

// newPrecompiled reads a charsmap: the size of the array in bytes, the array, the replacements.
func newPrecompiled(subject string, data []byte) (*precompiled, error) {
	if len(data) < 4 {
		return nil, corrupt(subject, "is %d bytes, too short for a table", len(data))
	}
	size := binary.LittleEndian.Uint32(data)
	data = data[4:]
	if int64(size) > int64(len(data)) || size < 4 || size%4 != 0 {
		return nil, corrupt(subject, "has an array of %d bytes in %d", size, len(data))
	}
	p := &precompiled{units: make([]uint32, size/4), replacements: string(data[size:])}
	for i := range p.units {
		p.units[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	if !utf8.ValidString(p.replacements) {
		return nil, corrupt(subject, "has replacements that are not UTF-8")
	}
	return p, nil
}

func parsePrecompiled(path string, raw json.RawMessage) (normalizer, error) {
	var v struct {
		typed
		Charsmap *string `json:"precompiled_charsmap"`
	}
	if err := component(path, raw, &v); err != nil {
		return nil, err
	}
	subject := at(path + ".precompiled_charsmap")
	if v.Charsmap == nil {
		return nil, corrupt(subject, "is missing")
	}
	data, err := base64.StdEncoding.DecodeString(*v.Charsmap)
	if err != nil {
		return nil, corrupt(subject, "%w", err)
	}
	return newPrecompiled(subject, data)
}

// unit is 0, which ends a search, outside the array: the file may lie.
func (p *precompiled) unit(i uint32) uint32 {
	if i >= uint32(len(p.units)) {
		return 0
	}
	return p.units[i]
}

// prefixes calls found with the end of each text of the table that s begins with, until found says stop.
func (p *precompiled) prefixes(s string, found func(end int, replacement string) (more bool)) {
	at := unitOffset(p.unit(0))
	for i := range len(s) {
		if s[i] == 0 {
			return
		}
		at ^= uint32(s[i])
		u := p.unit(at)
		if unitLabel(u) != uint32(s[i]) {
			return
		}
		at ^= unitOffset(u)
		if u&unitLeaf == 0 {
			continue
		}
		if !found(i+1, p.replacement(p.unit(at)&(1<<31-1))) {
			return
		}
	}
}

func (p *precompiled) replacement(offset uint32) string {
	if offset >= uint32(len(p.replacements)) {
		return ""
	}
	s, _, _ := strings.Cut(p.replacements[offset:], "\x00")
	return validText(s)
}

// first is the replacement of the shortest text of the table that s begins with.
func (p *precompiled) first(s string) (to string, ok bool) {
	p.prefixes(s, func(_ int, replacement string) bool {
		to, ok = replacement, true
		return false
	})
	return to, ok
}

// graphemeLimit is in bytes: `tokenizers` looks longer grapheme clusters up character by character.
const graphemeLimit = 6

// normalize is what `tokenizers` does, not what SentencePiece does: a short grapheme cluster as a whole becomes the
// replacement of the shortest entry that it begins with.
func (p *precompiled) normalize(s string) (string, error) {
	var b strings.Builder
	b.Grow(len(s))
	state := -1
	for rest := s; rest != ""; {
		var cluster string
		if plain := plainASCII(rest); plain > 0 {
			cluster, rest, state = rest[:1], rest[1:], -1
		} else {
			cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		}
		if len(cluster) < graphemeLimit {
			if to, ok := p.first(cluster); ok {
				b.WriteString(to)
				continue
			}
		}
		for i := 0; i < len(cluster); {
			n := runeWidth(cluster, i)
			if to, ok := p.first(cluster[i : i+n]); ok {
				b.WriteString(to)
			} else {
				b.WriteString(cluster[i : i+n])
			}
			i += n
		}
	}
	return b.String(), nil
}

// plainASCII is 1 where s begins with a printable ASCII character that is a grapheme cluster by itself, for speed.
func plainASCII(s string) int {
	if s[0] >= ' ' && s[0] < 0x7F && (len(s) == 1 || s[1] < utf8.RuneSelf) {
		return 1
	}
	return 0
}
