package guidance

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

var library *Library

// libraryPath is where make setup puts the CPU runtime's.
func libraryPath() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin", "runtime", "cpu", "mlx", "lib", "libguidance.so")
}

func TestMain(m *testing.M) {
	var err error
	if library, err = Open(libraryPath()); err != nil {
		fmt.Fprintln(os.Stderr, "no libguidance: run make setup:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// words is a tokenizer for tests: all bytes, then pieces, longest first; the last id ends a text.
type words struct {
	pieces []string
	ids    map[string]int32
	most   int
}

func newWords(pieces ...string) *words {
	w := &words{ids: map[string]int32{}}
	add := func(s string) {
		if _, has := w.ids[s]; !has {
			w.ids[s] = int32(len(w.pieces))
			w.pieces, w.most = append(w.pieces, s), max(w.most, len(s))
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for _, p := range pieces {
		add(p)
	}
	w.pieces = append(w.pieces, "<|end|>")
	return w
}

func (w *words) end() int32              { return int32(len(w.pieces) - 1) }
func (w *words) IsSpecial(id int32) bool { return id == w.end() }
func (w *words) TokenBytes(id int32) []byte {
	if int(id) >= len(w.pieces) {
		return nil
	}
	return []byte(w.pieces[id])
}

func (w *words) Encode(text string, _ bool) ([]int32, error) {
	var out []int32
	for len(text) > 0 {
		for n := min(len(text), w.most); ; n-- {
			if id, ok := w.ids[text[:n]]; ok {
				out, text = append(out, id), text[n:]
				break
			}
		}
	}
	return out, nil
}

func (w *words) text(ids []int32) string {
	var out []byte
	for _, id := range ids {
		out = append(out, w.pieces[id]...)
	}
	return string(out)
}

// common are pieces that make JSON in few tokens.
var common = []string{
	"  ", "    ", "\n ", "\n  ", `{"`, `":`, `": `, `",`, `", "`, `"}`, `"]`, `},`, `],`, "true", "false", "null", "the", " the", "name", "age", "a\":", "id",
	"10", "00", "é", "日本", "\\u", "\\n", "foo", "bar", "baz", "0.", "e+", "-1", "[]", "{}", "[[", "}}", "]]", `""`,
}

func newTestVocabulary(t testing.TB, w *words) *Vocabulary {
	t.Helper()
	v, err := library.Vocabulary(w, len(w.pieces)+3, []int32{w.end()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

// start compiles a constraint that must be accepted.
func start(t testing.TB, v *Vocabulary, c *cladev1.Constraint) *Matcher {
	t.Helper()
	g, err := Read(c)
	require.NoError(t, err)
	m, err := v.Start(g)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

func schema(text string) *cladev1.Constraint {
	return &cladev1.Constraint{Grammar: &cladev1.Constraint_JsonSchema{JsonSchema: text}}
}

// wander samples a text at random: freely at first, then along what ends it. ok tells whether it came to an end.
func wander(t testing.TB, m Constraint, w *words, rng *rand.Rand, free, most int) (ids []int32, ok bool) {
	t.Helper()
	mask := make([]uint32, m.(*Matcher).vocabulary.Words())
	for range most {
		if m.Done() {
			return ids, true
		}
		require.NoError(t, m.Mask(mask))
		id := pick(mask, w, rng, len(ids) < free)
		if id == w.end() {
			return ids, true
		}
		require.NoError(t, m.Commit(id))
		ids = append(ids, id)
	}
	return ids, false
}

// closing are what ends a text soonest, in this order.
var closing = []string{`"`, "}", "]", `"}`, `"]`, `"`, ":", ",", "0", "1", "t", "f", "n", "[", "{"}

func pick(mask []uint32, w *words, rng *rand.Rand, free bool) int32 {
	allowed := func(id int32) bool { return mask[id/32]>>(id%32)&1 == 1 }
	if !free && allowed(w.end()) {
		return w.end()
	}
	if !free && rng.IntN(4) > 0 { // patterns may want what closes nothing
		for _, s := range closing {
			if id := w.ids[s]; allowed(id) {
				return id
			}
		}
	}
	n := 0
	for _, word := range mask {
		n += bits.OnesCount32(word)
	}
	at := rng.IntN(n)
	for i, word := range mask {
		if c := bits.OnesCount32(word); at >= c {
			at -= c
			continue
		}
		for ; ; word &= word - 1 {
			if at == 0 {
				return int32(32*i + bits.TrailingZeros32(word))
			}
			at--
		}
	}
	panic("no token is allowed")
}

// takes tells whether the grammar takes the whole text, and may end there.
func takes(t testing.TB, m *Matcher, w *words, text string) bool {
	t.Helper()
	ids, err := w.Encode(text, false)
	require.NoError(t, err)
	n, err := m.Valid(ids)
	require.NoError(t, err)
	if n < len(ids) {
		return false
	}
	c, err := m.Clone()
	require.NoError(t, err)
	defer c.Close()
	for _, id := range ids {
		require.NoError(t, c.Commit(id))
	}
	return c.(*Matcher).Accepting() || c.Done()
}
