package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest"
	"github.com/clademl/clade/sdk/plugintest/check"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// adapters names the checkpoint whose tiny adapters fit a model.
var adapters = map[string]string{"qwen35-hf": "qwen35-hf", "qwen35-moe-hf-mtp": "qwen35-moe-hf", "qwen35-moe-affine4": "qwen35-moe-affine4"}

// The binary that `make build` made, on tiny models; with -tags full, of every graph.
func TestThePluginKeepsTheContract(t *testing.T) {
	exe, err := filepath.Abs("../../bin/plugins/qwen/clade-qwen")
	require.NoError(t, err)
	_, err = os.Stat(exe)
	require.NoError(t, err, "make build makes it")
	for _, c := range slices.Concat(tiny.Qwen3(), tiny.Qwen3MoE(), tiny.Qwen3MoEGGUF(), tiny.Qwen35(), tiny.Qwen35MoE(), tiny.Qwen35GGUF()) {
		if !slices.Contains(held, c.Name) {
			continue
		}
		path, err := c.Write(t.TempDir())
		require.NoError(t, err)
		o := check.Options{Path: exe, Model: path, Runtime: enginetest.RuntimeDir()}
		if fits := adapters[c.Name]; fits != "" {
			paths, err := tiny.WriteAll(t.TempDir(), tiny.Qwen35Adapters(fits))
			require.NoError(t, err)
			o.Adapters = []string{paths[fits+".mlx"], paths[fits+".peft"]}
		}
		t.Run(c.Name, func(t *testing.T) { plugintest.Run(t, o) })
		if !slices.Contains(paged, c.Name) {
			continue
		}
		o.Compose = func(c *cladev1.Composition) {
			c.Paging, c.PrefixCacheBytes = ptr(true), ptr(uint64(64<<20))
			c.PrefixDiskBytes, c.PrefixDiskDir = ptr(uint64(64<<20)), ptr(filepath.Join(t.TempDir(), "prefix"))
		}
		t.Run(c.Name+" paged and on disk", func(t *testing.T) { plugintest.Run(t, o) })
	}
}

func ptr[T any](v T) *T { return &v }
