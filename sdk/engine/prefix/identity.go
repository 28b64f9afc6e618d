package prefix

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"
	"strings"
)

// Identity names everything but the tokens that a payload depends on: artifact bytes, graph id and revision, kernel set
// revision, runtime version, device, dtype, KV scheme, overrides, adapters, media, tokenizer digest. Fields are hashed with their
// lengths, so that no two lists run together to one.
type Identity []string

// Key names a run.
type Key struct {
	// Sum is of the identity and all tokens up to the run's end.
	Sum [sha256.Size]byte
	// Block is of those up to the multiple of Run before the end, shortened: runs of the texts that share them are found by it.
	Block [16]byte
	End   int
}

// Keys are those of the runs that end at each of ends, positions in ascending order of which none is zero. The key of a position
// depends on the tokens before it alone, not on the other ends.
func (id Identity) Keys(tokens []int32, ends []int) []Key {
	out := make([]Key, 0, len(ends))
	h, seed, from := sha256.New(), id.seed(), 0
	for _, end := range ends {
		for ; from+Run < end; from += Run {
			seed = next(h, seed, tokens[from:from+Run])
		}
		out = append(out, Key{Sum: [sha256.Size]byte(next(h, seed, tokens[from:end])), Block: [16]byte(seed), End: end})
	}
	return out
}

// blocks are the Blocks of all runs that the tokens may begin with.
func (id Identity) blocks(tokens []int32) map[[16]byte]bool {
	h, seed, out := sha256.New(), id.seed(), map[[16]byte]bool{}
	for from := 0; from < len(tokens); from += Run {
		out[[16]byte(seed)] = true
		seed = next(h, seed, tokens[from:min(from+Run, len(tokens))])
	}
	return out
}

func (id Identity) seed() []byte {
	h := sha256.New()
	for _, field := range id {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(field))) // a hash takes all
		h.Write([]byte(field))
	}
	return h.Sum(nil)
}

func next(h hash.Hash, seed []byte, tokens []int32) []byte {
	h.Reset()
	h.Write(seed)
	_ = binary.Write(h, binary.LittleEndian, tokens) // a hash takes all
	return h.Sum(nil)
}

// Named is a key that stands for something else than tokens.
func Named(text string) Key { return Key{Sum: sha256.Sum256([]byte("named " + text))} }

const diskSuffix = ".kv"

// name is the file's.
func (k Key) name() string {
	return hex.EncodeToString(k.Block[:]) + "-" + strconv.Itoa(k.End) + "-" + hex.EncodeToString(k.Sum[:]) + diskSuffix
}

// parseName reads a file's name.
func parseName(name string) (k Key, ok bool) {
	base, ok := strings.CutSuffix(name, diskSuffix)
	parts := strings.Split(base, "-")
	if !ok || len(parts) != 3 || len(parts[0]) != 2*len(k.Block) || len(parts[2]) != 2*len(k.Sum) {
		return Key{}, false
	}
	_, err := hex.Decode(k.Block[:], []byte(parts[0]))
	if err == nil {
		_, err = hex.Decode(k.Sum[:], []byte(parts[2]))
	}
	if err == nil {
		k.End, err = strconv.Atoi(parts[1])
	}
	return k, err == nil && k.name() == name
}

// Ends are where a Disk's runs of a text end: at multiples of Run, at borders, which are positions in any order, and at the last token.
func Ends(tokens int, borders []int) []int {
	var out []int
	for at := Run; at < tokens; at += Run {
		out = append(out, at)
	}
	for _, b := range borders {
		if b > 0 && b < tokens {
			out = append(out, b)
		}
	}
	if tokens > 0 {
		out = append(out, tokens)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
