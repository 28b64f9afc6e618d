package supervise

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/clademl/clade/sdk/contract"
)

// drainAfterExit is how long output that is still in the pipes is read after the process ended; a grandchild that holds them
// cannot make it longer.
const drainAfterExit = 200 * time.Millisecond

// process is our side of go-plugin's Runner: one child, its group and its pipes.
type process struct {
	spec    Spec
	journal *journal
	cmd     *exec.Cmd
	dir     string // where its socket lies

	liveness *os.File // our end; closing it tells the plugin that we are gone
	pid      int

	toHost    *io.PipeReader // the handshake line, then nothing until the process ends
	fromChild *io.PipeWriter
	noStderr  *io.PipeReader // always silent
	endStderr *io.PipeWriter

	ended  chan struct{} // closed when the process is reaped
	exited chan struct{} // closed when its output is read too
	ps     *os.ProcessState

	oomKills   uint64 // what was counted before the start
	oomCounted bool

	mu       sync.Mutex
	greeted  bool
	greeting error // why the handshake line was refused
	reason   error // why we killed it; the first
	reaped   bool  // the pid may belong to someone else
	killed   bool  // we ended it, with a reason or without
}

func newProcess(spec Spec) *process {
	p := &process{spec: spec, ended: make(chan struct{}), exited: make(chan struct{})}
	p.journal = &journal{log: func(line string) { spec.Logger.Debug(line, "plugin", spec.name()) }}
	p.toHost, p.fromChild = io.Pipe()
	p.noStderr, p.endStderr = io.Pipe()
	return p
}

// runner is go-plugin's RunnerFunc: cmd carries the environment that go-plugin needs, dir the socket directory.
func (p *process) runner(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
	p.dir = dir
	env := append(contract.Environment(os.Environ()), cmd.Env...)
	env = append(env, contract.EnvLiveness+"=1")
	if p.spec.RuntimeDir != "" {
		env = append(env, contract.EnvRuntime+"="+p.spec.RuntimeDir)
	}
	p.cmd = &exec.Cmd{
		Path: p.spec.Path, Args: []string{p.spec.Path}, Env: append(env, p.spec.Env...), Dir: "/",
	}
	configure(p.cmd)
	return p, nil
}

// Start makes the pipes and starts the child from a thread that lives as long as it: the parent-death signal belongs to the
// thread that forked.
func (p *process) Start(context.Context) error {
	stdin, liveness, err := os.Pipe()
	if err != nil {
		return err
	}
	stdout, childOut, err := os.Pipe()
	if err != nil {
		return closeAll(err, stdin, liveness)
	}
	stderr, childErr, err := os.Pipe()
	if err != nil {
		return closeAll(err, stdin, liveness, stdout, childOut)
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.liveness = stdin, childOut, childErr, liveness
	p.oomKills, p.oomCounted = p.spec.oomKills()
	started := make(chan error, 1)
	go p.own(started, stdout, stderr)
	err = <-started
	_ = closeAll(nil, stdin, childOut, childErr)
	if err != nil {
		return closeAll(err, liveness, stdout, stderr)
	}
	return nil
}

func closeAll(err error, files ...*os.File) error {
	for _, f := range files {
		_ = f.Close()
	}
	return err
}

// own starts the child, reads its output, and ends everything in order once it is gone.
func (p *process) own(started chan<- error, stdout, stderr *os.File) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.mu.Lock()
	p.pid = p.cmd.Process.Pid
	preferAsVictim(p.pid)
	if p.killed { // given up while it was being started
		killGroup(p.pid)
	}
	p.mu.Unlock()
	started <- nil

	var pumps sync.WaitGroup
	pumps.Go(func() { pump(stdout, p.stdoutLine) })
	pumps.Go(func() { pump(stderr, p.journal.line) })

	waitExit(p.pid)
	p.mu.Lock()
	killGroup(p.pid) // grandchildren; the leader is a zombie, so its pid is still ours
	p.reaped = true
	_ = p.cmd.Wait()
	p.ps = p.cmd.ProcessState
	p.mu.Unlock()
	close(p.ended)

	end := time.Now().Add(drainAfterExit)
	_ = stdout.SetReadDeadline(end)
	_ = stderr.SetReadDeadline(end)
	_ = p.fromChild.Close() // also frees a handshake line that nobody reads
	pumps.Wait()
	_ = closeAll(nil, stdout, stderr, p.liveness)
	close(p.exited)
	_ = p.endStderr.Close()
}

