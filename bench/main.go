// Command bench measures clade beside its peers on one machine, in one run, and writes bench/out.json.
//
//	bench -root DIR -model FILE.gguf -python PYTHON -out FILE [-only machine,host,rpc,tokenize,model,two,batch,speculation,turn,lengths,paging,shapes,recurrent,mtp,qwen,kernels,guidance] [-repeats 5] [-without PEER,...]
//
// What is compared, and how: docs/testing.md. Invariants: a peer is measured only after it gave the right answer to a
// known question; one that is missing or wrong is named in the output and makes the run fail, unless -without names it;
// repeats of two sides alternate, and a ratio is the median over such pairs.
//
// Not for: tests. Nothing here passes or fails on speed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clademl/clade/core/compose"
)

type options struct {
	root, model, python, out string
	only, without            []string
	repeats                  int
	threads                  uint
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, parse()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() options {
	var o options
	flag.StringVar(&o.root, "root", ".", "the repository")
	flag.StringVar(&o.model, "model", "", "the SmolLM2-135M Q4_1 GGUF")
	flag.StringVar(&o.python, "python", "python3", "a Python with the peers of bench/requirements.txt")
	flag.StringVar(&o.out, "out", "bench/out.json", "where the rows go")
	flag.IntVar(&o.repeats, "repeats", 5, "repeats of each side")
	flag.UintVar(&o.threads, "threads", 2, "threads of each side")
	only := flag.String("only", "machine,host,rpc,tokenize,model,two,batch,speculation,turn,lengths,paging,shapes,recurrent,mtp,qwen,kernels,guidance", "parts to measure")
	without := flag.String("without", "", "peers to leave out (llama.cpp, mlx-lm)")
	flag.Parse()
	o.only, o.without = strings.Split(*only, ","), strings.Split(*without, ",")
	return o
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

func run(ctx context.Context, o options) error {
	if o.repeats < 1 || o.threads < 1 {
		return errors.New("-repeats and -threads start at 1")
	}
	var err error
	for _, p := range []*string{&o.root, &o.model} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	rows := []Row{}
	var missing []error
	for _, part := range []struct {
		name string
		rows func() ([]Row, error)
	}{
		{"machine", func() ([]Row, error) { return machineRows(), nil }},
		{"host", func() ([]Row, error) { return hostRows(ctx, filepath.Join(o.root, "bin", "clade"), o.model) }},
		{"rpc", func() ([]Row, error) { return o.rpc(ctx) }},
		{"tokenize", func() ([]Row, error) { return o.tokenizeRows(ctx) }},
		{"model", func() ([]Row, error) {
			r, absent, err := o.models(ctx)
			missing = absent
			return r, err
		}},
		{"two", func() ([]Row, error) { return o.twoRows(ctx) }},
		{"batch", func() ([]Row, error) { return o.batchRows(ctx) }},
		{"speculation", func() ([]Row, error) { return o.speculationRows(ctx) }},
		{"turn", func() ([]Row, error) { return o.turnRows(ctx) }},
		{"lengths", func() ([]Row, error) { return o.lengthRows(ctx) }},
		{"paging", func() ([]Row, error) { return o.pagingRows(ctx) }},
		{"shapes", func() ([]Row, error) { return o.shapeRows(ctx) }},
		{"recurrent", func() ([]Row, error) { return o.recurrentRows(ctx) }},
		{"mtp", func() ([]Row, error) { return o.mtpRows(ctx) }},
		{"qwen", func() ([]Row, error) { return o.qwenRows(ctx) }},
		{"kernels", func() ([]Row, error) { return o.kernelRows(ctx) }},
		{"guidance", func() ([]Row, error) { return o.guidanceRows(ctx) }},
	} {
		if !slices.Contains(o.only, part.name) {
			continue
		}
		say("%s", part.name)
		r, err := part.rows()
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		rows = append(rows, r...)
	}
	if err := write(o.out, rows); err != nil {
		return err
	}
	return errors.Join(append([]error{table(os.Stdout, rows)}, missing...)...)
}

func (o options) rpc(ctx context.Context) ([]Row, error) {
	emitter := filepath.Join(o.root, "bin", "tools", "clade-emitter")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", emitter, "./emitter")
	build.Dir, build.Env = filepath.Join(o.root, "bench"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("emitter: %w: %s", err, out)
	}
	return rpcRows(ctx, emitter, o.repeats, 2*time.Second)
}

// models opens clade and the peers, checks each with the known question, and measures. A peer that cannot be measured
// gets a row that says why.
func (o options) models(ctx context.Context) (rows []Row, missing []error, err error) {
	clade, err := openClade(ctx, o.root, o.model, compose.Wishes{Threads: uint32(o.threads)})
	if err != nil {
		return nil, nil, fmt.Errorf("clade: %w", err)
	}
	defer clade.close()
	if err := sound(ctx, clade, 0); err != nil {
		return nil, nil, fmt.Errorf("clade: %w", err)
	}
	say("%s", clade.describe())
	var peers []namedEngine
	for _, c := range []struct {
		name, script string
		goals        [2]string
		misses       int
	}{
		{"llama.cpp", "llama.py", [2]string{">= 1.2 x", ">= 1.2 x"}, 1},
		{"mlx-lm", "mlxlm.py", [2]string{">= 20 x", ">= 10 x"}, 0},
	} {
		if slices.Contains(o.without, c.name) {
			say("%s: left out, as asked", c.name)
			continue
		}
		p, text, err := o.peer(ctx, c.script, c.misses)
		if err != nil {
			missing = append(missing, fmt.Errorf("%s was not measured: %w", c.name, err))
			rows = append(rows, Row{Name: modelName + "/peer/" + c.name, Unit: "available", Peer: c.name, Note: "not measured: " + err.Error()})
			continue
		}
		defer p.close()
		say("%s", text)
		rows = append(rows, Row{Name: modelName + "/peer/" + c.name, Value: 1, Unit: "available", Peer: c.name, Note: text})
		peers = append(peers, namedEngine{c.name, p, c.goals})
	}
	// Before and after: a machine that became busy meanwhile shows in the spread.
	memory, cached := readBandwidth(int(o.threads), o.repeats)
	measured, err := modelRows(ctx, clade, peers, o.repeats, say)
	if err != nil {
		return nil, nil, err
	}
	after, _ := readBandwidth(int(o.threads), o.repeats)
	memory = append(memory, after...)
	bw := single("machine/read-bandwidth", "GB/s", memory, "", fmt.Sprintf("2 GiB, %d threads; the same loop in the first-level cache: %.4g GB/s", o.threads, median(cached)))
	rows = append(append(rows, bw), measured...)
	bytes, err := bytesPerToken(o.model)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range measured {
		if strings.HasPrefix(r.Name, modelName+"/decode/") {
			rows = append(rows, fractionRow(r, bytes, bw.Value))
			break
		}
	}
	return rows, missing, nil
}

// peer starts a peer's script and holds it to the known answer. llama.cpp gets a second try without the code paths that
// need AMX: a compiler that miscompiles them takes the whole program down, which would say nothing of its speed.
func (o options) peer(ctx context.Context, script string, misses int) (*peer, string, error) {
	path := filepath.Join(o.root, "bench", "peers", script)
	var errs []error
	for _, env := range []string{"", "BENCH_LLAMA_EXTRA_BUFFERS=0"} {
		p, err := openPeer(ctx, o.python, path, o.model, uint32(o.threads), env)
		if err == nil {
			if err = sound(ctx, p, misses); err == nil {
				text := p.describe()
				if env != "" {
					text += "; without its extra buffer types, with which: " + errs[0].Error()
				}
				return p, text, nil
			}
			p.close()
		}
		errs = append(errs, err)
		if script != "llama.py" {
			break
		}
	}
	return nil, "", errors.Join(errs...)
}
