package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest"
	"github.com/clademl/clade/sdk/plugintest/check"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// The binary that `make build` made, on a tiny llama of each loader.
func TestThePluginKeepsTheContract(t *testing.T) {
	exe, err := filepath.Abs("../../bin/plugins/universal/clade-universal")
	require.NoError(t, err)
	_, err = os.Stat(exe)
	require.NoError(t, err, "make build makes it")
	paths, err := tiny.WriteAll(t.TempDir(), tiny.LlamaAdapters())
	require.NoError(t, err)
	for name, model := range map[string]string{
		"llama-f32": speller(t), "llama-gguf-q8_0.gguf": tinyPaths["llama-gguf-q8_0.gguf"],
	} {
		t.Run(name, func(t *testing.T) {
			r := plugintest.Run(t, check.Options{Path: exe, Model: model, Adapters: []string{paths["mlx-attention"], paths["peft-all"]}, Runtime: runtimeDir()})
			for _, x := range r.Results {
				if strings.HasPrefix(x.Name, "adapters-") {
					require.Equal(t, check.Passed, x.Status, "%s: %s", x.Name, x.Reason)
				}
			}
		})
	}
}
