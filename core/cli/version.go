package cli

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/sdk/contract"
)

// Version of the host.
const Version = "0.1.0"

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		if *asJSON {
			return a.printJSON(map[string]any{
				"version": Version, "build": a.build, "contract": []int{contract.Major}, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
			})
		}
		_, err := fmt.Fprintf(a.Out, "clade %s (%s)\n", Version, strings.Join(nonEmpty(
			a.build, fmt.Sprintf("contract %d", contract.Major), runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH), ", "))
		return err
	}
	return cmd
}
