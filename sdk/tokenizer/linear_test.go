package tokenizer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMegabyteOfOneThingTakesLinearTime: sixteen times the text takes about sixteen times as long, here with a factor of 8
// for a machine that does other things; quadratic work would take 256 times.
func TestMegabyteOfOneThingTakesLinearTime(t *testing.T) {
	const small, factor = 1 << 16, 16
	for _, name := range []string{"gpt2", "llama3", "spm", "unigram", "bert", "level", "clip", "meta-first", "flags"} {
		tok := readTokenizer(t, name)
		t.Run(name, func(t *testing.T) {
			for _, unit := range []string{"a", " ", "😀"} {
				took := func(size int) time.Duration {
					text := strings.Repeat(unit, size/len(unit))
					start := time.Now()
					_, err := tok.Encode(text, false)
					require.NoError(t, err)
					return time.Since(start)
				}
				base := max(took(small), took(small), 4*time.Millisecond)
				require.Less(t, took(small*factor), 8*factor*base, "%q", unit)
			}
		})
	}
}
