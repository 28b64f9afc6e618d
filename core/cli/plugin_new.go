package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/plugins/scaffold"
	"github.com/clademl/clade/sdk/contract"
)

// pluginNewCommand writes the beginning of a family.
func (a *app) pluginNewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Begin a family of your own", Args: cobra.ExactArgs(1),
		Long: "Writes a module that builds outside of clade's repository: a manifest, a small graph, a kernel of its own, tests, CI. Its\n" +
			"README has the next steps.",
	}
	o := scaffold.Options{}
	dir := cmd.Flags().String("dir", "", "folder to write, NAME without")
	cmd.Flags().StringVar(&o.Domain, "domain", "", "what the graph id begins with, example.org without")
	cmd.Flags().StringVar(&o.SDKProxy, "sdk-proxy", "", "goproxy folder of a release index, while no Go proxy has the sdk")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		o.Name = args[0]
		if *dir == "" {
			*dir = o.Name
		}
		if o.SDKProxy != "" {
			abs, err := filepath.Abs(o.SDKProxy)
			if err != nil {
				return contract.Errorf(contract.InvalidArgument, o.SDKProxy, "%w", err)
			}
			o.SDKProxy = abs
		}
		files, err := scaffold.New(*dir, o)
		if err != nil {
			return err
		}
		for _, f := range files {
			if _, err := fmt.Fprintln(a.Out, filepath.Join(*dir, f)); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(a.Out, "next: cd %s && make test CLADE_RUNTIME=<folder of the runtime, see `clade doctor`>\n", *dir)
		return err
	}
	return cmd
}
