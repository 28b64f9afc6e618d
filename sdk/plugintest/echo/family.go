package echo

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// Names a test may need.
const (
	Name   = "echo"
	Graph  = "example.org/echo"
	Device = "cpu-echo"
	// Version is what plugin.yaml states.
	Version = "0.1.0"
)

//go:embed plugin.yaml
var manifest []byte

// Manifest is plugin.yaml at a version.
func Manifest(version string) []byte {
	return bytes.Replace(manifest, []byte("\nversion: "+Version+"\n"), []byte("\nversion: "+version+"\n"), 1)
}

// Family is the plugin as a value. Faults are for tests of the suite.
func Family(version string, faults ...Fault) plugin.Family {
	f := plugin.Family{
		Manifest: Manifest(version), Backend: &backend{version: version, faults: faults},
		Tables: []*cladev1.GraphTable{{Graph: Graph, Entries: []*cladev1.GraphEntry{{Id: "state"}}}},
	}
	for path, doc := range options {
		f.Options = append(f.Options, &cladev1.Option{Path: path, Doc: doc})
	}
	return f
}

// options is what the family honours.
var options = map[string]string{
	"device": "cpu-echo", "dtype": "float32", "kv.plain": "native or f32", "paging": "false",
	"rows": "1 to 64 requests in one step", "prefill_chunk": "tokens of one step of a prompt", "context": "most tokens of a sequence",
	"max_generation": "most tokens of one answer", "memory_budget_bytes": "a plan beyond it is not opened",
	"draft.depth": "most tokens drafted at once, 1 to 64, of the kind ngram", "speculation.enabled": "whether they are, for a request",
	"adapters": "ids, among the artifacts, of what requests have that choose nothing", "adapter_bytes": "most bytes of adapters loaded later",
	"adapter":       "loaded adapters by id, joined by +, each perhaps with :scale; none is the model alone",
	"deterministic": "always so", "threads": "a share that changes nothing",

	"max_tokens": "most tokens of the answer", "stop_token_ids": "end it; not emitted", "choice": "part of the noise key",
	"generated_prefix": "where the answer of a resumed request begins", "logprobs": "after bias and penalties; top up to 64",
	"constraint.choice":    "one of the texts, in bytes",
	"prefix_cache":         "states of earlier sequences may be read and kept",
	"sampling.temperature": "0 is greedy", "sampling.top_p": "in (0, 1]", "sampling.min_p": "in [0, 1]", "sampling.top_k": "0 keeps all",
	"sampling.repetition": "divides positive logits of seen tokens", "sampling.presence": "subtracted once from seen tokens",
	"sampling.frequency": "subtracted for each occurrence", "sampling.logit_bias": "added by id", "sampling.seed": "drawn when absent",
	"sampling.min_tokens": "no end before", "sampling.ignore_eos": "only stop_token_ids end the answer",
}

// Build compiles the plugin at a version into dir, with its manifest: clade-echo and plugin.yaml. It needs the go command
// and runs in this repository.
func Build(dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	exe := filepath.Join(dir, "clade-"+Name)
	if runtime.GOOS == "windows" {
		exe += ".exe"
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version="+version, "-o", exe,
		"github.com/clademl/clade/sdk/plugintest/echo/cmd/clade-echo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the echo plugin: %w\n%s", err, out)
	}
	return os.WriteFile(filepath.Join(dir, "plugin.yaml"), Manifest(version), 0o644)
}
