package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/tokenizer"
)

const (
	tokenizeBytes = 10 << 20
	tokenizePiece = 16 << 10 // what a long prompt is
)

// tokenizeRows encode 10 MB of this repository's sources and documents, in pieces of 16 KB, with the vocabulary of the GGUF
// file, beside Hugging Face `tokenizers` with the tokenizer.json made of it. Both use one thread; equal counts of ids are a
// condition.
func (o options) tokenizeRows(ctx context.Context) ([]Row, error) {
	dir, err := os.MkdirTemp("", "clade-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	pieces, err := o.tokenizeText()
	if err != nil {
		return nil, err
	}
	text, made := filepath.Join(dir, "text"), filepath.Join(dir, "tokenizer.json")
	if err := os.WriteFile(text, []byte(strings.Join(pieces, "\x00")), 0o600); err != nil {
		return nil, err
	}
	script := filepath.Join(o.root, "sdk", "tokenizer", "testdata", "gguf_json.py")
	if out, err := exec.CommandContext(ctx, o.python, script, o.model, made).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", script, err, out)
	}
	a, err := artifact.Open(o.model)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	tok, err := tokenizer.FromArtifact(a)
	if err != nil {
		return nil, err
	}
	return o.pairTokenizers(ctx, tok, made, text, pieces)
}

// tokenizeText is the repository's own text, repeated up to 10 MB.
func (o options) tokenizeText() ([]string, error) {
	var all strings.Builder
	for _, pattern := range []string{"docs/*.md", "sdk/*/*.go", "core/*/*.go", "sdk/tokenizer/testdata/corpus.json", "native/kernels/*.cpp"} {
		files, err := filepath.Glob(filepath.Join(o.root, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			all.Write(data)
		}
	}
	source := strings.ReplaceAll(strings.ToValidUTF8(all.String(), ""), "\x00", "")
	var pieces []string
	for size := 0; size < tokenizeBytes; {
		for rest := source; rest != "" && size < tokenizeBytes; {
			n := min(tokenizePiece, len(rest))
			piece := strings.ToValidUTF8(rest[:n], "")
			pieces, rest, size = append(pieces, piece), rest[n:], size+len(piece)
		}
	}
	return pieces, nil
}

func (o options) pairTokenizers(ctx context.Context, tok *tokenizer.Tokenizer, made, text string, pieces []string) ([]Row, error) {
	cmd := exec.CommandContext(ctx, o.python, filepath.Join(o.root, "bench", "peers", "tokenizers_encode.py"), made)
	cmd.Env = append(os.Environ(), "TOKENIZERS_PARALLELISM=false", "RAYON_NUM_THREADS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	answers := bufio.NewScanner(out)
	answers.Scan()
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	var ours, theirs []float64
	for range o.repeats {
		start, n := time.Now(), 0
		for _, p := range pieces {
			ids, err := tok.Encode(p, false)
			if err != nil {
				return nil, err
			}
			n += len(ids)
		}
		ours = append(ours, float64(size)/1e6/time.Since(start).Seconds())
		if err := json.NewEncoder(in).Encode(map[string]string{"path": text}); err != nil {
			return nil, err
		}
		var answer struct {
			Seconds float64 `json:"seconds"`
			IDs     int     `json:"ids"`
		}
		if !answers.Scan() {
			return nil, fmt.Errorf("tokenizers: no answer: %w", answers.Err())
		}
		if err := json.Unmarshal(answers.Bytes(), &answer); err != nil {
			return nil, err
		}
		if answer.IDs != n {
			return nil, fmt.Errorf("tokenizers: %d ids, want %d as ours", answer.IDs, n)
		}
		theirs = append(theirs, float64(size)/1e6/answer.Seconds)
	}
	return []Row{paired("tokenize/encode-10MB", "MB/s", "tokenizers", ours, theirs, ">= 1x")}, nil
}
