// Command guidance times the masks of constrained decoding at a vocabulary of 128,256 ids, for the bench: JSON on stdout.
//
//	guidance -library bin/runtime/cpu/mlx/lib/libguidance.so -model MODEL.gguf -repeats 5
//
// The vocabulary is the model's own 49,152 tokens, and joined pairs of them up to the size of Llama 3's. Texts that fit their
// grammar are replayed, token by token, each on a grammar that was just compiled, so that nothing is remembered from the text
// before: what is timed is what a request waits for. Not for: what the masks allow, which sdk/guidance tests.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/guidance"
	"github.com/clademl/clade/sdk/tokenizer"
)

// width is Llama 3's vocabulary.
const width = 128256

// result is one repeat, in microseconds.
type result struct {
	Masks                       int
	P50, P99, Most, Commit, New float64
	Vocabulary                  float64 // once a model
}

func main() {
	library := flag.String("library", "bin/runtime/cpu/mlx/lib/libguidance.so", "libguidance")
	model := flag.String("model", "bin/demo/SmolLM2-135M-Instruct.Q4_1.gguf", "whose tokens are used")
	repeats := flag.Int("repeats", 5, "repeats")
	flag.Parse()
	if err := run(*library, *model, *repeats); err != nil {
		fmt.Fprintln(os.Stderr, "guidance:", err)
		os.Exit(1)
	}
}

func run(path, model string, repeats int) error {
	library, err := guidance.Open(path)
	if err != nil {
		return err
	}
	a, err := artifact.Open(model)
	if err != nil {
		return err
	}
	defer a.Close()
	own, err := tokenizer.FromArtifact(a)
	if err != nil {
		return err
	}
	wide := widen(own)
	began := time.Now()
	v, err := library.Vocabulary(wide, width, own.EOS())
	if err != nil {
		return err
	}
	made := microseconds(time.Since(began))
	defer v.Close()
	out := json.NewEncoder(os.Stdout)
	for range repeats {
		r, err := measure(v, wide)
		if err != nil {
			return err
		}
		r.Vocabulary = made
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// wideTokenizer is a tokenizer with joined pairs of its tokens behind its own ids.
type wideTokenizer struct {
	guidance.Tokenizer
	narrow int
	extra  [][]byte
}

func (w *wideTokenizer) IsSpecial(id int32) bool {
	return int(id) < w.narrow && w.Tokenizer.IsSpecial(id)
}

func (w *wideTokenizer) TokenBytes(id int32) []byte {
	if int(id) < w.narrow {
		return w.Tokenizer.TokenBytes(id)
	}
	if at := int(id) - w.narrow; at < len(w.extra) {
		return w.extra[at]
	}
	return nil
}

func widen(own *tokenizer.Tokenizer) *wideTokenizer {
	w := &wideTokenizer{Tokenizer: guidance.ForTokenizer(own), narrow: own.VocabSize()}
	seen := map[string]bool{}
	for step := 1; w.narrow+len(w.extra) < width; step += 2 { // each token with the one some steps on: words with endings, and mixes
		for id := 300; id+step < w.narrow && w.narrow+len(w.extra) < width; id++ {
			a := w.Tokenizer.TokenBytes(int32(id))
			b := w.Tokenizer.TokenBytes(int32((id*7919 + step) % w.narrow))
			joined := string(a) + string(b)
			if len(a) == 0 || len(b) == 0 || len(joined) > 24 || seen[joined] {
				continue
			}
			seen[joined] = true
			w.extra = append(w.extra, []byte(joined))
		}
	}
	return w
}

func measure(v *guidance.Vocabulary, t guidance.Tokenizer) (result, error) {
	var masks, commits, news []float64
	bits := make([]uint32, v.Words())
	for _, c := range cases() {
		g, err := guidance.Read(c.constraint)
		if err != nil {
			return result{}, err
		}
		ids, err := t.Encode(c.text, false)
		if err != nil {
			return result{}, err
		}
		began := time.Now()
		m, err := v.Start(g)
		if err != nil {
			return result{}, err
		}
		news = append(news, microseconds(time.Since(began)))
		for _, id := range ids {
			began = time.Now()
			if err := m.Mask(bits); err != nil {
				return result{}, err
			}
			masked := time.Now()
			masks = append(masks, microseconds(masked.Sub(began)))
			if err := m.Commit(id); err != nil {
				return result{}, fmt.Errorf("%s: %w", c.text, err)
			}
			commits = append(commits, microseconds(time.Since(masked)))
		}
		m.Close()
	}
	return result{Masks: len(masks), P50: quantile(masks, 0.5), P99: quantile(masks, 0.99), Most: quantile(masks, 1), Commit: quantile(commits, 0.5), New: quantile(news, 0.5)}, nil
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1))]
}

// grammarText is a grammar and a text in it.
type grammarText struct {
	constraint *cladev1.Constraint
	text       string
}

func schema(text string) *cladev1.Constraint {
	return &cladev1.Constraint{Grammar: &cladev1.Constraint_JsonSchema{JsonSchema: text}}
}
