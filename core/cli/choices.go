package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/profile"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// noFingerprint is how a person says that the artifact is none that a profile could know.
const noFingerprint = "none"

// choices are what a person decides of a model themselves.
func (f *modelFlags) choices(ctx context.Context, h *host) (loader.Choices, error) {
	c := loader.Choices{
		Implementation: f.implementation, Draft: loader.Draft{From: f.draft, Depth: f.draftDepth}, Adapters: f.adapters, Programs: f.programs,
	}
	if f.draft != "" && !loader.OwnDraft(f.draft) {
		m, err := h.store.Resolve(f.draft)
		if err != nil {
			return c, err
		}
		c.Draft.From = m.Path
	}
	if f.fingerprint != "" {
		given := f.fingerprint
		if given == noFingerprint {
			given = ""
		}
		c.ArtifactFingerprint = &given
	}
	var err error
	if f.profile != "" {
		if c.Profile, err = profile.Load(f.profile); err != nil {
			return c, err
		}
	}
	if f.plugin == "" {
		return c, nil
	}
	p, err := ownPlugin(f.plugin)
	if err != nil {
		return c, err
	}
	said, err := h.ask(ctx, p)
	if err != nil {
		return c, err
	}
	p.Name = said.GetName()
	p.Check = func(d *cladev1.DescribeResponse) error {
		if d.GetManifestJson() != said.GetManifestJson() {
			return contract.Errorf(contract.PluginMismatch, p.Exe, "says another thing of itself than a moment ago")
		}
		return nil
	}
	c.Own, err = loader.NewOwn(p, said, f.graph)
	return c, err
}

// ownPlugin is the executable at path, or the one clade-NAME in the folder at path. A person who names a plugin by its path
// answers for it: no receipt is asked for.
func ownPlugin(path string) (loader.Plugin, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return loader.Plugin{}, contract.Errorf(contract.InvalidArgument, path, "not a usable path: %w", err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return loader.Plugin{}, contract.Errorf(contract.NotFound, path, "no such plugin: %w", err)
	}
	if info.IsDir() {
		found, err := filepath.Glob(filepath.Join(abs, "clade-*"))
		if err != nil || len(found) != 1 {
			return loader.Plugin{}, contract.Errorf(contract.NotFound, path, "holds %d executables clade-NAME, want one", len(found)).
				WithNext("name the executable")
		}
		abs = found[0]
	}
	nothing := func(*cladev1.DescribeResponse) error { return nil }
	return loader.Plugin{Name: strings.TrimPrefix(filepath.Base(abs), "clade-"), Exe: abs, Verify: func() error { return nil }, Check: nothing}, nil
}

// transcribeCommand decides the model, so that one which chats is told from one that will be transcribed with.
func (a *app) transcribeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "transcribe MODEL AUDIO", Short: "Transcribe audio (comes with " + nextVersion + ")", Args: cobra.RangeArgs(1, 2),
	}
	model := a.addModelFlags(cmd)
	cmd.Flags().String("format", "text", "text, json, srt or vtt")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		d, err := h.decide(cmd.Context(), model, args[0])
		if err != nil {
			return err
		}
		defer func() { _ = d.Close() }() // only read
		if err := d.Cell.ForSpeech(d.Profile.GetId()); err != nil {
			return err
		}
		if d.PluginErr != nil {
			return d.PluginErr
		}
		return contract.Errorf(contract.UnsupportedOption, verbOf(cmd), "comes with version %s; this is %s", nextVersion, Version)
	}
	return cmd
}
