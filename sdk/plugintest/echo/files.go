package echo

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/clademl/clade/sdk/artifact"
)

// Shape is a model's config; zero values are the defaults.
type Shape struct {
	// Vocab, 258 by default: the bytes, <end> (256, which ends an answer) and <pad>. Another one has no tokenizer.
	Vocab int
	// Context, 512 by default.
	Context int
	// StepMicros is how long one step takes at least, in microseconds.
	StepMicros int
	// Seed of the weights.
	Seed uint64
}

const (
	bytesVocab = 258
	endID      = 256
	// weightCount words are the weights: 256 KiB.
	weightCount = 1 << 16
	weightName  = "state.weight"
)

func (s Shape) complete() Shape {
	if s.Vocab == 0 {
		s.Vocab = bytesVocab
	}
	if s.Context == 0 {
		s.Context = 512
	}
	return s
}

// WriteModel writes a model into dir, which it makes.
func WriteModel(dir string, s Shape) error {
	s = s.complete()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	eos := min(endID, s.Vocab-1)
	config := map[string]any{
		"model_type": "echo", "vocab_size": s.Vocab, "max_position_embeddings": s.Context, "eos_token_id": eos,
		"step_micros": s.StepMicros,
	}
	if err := writeJSON(filepath.Join(dir, "config.json"), config); err != nil {
		return err
	}
	if s.Vocab == bytesVocab {
		if err := writeJSON(filepath.Join(dir, "tokenizer.json"), tokenizerFile()); err != nil {
			return err
		}
	}
	data := make([]byte, 0, 4*weightCount)
	for i := range uint64(weightCount) {
		// Any finite float32: the state machine takes its bits.
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(int32(mix(s.Seed, i)))))
	}
	return artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), []artifact.NewTensor{
		{Name: weightName, DType: artifact.F32, Shape: []int64{weightCount}, Data: data},
	}, nil)
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, data, 0o644)
}

// tokenizerFile is a byte-level tokenizer.json without merges: the id of a byte is the byte.
func tokenizerFile() map[string]any {
	vocab := map[string]int{"<end>": endID, "<pad>": endID + 1}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if b <= ' ' || b >= 0x7f && b <= 0xa0 || b == 0xad {
			r = next // the alphabet of GPT-2: bytes that do not print stand at 256 and up
			next++
		}
		vocab[string(r)] = b
	}
	added := func(id int, text string) map[string]any {
		return map[string]any{
			"id": id, "content": text, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		}
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "post_processor": nil,
		"added_tokens": []any{added(endID, "<end>"), added(endID+1, "<pad>")}, "pre_tokenizer": level, "decoder": level,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []any{},
		},
	}
}
