package echo

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/plugintest/tiny"
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
	bytesVocab = tiny.ByteVocab
	endID      = tiny.ByteEnd
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
		if err := tiny.WriteByteTokenizer(dir); err != nil {
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
