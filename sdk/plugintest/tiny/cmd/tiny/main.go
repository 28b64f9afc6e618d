// Command tiny writes the tiny checkpoints of a family below a directory.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

var families = map[string]func(...string) []tiny.Checkpoint{
	"llama": tiny.Llama, "dense": tiny.Dense, "qwen": tiny.Qwen3, "qwen-moe": tiny.Qwen3MoE, "qwen35": tiny.Qwen35, "qwen35-moe": tiny.Qwen35MoE,
	"qwen35-heads": heads, "llama-adapters": tiny.LlamaAdapters, "dense-gguf": tiny.DenseGGUF, "dense-quantized": tiny.DenseQuantized,
	"qwen-gguf": ggufs, "qwen35-adapters": tiny.Qwen35Adapters,
}

// ggufs are those of qwen that llama.cpp runs too.
func ggufs(...string) []tiny.Checkpoint { return append(tiny.Qwen3MoEGGUF(), tiny.Qwen35GGUF()...) }

// heads are those beside a dense model and a mixture.
func heads(...string) []tiny.Checkpoint {
	return append(tiny.Qwen35Heads("qwen35-hf-mtp"), tiny.Qwen35Heads("qwen35-moe-hf-mtp")...)
}

func main() {
	out := flag.String("out", "", "directory to write into")
	family := flag.String("family", "llama", "llama, dense (the rows of universal), dense-gguf (those that llama.cpp has, twice), dense-quantized, qwen, qwen-moe, qwen35, qwen35-moe, qwen35-heads, qwen-gguf (those that llama.cpp has), qwen35-adapters or llama-adapters")
	flag.Parse()
	checkpoints, known := families[*family]
	if *out == "" || !known {
		fmt.Fprintln(os.Stderr, "tiny: -out and a known -family are needed")
		os.Exit(2)
	}
	paths, err := tiny.WriteAll(*out, checkpoints())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d checkpoints below %s\n", len(paths), *out)
}
