package qwen3

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// The bound of the spine issue: 1e-5 of the largest logit.
const oracleBound = 1e-5

var tinyPaths map[string]string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "clade-tiny-")
	if err == nil {
		tinyPaths, err = tiny.WriteAll(dir, slices.Concat(tiny.Qwen3(), tiny.Qwen3MoE()))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func subject(name string, target weights.Target, chunk int) enginetest.Subject {
	graph := Graph()
	if strings.HasPrefix(name, "qwen3-moe") {
		graph = MoEGraph()
	}
	return enginetest.Subject{
		Graph: graph, Manifest: "../plugin.yaml", Path: tinyPaths[name], Target: target,
		Config: engine.Config{PrefillChunk: chunk},
	}
}

func TestLogitsAndGreedyIDsEqualMLXLM(t *testing.T) {
	goldens := slices.Concat(enginetest.Goldens(t, "../testdata/qwen3.json"), enginetest.Goldens(t, "../testdata/qwen3_moe.json"))
	require.Len(t, goldens, len(tinyPaths))
	for _, g := range goldens {
		t.Run(g.Name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				e := subject(g.Name, target, 512).Open(t)
				g.Hold(t, e, oracleBound)
			})
		})
	}
}

// On the kernels a row's bits do not depend on how the prompt is cut; stock operations keep to the oracle's bound.
func TestLogitsDoNotDependOnThePrefillChunk(t *testing.T) {
	ids := tiny.Prompt(120, 256)
	for _, name := range []string{"qwen3-f32", "qwen3-affine4", "qwen3-moe-64", "qwen3-moe-affine4"} {
		t.Run(name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				whole := enginetest.Logits(t, subject(name, target, 512).Open(t), ids)
				for _, chunk := range []int{1, 7, 8, 31, 32, 33, 100} {
					cut := enginetest.Logits(t, subject(name, target, chunk).Open(t), ids)
					if target.Kernels != nil {
						require.Equal(t, whole, cut, "chunk %d", chunk)
						continue
					}
					for i := range ids {
						require.LessOrEqual(t, enginetest.Distance(whole[i], cut[i]), oracleBound, "position %d, chunk %d", i, chunk)
					}
				}
			})
		})
	}
}

// Narrow activations run on both ways and stay near each other.
func TestNarrowActivationsStayNearTheWideOnes(t *testing.T) {
	ids := tiny.Prompt(40, 256)
	enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
		for _, name := range []string{"qwen3-untied-bf16", "qwen3-moe-hf-bf16"} {
			target.DType = mlx.Float32
			wide := enginetest.Logits(t, subject(name, target, 512).Open(t), ids)
			for _, dtype := range []mlx.DType{mlx.BFloat16, mlx.Float16} {
				target.DType = dtype
				narrow := enginetest.Logits(t, subject(name, target, 512).Open(t), ids)
				require.LessOrEqual(t, enginetest.Distance(wide[0], narrow[0]), 0.1, "%s, %v", name, dtype)
			}
		}
	})
}
