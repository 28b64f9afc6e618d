package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/clademl/clade/sdk/contract"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminals; a pipe or file is not one.
	InTerminal, OutTerminal, ErrTerminal bool
}

// Stdio is this process's streams.
func Stdio() Streams {
	return Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InTerminal: term.IsTerminal(int(os.Stdin.Fd())), OutTerminal: term.IsTerminal(int(os.Stdout.Fd())), ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
}

// Main runs one command line and returns its exit code. build is the source's state as the build names it; may be empty.
func Main(ctx context.Context, build string, args []string, streams Streams) int {
	root := newRoot(&app{Streams: streams, build: build})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && contract.KindOf(err) != contract.Cancelled && errors.Is(err, context.Canceled) {
		err = contract.Errorf(contract.Cancelled, "", "interrupted")
	}
	err = asContract(err)
	_, _ = fmt.Fprintf(streams.Err, "clade: %s\n", oneLine(err.Error()))
	return contract.KindOf(err).ExitCode()
}

// usageError marks what cobra itself refuses, flags and arguments, of a command by its path.
type usageError struct {
	command string
	err     error
}

func (u usageError) Error() string { return u.err.Error() }

// asContract gives an error that has no Kind one: cobra's own are the caller's mistakes.
func asContract(err error) error {
	var e *contract.Error
	var u usageError
	switch {
	case errors.As(err, &e), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &u):
		return contract.Errorf(contract.InvalidArgument, "", "%s", err.Error()).WithNext("see `%s --help`", u.command)
	case strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "required flag"):
		return contract.Errorf(contract.InvalidArgument, "", "%s", err.Error()).WithNext("see `clade --help`")
	}
	return err
}

// maxLine bounds an error's line, in bytes: what it tells may come from a file and have any length.
const maxLine = 4000

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxLine {
		s = strings.ToValidUTF8(s[:maxLine/2], "") + " [...] " + strings.ToValidUTF8(s[len(s)-maxLine/2:], "")
	}
	return plain(s)
}

// plain spells control characters out: a model's file must not command a terminal.
func plain(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsControl(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "clade",
		Short:         "Run language and speech models on your own machine",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.PersistentFlags().StringVar(&a.configFile, "config", "", "configuration file (default ~/.config/clade/config.yaml)")
	a.bind(root.PersistentFlags(), "log-level", "log_level", "debug, info, warn or error; the log goes to stderr")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cmd.CommandPath(), err} })
	root.AddCommand(
		a.runCommand(), a.generateCommand(), a.serveCommand(), a.psCommand(), a.stopCommand(), a.adapterCommand(), a.scoreCommand(), a.embedCommand(), a.tokenizeCommand(), a.templateCommand(),
		a.pullCommand(), a.listCommand(), a.rmCommand(), a.showCommand(), a.familiesCommand(), a.doctorCommand(), a.pluginCommand(), a.configCommand(), a.cacheCommand(), a.benchCommand(), a.versionCommand(),
	)
	root.AddCommand(a.transcribeCommand())
	root.AddCommand(laterCommands()...)
	root.InitDefaultCompletionCmd("completion") // behind SetOut, which it keeps, and before markUsage, so that its arguments are checked like all others
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	markUsage(root)
	return root
}

// markUsage makes every argument check's error a usage error.
func markUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			switch {
			case err == nil:
				return nil
			case c == c.Root():
				return usageError{c.CommandPath(), fmt.Errorf("unknown command %q", args[0])}
			case slices.ContainsFunc(args, isSwitchValue):
				err = fmt.Errorf("%w (a switch takes its value behind =, as in --paging=true)", err)
			}
			return usageError{c.CommandPath(), fmt.Errorf("%s: %w", verbOf(c), err)}
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

// isSwitchValue tells what a person meant as the value of a switch that may stand alone.
func isSwitchValue(arg string) bool { return arg == "true" || arg == "false" || arg == "auto" }

// verbOf names a command as a person types it after "clade".
func verbOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}
