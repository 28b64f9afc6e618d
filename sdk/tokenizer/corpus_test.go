package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// corpus makes the random texts of testdata/corpus.py.
type corpus struct {
	Pools []struct {
		Name   string    `json:"name"`
		Ranges [][2]rune `json:"ranges"`
		Items  []string  `json:"items"`
		Hex    []string  `json:"hex"`
	} `json:"pools"`
}

// corpusChunk is how many texts share a hash in golden.json.
const corpusChunk = 20

func readCorpus(t testing.TB) *corpus {
	t.Helper()
	data, err := os.ReadFile("testdata/corpus.json")
	require.NoError(t, err)
	var c corpus
	require.NoError(t, json.Unmarshal(data, &c))
	return &c
}

type numbers uint64

func (r *numbers) below(n int) int {
	*r = *r*6364136223846793005 + 1442695040888963407
	return int(uint64(*r>>33) % uint64(n))
}

func (c *corpus) pick(r *numbers, pool int) string {
	p := c.Pools[pool]
	switch {
	case p.Items != nil:
		return p.Items[r.below(len(p.Items))]
	case p.Hex != nil:
		b, _ := hex.DecodeString(strings.ReplaceAll(p.Hex[r.below(len(p.Hex))], " ", ""))
		return string(b)
	}
	lohi := p.Ranges[r.below(len(p.Ranges))]
	return string(lohi[0] + rune(r.below(int(lohi[1]-lohi[0]+1))))
}

func (c *corpus) text(i int) string {
	r := numbers(uint64(i+1) * 0x9E3779B97F4A7C15)
	space := 0
	for c.Pools[space].Name != "space" {
		space++
	}
	pools := make([]int, 1+r.below(3))
	for k := range pools {
		pools[k] = r.below(len(c.Pools))
	}
	var b strings.Builder
	for range r.below(48) {
		if r.below(6) == 0 {
			b.WriteString(c.pick(&r, space))
			continue
		}
		b.WriteString(c.pick(&r, pools[r.below(len(pools))]))
	}
	return b.String()
}

// corpusLine is what corpus.py hashes of one text.
func corpusLine(t testing.TB, tok *Tokenizer, text string) string {
	t.Helper()
	var b strings.Builder
	var plain []int32
	for _, special := range []bool{false, true} {
		ids, err := tok.Encode(text, special)
		require.NoError(t, err, "%q", text)
		for i, id := range ids {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strconv.Itoa(int(id)))
		}
		b.WriteByte('\n')
		if !special {
			plain = ids
		}
	}
	return b.String() + tok.Decode(plain, false) + "\n" + tok.Decode(plain, true) + "\n"
}

// TestTwoThousandRandomTextsEqualHuggingFace: which text of a chunk differs, and how, tells testdata/corpus.py or make
// test-full, which compares text by text.
func TestTwoThousandRandomTextsEqualHuggingFace(t *testing.T) {
	c := readCorpus(t)
	eachGolden(t, func(t *testing.T, tok *Tokenizer, _ *golden, want goldenTokenizer) {
		t.Parallel()
		hashes := strings.Fields(want.Random)
		require.Len(t, hashes, 100)
		for chunk, hash := range hashes {
			h := sha256.New()
			for i := range corpusChunk {
				fmt.Fprint(h, corpusLine(t, tok, c.text(chunk*corpusChunk+i)))
			}
			require.Equal(t, hash, hex.EncodeToString(h.Sum(nil))[:8], "texts %d to %d", chunk*corpusChunk, chunk*corpusChunk+corpusChunk-1)
		}
	})
}
