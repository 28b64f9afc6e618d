package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/config"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Print every setting with its source", Args: cobra.NoArgs,
		Long: "Settings come from flags, the environment, the configuration file and defaults, in this order. The file is YAML;\n" +
			"a key such as serve.port is written as a section \"serve\" with \"port\" in it.",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		c, err := a.config()
		if err != nil {
			return err
		}
		if *asJSON {
			return a.printJSON(c.Values())
		}
		t := newTable(a.Out)
		t.row("KEY", "VALUE", "SOURCE", "ENVIRONMENT", "MEANING")
		for _, v := range c.Values() {
			t.row(v.Key, v.Value, string(v.Source), v.Env, v.Doc)
		}
		return t.flush()
	}
	path := &cobra.Command{Use: "path", Short: "Print the path of the configuration file", Args: cobra.NoArgs}
	path.RunE = func(*cobra.Command, []string) error {
		p, _, err := config.Path(config.Options{File: a.configFile})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Out, p)
		return err
	}
	cmd.AddCommand(path)
	return cmd
}
