package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/clademl/clade/sdk/artifact"
)

// layered is a shape in bfloat16 of which most layers say little, so that its first ones alone agree with it mostly.
type layered struct {
	shape
	seed uint64
	// loud layers are as random as those of any shape; the others add a sixteenth of that to what they are given.
	loud int
}

// deep is such a model, firstLayer is its first layer, which drafts for it, and stranger is as small and has nothing to do with it.
var (
	deep       = layered{shape{"deep-135m-bf16", 768, 16, 12, 4, 64, 2304, 4096, 0}, 2, 1}
	firstLayer = layered{shape{"deep-135m-bf16-first-layer", 768, 1, 12, 4, 64, 2304, 4096, 0}, 2, 1}
	stranger   = layered{shape{"stranger-bf16", 768, 1, 12, 4, 64, 2304, 4096, 0}, 9, 1}
)

func (l layered) write(dir string) error {
	return writeOnce(dir, l.config("llama"), func() []artifact.NewTensor {
		tensors := l.drawn(rand.New(rand.NewPCG(1, l.seed)))
		quiet := map[string]bool{}
		for i := l.loud; i < l.layers; i++ {
			for _, name := range []string{"self_attn.o_proj", "mlp.down_proj"} {
				quiet[fmt.Sprintf("model.layers.%d.%s.weight", i, name)] = true
			}
		}
		for _, t := range tensors {
			if quiet[t.Name] {
				lower(t.Data)
			}
		}
		return tensors
	})
}

// lower divides bfloat16 values that are far from zero by 16: the exponent, whose bits begin in the second byte, is less by 4.
func lower(data []byte) {
	for i := 1; i < len(data); i += 2 {
		data[i] -= 4 >> 1
	}
}

// in writes it once, and returns where.
func (l layered) in(root string) (string, error) {
	dir := filepath.Join(root, "bin", "bench", l.name)
	return dir, l.write(dir)
}
