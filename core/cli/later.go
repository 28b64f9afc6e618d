package cli

import (
	"github.com/spf13/cobra"

	"github.com/clademl/clade/sdk/contract"
)

// nextVersion brings the verbs and flags that this version announces.
const nextVersion = "0.2.0"

// later are verbs that are named now so that nobody mistakes them for typing errors.
var later = []struct{ use, short string }{
	{"convert", "Convert or quantize a model"},
}

func laterCommands() []*cobra.Command {
	var out []*cobra.Command
	for _, l := range later {
		out = append(out, laterCommand(l.use, l.short))
	}
	return out
}

func laterCommand(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short + " (comes with " + nextVersion + ")", DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return contract.Errorf(contract.UnsupportedOption, verbOf(cmd), "comes with version %s; this is %s", nextVersion, Version)
		},
	}
}