func pump(r io.Reader, sink func([]byte, bool)) {
	w := &lineWriter{sink: sink}
	_, _ = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 32<<10))
	w.flush()
}

// stdoutLine passes the first line on when it is a handshake; all else is the journal's.
func (p *process) stdoutLine(line []byte, cut bool) {
	p.mu.Lock()
	first := !p.greeted
	p.greeted = true
	p.mu.Unlock()
	if !first {
		p.journal.line(line, cut)
		return
	}
	if err := checkHandshake(p.spec.name(), string(line), p.dir); err != nil {
		p.mu.Lock()
		p.greeting = err
		p.mu.Unlock()
		p.journal.line(line, cut)
		_ = p.fromChild.Close()
		return
	}
	_, _ = p.fromChild.Write(append(append([]byte(nil), line...), '\n'))
}

// kill ends the whole group. The first reason stays.
func (p *process) kill(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == nil {
		p.reason = reason
	}
	p.killed = true
	if p.pid != 0 && !p.reaped {
		killGroup(p.pid)
	}
}

// refused is why the handshake line was not taken, or nil.
func (p *process) refused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.greeting
}

// death says why the process ended. Only after exited.
func (p *process) death() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.greeting != nil {
		return p.greeting
	}
	if p.reason != nil {
		return p.reason
	}
	how, killed := ending(p.ps)
	if killed {
		return p.killedFromOutside()
	}
	if cause := p.journal.cause(); cause != "" {
		return contract.Errorf(contract.PluginCrashed, p.spec.name(), "%s (%s)", cause, how)
	}
	words := ""
	if w := p.journal.lastWords(); w != "" {
		words = "; its last words: " + w
	}
	return contract.Errorf(contract.PluginCrashed, p.spec.name(), "the plugin's process %s%s", how, words)
}

// ErrKilledFromOutside is within the cause of a death by a SIGKILL of somebody else, where memory is not known to have run out.
var ErrKilledFromOutside = errors.New("was killed from outside")

// killedFromOutside is the death by a SIGKILL that this package did not send: the kernel's for memory when it counted a kill
// meanwhile, suspected when nobody counts, and else somebody's.
func (p *process) killedFromOutside() error {
	const next = "free some memory, or choose a smaller model or context, and try again"
	kills, counted := p.spec.oomKills()
	switch {
	case counted && p.oomCounted && kills > p.oomKills:
		return contract.Errorf(contract.OutOfMemory, p.spec.name(), "the plugin's process was killed while memory ran out (out of memory suspected)").
			WithNext(next)
	case counted && p.oomCounted:
		return contract.Errorf(contract.PluginCrashed, p.spec.name(), "the plugin's process %w (SIGKILL)", ErrKilledFromOutside)
	}
	return contract.Errorf(contract.PluginCrashed, p.spec.name(), "the plugin's process %w (out of memory suspected)", ErrKilledFromOutside).WithNext(next)
}

// Stdout is the handshake line, and EOF when the process has ended.
func (p *process) Stdout() io.ReadCloser { return p.toHost }

// Stderr is silent: go-plugin's parser of it panics on a line such as {"@message":1}.
func (p *process) Stderr() io.ReadCloser { return p.noStderr }

// Name is the executable's path.
func (p *process) Name() string { return p.spec.Path }

// ID is the pid, for go-plugin's logs only.
func (p *process) ID() string { return strconv.Itoa(p.pid) }

// Wait returns when the process is reaped.
func (p *process) Wait(context.Context) error { <-p.exited; return nil }

// Kill is called by go-plugin when a start fails.
func (p *process) Kill(context.Context) error {
	p.kill(nil)
	return nil
}

// Diagnose adds nothing: Start makes the message.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost is the identity: both sides see the same files.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin is the identity.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// obeyed says that the process ended as it was told to: it exited well, or was killed without a fault of its own.
func (p *process) obeyed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason == nil && (p.killed || p.ps != nil && p.ps.Success())
}
