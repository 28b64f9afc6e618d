package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/core/machine"
	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
)

// finding is one line of the doctor's report.
type finding struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Next   string `json:"next,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check that models can run on this machine", Args: cobra.NoArgs,
		Long: "Checks the platform, the configuration, the runtime's files, each plugin, memory and the model folders. Exit code 1 when\n" +
			"something would keep models from running.",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		h, err := a.host()
		if err != nil {
			return err
		}
		findings := a.examine(cmd.Context(), h)
		bad := 0
		for _, f := range findings {
			if !f.OK {
				bad++
			}
		}
		if *asJSON {
			if err := a.printJSON(findings); err != nil {
				return err
			}
		} else if err := a.printFindings(findings); err != nil {
			return err
		}
		if bad > 0 {
			return contract.Errorf(contract.Unavailable, "doctor", "%d of %d checks failed", bad, len(findings))
		}
		return nil
	}
	return cmd
}

func (a *app) printFindings(findings []finding) error {
	t := newTable(a.Out)
	for _, f := range findings {
		mark := "ok"
		if !f.OK {
			mark = "FAILED"
		}
		t.row(mark, f.Check, joinOr(nonEmpty(f.Detail, f.Next), ""))
	}
	return t.flush()
}

func (a *app) examine(ctx context.Context, h *host) []finding {
	out := []finding{
		platformFinding(),
		{Check: "configuration", OK: true, Detail: h.config.File()},
	}
	for _, dir := range h.runtimesInUse() {
		out = append(out, runtimeFinding(dir))
	}
	for _, p := range h.plugins.Problems {
		out = append(out, finding{"plugin " + p.Name, false, oneLine(p.Err.Error()), "build or install it again"})
	}
	for _, p := range h.plugins.Plugins {
		f := finding{Check: "plugin " + p.Name, OK: true}
		d, err := h.describe(ctx, p.Name)
		if err != nil {
			f.OK, f.Detail = false, oneLine(err.Error())
		} else {
			f.Detail = fmt.Sprintf("version %s, %s, starts and answers", d.GetVersion(), d.GetPlatform())
		}
		out = append(out, f)
	}
	if len(h.plugins.Plugins) == 0 {
		out = append(out, a.noPlugins(h))
	}
	return append(out, memoryFinding(h.config), modelsFinding(h))
}

// noPlugins is the finding of a machine without plugins: fine where a source is trusted that models bring theirs from.
func (a *app) noPlugins(h *host) finding {
	f := finding{Check: "plugins", Detail: "none is installed in " + joinOr(h.plugins.Dirs, "no folder"), Next: trust.HowToAdd + "; in a source tree: make build"}
	m, err := a.manager(h.config, h.plugins)
	if err != nil {
		f.Detail = oneLine(err.Error())
		return f
	}
	sources, err := m.Trust.Sources()
	if err != nil {
		f.Detail = oneLine(err.Error())
		return f
	}
	var names []string
	for _, s := range sources {
		names = append(names, s.Name)
	}
	if len(names) > 0 {
		f.OK, f.Next = true, ""
		f.Detail = "none is installed yet; models bring theirs from " + strings.Join(names, ", ")
	}
	return f
}

// runtimesInUse are the runtimes that the plugins start with.
func (h *host) runtimesInUse() []string {
	var out []string
	for _, p := range h.plugins.Plugins {
		dir := h.RuntimeDir
		if found, err := h.plugins.find(p.Name); err == nil && found.RuntimeDir != "" {
			dir = found.RuntimeDir
		} else if p.Origin == plugins.Stored && !h.plugins.ownRuntime {
			continue // it needs none
		}
		if !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

func platformFinding() finding {
	f := finding{Check: "platform", OK: runtime.GOOS == "linux" || runtime.GOOS == "darwin", Detail: runtime.GOOS + "/" + runtime.GOARCH}
	if !f.OK {
		f.Next = "plugins run on Linux and macOS"
	}
	return f
}

// runtimeFinding checks that every file which runtime.json names is there with its size.
func runtimeFinding(dir string) finding {
	f := finding{Check: "runtime", Detail: dir, Next: "install the plugin again, run `make setup` in a source tree, or set CLADE_RUNTIME"}
	data, err := os.ReadFile(filepath.Join(dir, "runtime.json"))
	if err != nil {
		f.Detail = oneLine(err.Error())
		return f
	}
	var r struct {
		Variant string            `json:"variant"`
		MLX     string            `json:"mlx"`
		MLXC    string            `json:"mlxc"`
		Libs    map[string]string `json:"libraries"`
		Files   []struct {
			Path string `json:"path"`
			Size int64  `json:"size"`
		} `json:"files"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		f.Detail = "runtime.json: " + oneLine(err.Error())
		return f
	}
	for _, file := range r.Files {
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(file.Path)))
		if err != nil {
			f.Detail = oneLine(err.Error())
			return f
		}
		if info.Size() != file.Size {
			f.Detail = fmt.Sprintf("%s has %d bytes, runtime.json says %d", file.Path, info.Size(), file.Size)
			return f
		}
	}
	if len(r.Libs) == 0 {
		f.Detail = "runtime.json names no libraries"
		return f
	}
	return finding{Check: "runtime", OK: true, Detail: fmt.Sprintf("%s: %s, MLX %s, mlx-c %s, %d files", dir, r.Variant, r.MLX, r.MLXC, len(r.Files))}
}

func memoryFinding(c *config.Config) finding {
	total, available := machine.Memory()
	f := finding{Check: "memory", OK: true, Detail: fmt.Sprintf("%s available of %s", config.FormatBytes(available), config.FormatBytes(total))}
	switch {
	case total == 0:
		f.Detail = "not known on this platform"
	case c.MemoryBudget > total:
		f.OK, f.Next = false, fmt.Sprintf("memory_budget %s is more than there is", config.FormatBytes(c.MemoryBudget))
	case c.MemoryBudget > 0:
		f.Detail += ", budget " + config.FormatBytes(c.MemoryBudget)
	}
	return f
}

func modelsFinding(h *host) finding {
	models, err := h.store.List()
	if err != nil {
		return finding{"models", false, oneLine(err.Error()), ""}
	}
	return finding{Check: "models", OK: true, Detail: fmt.Sprintf("%d found in %s and the Hugging Face cache", len(models), joinOr(h.config.Models.Dirs, "no folder"))}
}
