package check

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/artifact/lora"
)

// adapterDamage is one way in which an adapter is no adapter of the model.
type adapterDamage struct {
	what string
	do   func(dir string) error
}

var adapterDamages = []adapterDamage{
	{"a cut file", func(dir string) error {
		path := adapterWeights(dir)
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()-1)
	}},
	{"half of a pair", rewrite(func(t []artifact.NewTensor) []artifact.NewTensor { return t[1:] })},
	{"a tensor that is no half of a pair", rewrite(func(t []artifact.NewTensor) []artifact.NewTensor {
		return append(t, artifact.NewTensor{Name: "model.layers.0.magnitude", DType: artifact.F32, Shape: []int64{1}, Data: make([]byte, 4)})
	})},
	{"a value that is no number", rewrite(func(t []artifact.NewTensor) []artifact.NewTensor {
		last := t[len(t)-1]
		switch last.DType {
		case artifact.F32:
			binary.LittleEndian.PutUint32(last.Data[len(last.Data)-4:], math.Float32bits(float32(math.NaN())))
		case artifact.BF16:
			binary.LittleEndian.PutUint16(last.Data[len(last.Data)-2:], 0x7fc0)
		default:
			binary.LittleEndian.PutUint16(last.Data[len(last.Data)-2:], 0x7e00)
		}
		return t
	})},
	{"another shape", rewrite(func(t []artifact.NewTensor) []artifact.NewTensor {
		t[0].Shape = []int64{t[0].Shape[0], t[0].Shape[1] + 1}
		t[0].Data = append(t[0].Data, make([]byte, t[0].Shape[0]*int64(len(t[0].Data))/(t[0].Shape[0]*(t[0].Shape[1]-1)))...)
		return t
	})},
	{"no weights", func(dir string) error { return os.Remove(adapterWeights(dir)) }},
	{"no config", func(dir string) error { return os.Remove(filepath.Join(dir, lora.ConfigFile)) }},
	{"an empty config", func(dir string) error { return os.WriteFile(filepath.Join(dir, lora.ConfigFile), []byte("{}"), 0o600) }},
}

func adapterWeights(dir string) string {
	path := filepath.Join(dir, lora.MLXWeights)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(dir, lora.PEFTWeights)
	}
	return path
}

// rewrite changes the tensors of an adapter.
func rewrite(change func([]artifact.NewTensor) []artifact.NewTensor) func(dir string) error {
	return func(dir string) error {
		path := adapterWeights(dir)
		a, err := artifact.OpenFile(path)
		if err != nil {
			return err
		}
		var tensors []artifact.NewTensor
		for _, t := range a.Tensors() {
			data := make([]byte, t.Bytes)
			if _, err := a.ReadAt(t, data, 0); err != nil {
				return errors.Join(err, a.Close())
			}
			tensors = append(tensors, artifact.NewTensor{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape), Data: data})
		}
		if err := a.Close(); err != nil {
			return err
		}
		return artifact.WriteSafetensors(path, change(tensors), nil)
	}
}
