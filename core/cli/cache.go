package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine/prefix"
)

// prefixDir is where files of the prefix cache lie; empty when the system names no cache folder.
func prefixDir(c *config.Config) string {
	if dir := c.Model.PrefixDiskDir; dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			return abs
		}
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "clade", "prefix")
}

// keptPrefixes is what `cache list` tells of one model.
type keptPrefixes struct {
	Label  string    `json:"label"`
	Files  int       `json:"files"`
	Tokens int       `json:"tokens"`
	Bytes  int64     `json:"bytes"`
	Used   time.Time `json:"used"`
}

func (a *app) cacheCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cache", Short: "List or clear what the prefix cache keeps on disk", Args: cobra.NoArgs,
		Long: "With --prefix-disk SIZE (model.prefix_disk) a model's prefix cache outlives its process, in files of one folder that all models\n" +
			"and processes of a user share (model.prefix_disk_dir).",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.cacheListCommand(), a.cacheClearCommand())
	return cmd
}

func (a *app) cacheDir() (string, error) {
	c, err := a.config()
	if err != nil {
		return "", err
	}
	dir := prefixDir(c)
	if dir == "" {
		return "", contract.Errorf(contract.NotFound, "model.prefix_disk_dir", "the system names no cache folder").WithNext("set HOME or XDG_CACHE_HOME")
	}
	return dir, nil
}

func (a *app) cacheListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List what is kept, by model", Args: cobra.NoArgs}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		dir, err := a.cacheDir()
		if err != nil {
			return err
		}
		held, err := prefix.ListDisk(dir)
		if err != nil {
			return contract.Errorf(contract.NotFound, dir, "%w", err)
		}
		out := []keptPrefixes{}
		for _, h := range held {
			out = append(out, keptPrefixes{Label: h.Label, Files: h.Runs, Tokens: h.Tokens, Bytes: h.Bytes, Used: h.Used})
		}
		if *asJSON {
			return a.printJSON(out)
		}
		t := newTable(a.Out)
		t.row("MODEL", "FILES", "TOKENS", "SIZE", "USED")
		for _, k := range out {
			t.row(k.Label, strconv.Itoa(k.Files), strconv.Itoa(k.Tokens), config.FormatBytes(uint64(k.Bytes)), k.Used.Format(time.DateTime))
		}
		return t.flush()
	}
	return cmd
}

func (a *app) cacheClearCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "clear", Short: "Remove what is kept, of all models", Args: cobra.NoArgs,
		Long: "Removes the files, whether or not a model is open: one that is open goes on with what it has in memory, and writes anew.",
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		dir, err := a.cacheDir()
		if err != nil {
			return err
		}
		freed, err := prefix.ClearDisk(dir)
		if err != nil {
			return contract.Errorf(contract.Internal, dir, "%w", err)
		}
		_, err = fmt.Fprintf(a.Out, "%s: %s freed\n", dir, config.FormatBytes(uint64(freed)))
		return err
	}
	return cmd
}
