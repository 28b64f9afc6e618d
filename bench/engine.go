package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/clademl/clade/core/compose"
	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// engine is one program that generates, with its model loaded.
type engine interface {
	// prefill runs the ids through the model up to the first token.
	prefill(ctx context.Context, ids []int32) (time.Duration, error)
	// decode generates n tokens after the first one that follows ids, greedily and past the end of the text. The time
	// is that of the n tokens; the ids begin with the first one.
	decode(ctx context.Context, ids []int32, n int) (time.Duration, []int32, error)
	// describe is the engine's version and what it says of itself.
	describe() string
	close()
}

// question is "What is the capital of France?" in the model's own template.
var question = []int32{
	1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2, 198, 1, 4093, 198,
	1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
}

// checks are prompts and the id that follows each, of mlx-lm 0.32.2 at float32 on the dequantized weights. The first is "The
// capital of France is" and " Paris"; the others are beginnings of question.
var checks = []struct {
	prompt []int32
	next   int32
}{
	{[]int32{504, 3575, 282, 4649, 314}, 7042},
	{question[:2], 198},
	{question[:3], 19},
	{question[:4], 359},
	{question[:8], 11173},
	{question[:16], 253},
	{question[:31], 2},
}

// sound refuses an engine that computes something else: its speed would mean nothing. misses are how many of the checks
// may differ: an engine that rounds activations to 8 bits, as llama.cpp does, may flip a near tie.
func sound(ctx context.Context, e engine, misses int) error {
	var wrong []string
	for _, c := range checks {
		_, got, err := e.decode(ctx, c.prompt, 1)
		if err != nil {
			return err
		}
		if got[0] != c.next {
			wrong = append(wrong, fmt.Sprintf("%d ids are followed by %d, right is %d", len(c.prompt), got[0], c.next))
		}
	}
	if len(wrong) > misses {
		return fmt.Errorf("it computes something else on this machine: %s", strings.Join(wrong, "; "))
	}
	return nil
}

// cladeEngine is the host's own path from ids to ids, over core/loader and a supervised plugin process.
type cladeEngine struct {
	model *loader.Model
	text  string
	graph string // the entry of the graph table that runs
}

// openClade opens a model with these wishes.
func openClade(ctx context.Context, root, model string, w compose.Wishes) (*cladeEngine, error) {
	return openWith(ctx, root, model, w, loader.Choices{})
}

// openWith opens it with what goes with it.
func openWith(ctx context.Context, root, model string, w compose.Wishes, choices loader.Choices) (*cladeEngine, error) {
	return openAs(ctx, root, model, loader.Wishes{Wishes: w}, choices)
}

// openAs opens it on a graph of its own, where one is named.
func openAs(ctx context.Context, root, model string, w loader.Wishes, choices loader.Choices) (*cladeEngine, error) {
	if w.PrefixCache == "" {
		w.PrefixCache = "0" // a prompt that is measured is computed
	}
	offers, err := corefamily.Embedded()
	if err != nil {
		return nil, err
	}
	families, problems := corefamily.New(offers)
	if len(problems) > 0 {
		return nil, fmt.Errorf("family list: %v", problems)
	}
	set, verifier := plugins.Discover(filepath.Join(root, "bin", "plugins")), &plugins.Verifier{}
	host := &loader.Host{
		Families:   families,
		RuntimeDir: filepath.Join(root, "bin", "runtime", "cpu"),
		Find: func(name string) (loader.Plugin, error) {
			p, err := set.Find(name)
			return loader.Plugin{Name: p.Name, Exe: p.Exe, Verify: func() error { return verifier.Verify(p) }, Check: p.CheckDescribe}, err
		},
	}
	d, err := host.DecideWith(hub.Model{ID: filepath.Base(model), Path: model}, choices)
	if err != nil {
		return nil, err
	}
	p, err := d.Plan(ctx, w)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	m, err := p.Open(ctx, func(*cladev1.LoadProgress) {})
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("clade, plugin %s, %s %s", d.Family.Plugin, p.Plan.GetDevice(), p.Plan.GetDtype())
	for _, note := range p.Plan.GetNotes() {
		text += "; " + note
	}
	return &cladeEngine{model: m, text: text, graph: p.Plan.GetGraphEntry()}, nil
}

func (c *cladeEngine) run(ctx context.Context, ids []int32, n uint32) (first, total time.Duration, out []int32, err error) {
	zero, past := 0.0, true
	start := time.Now()
	r, err := c.model.Generate(ctx, generate.Prompt{IDs: ids}, generate.Settings{MaxTokens: &n, Temperature: &zero, IgnoreEOS: &past}, func(generate.Delta) error {
		if first == 0 {
			first = time.Since(start)
		}
		return nil
	})
	total = time.Since(start)
	if err == nil && len(r.IDs) != int(n) {
		err = fmt.Errorf("clade: %d tokens came, %d were asked for", len(r.IDs), n)
	}
	return first, total, r.IDs, err
}

func (c *cladeEngine) prefill(ctx context.Context, ids []int32) (time.Duration, error) {
	_, total, _, err := c.run(ctx, ids, 1)
	return total, err
}

func (c *cladeEngine) decode(ctx context.Context, ids []int32, n int) (time.Duration, []int32, error) {
	first, total, out, err := c.run(ctx, ids, uint32(n)+1)
	return total - first, out, err
}

func (c *cladeEngine) describe() string { return c.text }

func (c *cladeEngine) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = c.model.Close(ctx) // a plugin that does not stop is killed
}

// peer is another program behind a Python script of peers/, which speaks JSON lines.
type peer struct {
	cmd  *exec.Cmd
	in   *json.Encoder
	out  *bufio.Reader
	text string
	stop func()
}

type peerAnswer struct {
	Ready         bool
	Version, Info string
	Seconds       float64
	IDs           []int32
}

func openPeer(ctx context.Context, python, script, model string, threads uint32, env ...string) (*peer, error) {
	cmd := exec.CommandContext(ctx, python, script, model, strconv.Itoa(int(threads)))
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{cmd: cmd, in: json.NewEncoder(stdin), out: bufio.NewReader(stdout), stop: func() {
		stdin.Close()
		_ = cmd.Wait() // what it ended with was told by the read that failed
	}}
	hello, err := p.read()
	if err != nil || !hello.Ready {
		p.stop()
		return nil, fmt.Errorf("it did not start: %w", err)
	}
	p.text = hello.Version + ": " + hello.Info
	return p, nil
}

func (p *peer) read() (peerAnswer, error) {
	var a peerAnswer
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return a, fmt.Errorf("it ended without an answer (%w)", err)
	}
	return a, json.Unmarshal(line, &a)
}

func (p *peer) ask(op string, ids []int32, n int) (peerAnswer, error) {
	if err := p.in.Encode(map[string]any{"op": op, "ids": ids, "tokens": n}); err != nil {
		return peerAnswer{}, err
	}
	return p.read()
}

func (p *peer) prefill(_ context.Context, ids []int32) (time.Duration, error) {
	a, err := p.ask("prefill", ids, 0)
	return time.Duration(a.Seconds * float64(time.Second)), err
}

func (p *peer) decode(_ context.Context, ids []int32, n int) (time.Duration, []int32, error) {
	a, err := p.ask("decode", ids, n)
	return time.Duration(a.Seconds * float64(time.Second)), a.IDs, err
}

func (p *peer) describe() string { return p.text }

func (p *peer) close() { p.stop() }
