package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/publish"
	"github.com/clademl/clade/core/plugins/source"
	"github.com/clademl/clade/sdk/contract"
)

// publishFlags are the flags of plugin publish.
type publishFlags struct {
	publish.Options
	key, newKey, passwordFile, platform, push string
	days                                      int
}

func (a *app) pluginPublishCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "publish DIR [FOLDER...]", Short: "Make or extend a signed source of plugins",
		Long: "Packs plugin folders (plugin.yaml, clade-NAME, licences) and runtime folders (runtime.json) into DIR, and signs its index\n" +
			"anew with --key. Copy DIR to a web server, or --push it to a registry. Without FOLDER the index is signed again, with a new\n" +
			"date. `clade plugin publish --new-key FILE` makes a key.",
	}
	f, flags := &publishFlags{}, cmd.Flags()
	flags.StringVar(&f.Name, "name", "", "name of the source, such as example.org (kept in an index that is there)")
	flags.StringVar(&f.key, "key", "", "FILE with the minisign secret key")
	flags.StringVar(&f.newKey, "new-key", "", "make a key in FILE, and FILE's public half beside it, and end")
	flags.StringVar(&f.passwordFile, "password-file", "", "FILE with the key's password")
	flags.StringArrayVar(&f.NextKeys, "next-key", nil, "public KEY that may sign the next index too, to change keys")
	flags.StringVar(&f.platform, "platform", "", "OS/ARCH that plugin folders were built for (default: this machine's)")
	flags.IntVar(&f.days, "days", 90, "days until the index expires")
	flags.BoolVar(&f.Throwaway, "throwaway", false, "sign with a key that nobody guards, made if it is not there; releases of clade refuse it")
	flags.BoolVar(&f.Replace, "replace", false, "let a version that is there have another content")
	flags.StringVar(&f.push, "push", "", "oci://REGISTRY/REPOSITORY to push the source to afterwards")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.publish(cmd, f, args) }
	return cmd
}

func (a *app) publish(cmd *cobra.Command, f *publishFlags, args []string) error {
	password := ""
	if f.passwordFile != "" {
		data, err := os.ReadFile(f.passwordFile)
		if err != nil {
			return contract.Errorf(contract.NotFound, f.passwordFile, "%w", err)
		}
		password = strings.TrimRight(string(data), "\r\n")
	}
	if f.newKey != "" {
		if len(args) > 0 || f.key != "" {
			return contract.Errorf(contract.InvalidArgument, "--new-key", "goes with nothing else but --password-file")
		}
		key, err := publish.NewKey(f.newKey, password, false)
		if err == nil {
			_, err = fmt.Fprintf(a.Out, "%s: key %s; its public half is %s\n", f.newKey, index.KeyID(key.ID()), publish.PublicPath(f.newKey))
		}
		return err
	}
	if len(args) == 0 || f.key == "" || f.days < 1 {
		return contract.Errorf(contract.InvalidArgument, "publish", "needs DIR, --key and at least one day")
	}
	var err error
	if f.Key, err = publish.ReadKey(f.key, password, f.Throwaway); err != nil {
		return err
	}
	if f.platform != "" {
		var ok bool
		if f.OS, f.Arch, ok = strings.Cut(f.platform, "/"); !ok || f.Arch == "" || strings.Contains(f.Arch, "/") {
			return contract.Errorf(contract.InvalidArgument, "--platform", "want OS/ARCH, such as linux/arm64")
		}
	}
	f.Dir, f.Now, f.Lifetime = args[0], time.Now(), time.Duration(f.days)*24*time.Hour
	f.Told = func(format string, args ...any) { _, _ = fmt.Fprintf(a.Out, format+"\n", args...) }
	if _, err := publish.Add(f.Options, args[1:]); err != nil {
		return err
	}
	if f.push == "" {
		return nil
	}
	if err := source.Push(cmd.Context(), f.Dir, f.push, source.Options{}); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "pushed to %s\n", f.push)
	return err
}

func (a *app) pluginBundleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bundle FILE NAME...", Short: "Write plugins, their runtimes and the signed index into one file", Args: cobra.MinimumNArgs(2),
		Long: "For machines without a network: carry FILE over and run `clade plugin install FILE` there. The source must be trusted there\n" +
			"too (`clade plugin trust add NAME KEY`).",
	}
	platforms := cmd.Flags().StringArray("platform", nil, "OS/ARCH/VARIANT to bundle for, such as linux/arm64/cpu; may be repeated (default: this machine's)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, _, err := a.pluginManager()
		if err != nil {
			return err
		}
		machines := []index.Machine{m.Machine}
		if len(*platforms) > 0 {
			machines = nil
		}
		for _, p := range *platforms {
			part := strings.Split(p, "/")
			if len(part) != 3 || part[0] == "" || part[1] == "" || part[2] == "" {
				return contract.Errorf(contract.InvalidArgument, "--platform", "%q: want OS/ARCH/VARIANT, such as linux/arm64/cpu", p)
			}
			machines = append(machines, index.Machine{OS: part[0], Arch: part[1], Variants: part[2:]})
		}
		if err := m.Bundle(cmd.Context(), args[1:], machines, args[0]); err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Out, "wrote %s\n", args[0])
		return err
	}
	return cmd
}
