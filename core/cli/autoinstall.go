package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/plugins/install"
	"github.com/clademl/clade/sdk/contract"
)

// bring installs the plugin that a decided model lacks, as plugins.auto_install says, and answers with a host that has it. Where
// it may not, the answer is the decision's own error, which names the command.
func (a *app) bring(ctx context.Context, h *host, d *loader.Decision) (*host, error) {
	name, _ := d.MissingPlugin()
	done, err := a.bringPlugin(ctx, h, name, d.Model.ID)
	if err != nil {
		return nil, err
	}
	if !done {
		return nil, d.PluginErr
	}
	return h.again()
}

// bringPlugin installs a plugin that a model needs and says whether it did: a person may say no, and a script is not asked.
func (a *app) bringPlugin(ctx context.Context, h *host, name, model string) (bool, error) {
	policy := h.config.Plugins.AutoInstall
	ask := policy == "ask" && !h.unattended && a.InTerminal && a.ErrTerminal
	if !ask && policy != "always" {
		return false, nil
	}
	m, err := a.manager(h.config, h.plugins)
	if err != nil {
		return false, err
	}
	p, err := m.Propose(ctx, install.Qualified(m.SourceOf(name), name), "")
	if err != nil {
		return false, err
	}
	_, _ = fmt.Fprint(a.Err, describeProposal(model, p))
	if ask {
		if yes, err := a.confirm(ctx, "Install it? [y/N] "); err != nil || !yes {
			return false, err
		}
	}
	_, err = m.Install(ctx, p)
	return err == nil, err
}

// describeProposal is what a person decides by: name, version, size, source and signer.
func describeProposal(model string, p *install.Proposal) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s needs the plugin %s, which is not installed.\n", model, p.Name)
	fmt.Fprintf(&b, "  plugin   %s %s, %s\n", p.Name, p.Choice.Version.Version, config.FormatBytes(uint64(p.Choice.Archive.Size)))
	if r := p.Choice.Runtime; r != nil {
		fmt.Fprintf(&b, "  runtime  %s, MLX %s, %s\n", r.Variant, r.MLX, config.FormatBytes(uint64(r.Size)))
	}
	fmt.Fprintf(&b, "  download %s\n", config.FormatBytes(uint64(p.Missing)))
	fmt.Fprintf(&b, "  source   %s (%s), signed with key %s\n", p.Source.Name, p.Source.Location, p.Index.Signer)
	return b.String()
}

// confirm reads one line. It reads byte by byte: what follows the line belongs to the verb.
func (a *app) confirm(ctx context.Context, question string) (bool, error) {
	_, _ = fmt.Fprint(a.Err, question)
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() { // ends with the line, or with the process
		var line []byte
		for one := make([]byte, 1); ; {
			n, err := a.In.Read(one)
			if n == 1 && one[0] != '\n' {
				line = append(line, one[0])
			}
			if n == 1 && one[0] == '\n' || errors.Is(err, io.EOF) {
				got <- answer{string(line), nil}
				return
			}
			if err != nil {
				got <- answer{"", err}
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
		return false, contract.Errorf(contract.Cancelled, "", "interrupted")
	case in := <-got:
		if in.err != nil {
			return false, contract.Errorf(contract.InvalidArgument, "stdin", "%w", in.err)
		}
		text := strings.ToLower(strings.TrimSpace(in.text))
		return text == "y" || text == "yes", nil
	}
}
