package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest"
	"github.com/clademl/clade/sdk/plugintest/check"
)

// The binary that `make build` made, on a tiny llama of each loader.
func TestThePluginKeepsTheContract(t *testing.T) {
	exe, err := filepath.Abs("../../bin/plugins/universal/clade-universal")
	require.NoError(t, err)
	_, err = os.Stat(exe)
	require.NoError(t, err, "make build makes it")
	for name, model := range map[string]string{
		"llama-f32": speller(t), "llama-gguf-q8_0.gguf": tinyPaths["llama-gguf-q8_0.gguf"],
	} {
		t.Run(name, func(t *testing.T) {
			plugintest.Run(t, check.Options{Path: exe, Model: model, Runtime: runtimeDir()})
		})
	}
}
