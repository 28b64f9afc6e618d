// Command tiny writes the tiny checkpoints of every graph below a directory.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

func main() {
	out := flag.String("out", "", "directory to write into")
	flag.Parse()
	if *out == "" {
		fmt.Fprintln(os.Stderr, "tiny: -out is missing")
		os.Exit(2)
	}
	paths, err := tiny.WriteAll(*out, tiny.Llama())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d checkpoints below %s\n", len(paths), *out)
}
