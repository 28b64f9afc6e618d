//go:build linux || darwin

package supervise

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Each way in which a start fails: the Kind, and what the text says. Those that clade ends by a timeout get a short one; the others
// must be known well before the default.
func TestAStartThatFailsSaysWhy(t *testing.T) {
	for _, c := range []struct {
		mode  string
		kind  contract.Kind
		says  []string
		limit time.Duration
	}{
		{"garbage on stdout", contract.PluginCrashed, []string{`MLX error`, `\x1b`, "where the handshake was due"}, 0},
		{"1 MB on stdout", contract.PluginCrashed, []string{"xxxx", "where the handshake was due"}, 0},
		{"never handshakes", contract.PluginCrashed, []string{"never handshook within 1s", "loading a very large table"}, time.Second},
		{"exits at once", contract.PluginCrashed, []string{"exited with code 3", "no such licence"}, 0},
		{"exits without a word", contract.PluginCrashed, []string{"ended before it was ready", "exited with code 0"}, 0},
		{"panics", contract.PluginCrashed, []string{"panic: boom at start", "exited with code 2"}, 0},
		{"aborts", contract.PluginCrashed, []string{"terminate called", "what(): std::bad_alloc", "exited with code 2"}, 0},
		{"grandchild holds the pipes and it exits", contract.PluginCrashed, []string{"exited with code 4"}, 0},
		{"escaped grandchild holds the pipes and it exits", contract.PluginCrashed, []string{"exited with code 4"}, 0},
		{"other contract", contract.PluginMismatch, []string{"speaks contract version 2", "host speaks 1"}, 0},
		{"deaf", contract.PluginCrashed, []string{"never handshook"}, time.Second},
		{"listens elsewhere", contract.PluginMismatch, []string{"not in its private directory"}, 0},
		{"no certificate", contract.PluginMismatch, []string{"mutual TLS"}, 0},
	} {
		t.Run(c.mode, func(t *testing.T) {
			spec := specFor(t, c.mode)
			spec.StartTimeout = c.limit
			began := time.Now()
			p, err := Start(t.Context(), spec)
			took := time.Since(began)
			require.Nil(t, p)
			kindIs(t, err, c.kind, append(c.says, filepath.Base(spec.Path))...)
			require.NotContains(t, err.Error(), "\x1b")
			require.Less(t, took, defaultStartTimeout/2)
			noZombie(t)
			killStraySleeper(t, err)
		})
	}
}

// killStraySleeper ends the grandchild that left the group on purpose.
func killStraySleeper(t *testing.T, err error) {
	t.Helper()
	_, rest, found := strings.Cut(err.Error(), "grandchild ")
	if !found {
		return
	}
	pid, convErr := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, convErr)
	if strings.HasPrefix(t.Name(), "TestAStartThatFailsSaysWhy/escaped") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return
	}
	require.Eventually(t, func() bool { return gone(pid) }, soon, 10*time.Millisecond, "the grandchild lives")
}

func TestOutputOfAnyShapeDoesNotDisturbTheHost(t *testing.T) {
	for _, mode := range []string{"1 MB line on stderr", "1 MB on stderr without end", "json with a number on stderr"} {
		t.Run(mode, func(t *testing.T) {
			p := start(t, mode)
			open(t, p)
			ids, err := generate(t.Context(), p, "echo", []int32{1})
			require.NoError(t, err)
			require.Equal(t, []int32{1}, ids)
			require.NoError(t, p.Stop(t.Context()))
			for _, line := range p.Output() {
				require.LessOrEqual(t, len(line), maxLine+len(" ..."))
			}
			require.NotEmpty(t, p.Output())
		})
	}
}

func TestWhatIsPrintedAfterTheHandshakeReachesTheJournal(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	_, err := generate(t.Context(), p, "c output", nil)
	require.NoError(t, err)
	require.NoError(t, p.Stop(t.Context()))
	require.Contains(t, p.Output(), "printf from C on descriptor 1")
	require.Contains(t, p.Output(), "go output after serve")
}

func TestAPanicInAModelCallIsInternalAndTheProcessLives(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	_, err := generate(t.Context(), p, "panic", nil)
	kindIs(t, err, contract.Internal, "bad row")
	require.NotContains(t, err.Error(), "second line")
	_, err = generate(t.Context(), p, "echo", nil)
	require.NoError(t, err)
}

func TestARequestOfADyingPluginEndsWithTheFirstCause(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	_, err := generate(t.Context(), p, "crash", nil)
	kindIs(t, err, contract.PluginCrashed, "panic: device lost", "exited with code 2")
	require.Equal(t, Dead, p.State())
	require.Equal(t, err, p.Err())
	noZombie(t)
}

func TestKillInMidStreamEndsTheRequestAndANewProcessServesTheNext(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	g, err := p.Generate(t.Context(), &cladev1.GenerateStart{RequestId: "wait"}, nil)
	require.NoError(t, err)
	_, err = g.Recv()
	require.NoError(t, err)
	require.Equal(t, Busy, p.State())
	require.NoError(t, syscall.Kill(p.Pid(), syscall.SIGKILL))
	for err == nil {
		_, err = g.Recv()
	}
	kindIs(t, err, contract.PluginCrashed, "was killed from outside (SIGKILL)")
	noZombie(t)

	again := start(t, "good")
	open(t, again)
	ids, err := generate(t.Context(), again, "echo", []int32{9})
	require.NoError(t, err)
	require.Equal(t, []int32{9}, ids)
}

func TestSilenceOnAStreamIsAHang(t *testing.T) {
	p := start(t, "good", func(s *Spec) { s.Silence = 1500 * time.Millisecond })
	open(t, p)
	_, err := generate(t.Context(), p, "stop", nil)
	kindIs(t, err, contract.PluginCrashed, "hang: nothing came for 1.5s")
	noZombie(t)
}

func TestHeartbeatsWithoutProgressAreAHang(t *testing.T) {
	p := start(t, "good", func(s *Spec) { s.Stall = 1500 * time.Millisecond })
	open(t, p)
	require.Zero(t, p.Stalled())
	seen := make(chan time.Duration, 1)
	go func() {
		for stalled := time.Duration(0); stalled < 500*time.Millisecond; stalled = p.Stalled() {
			select {
			case <-p.Done():
				seen <- stalled
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		seen <- 500 * time.Millisecond
	}()
	_, err := generate(t.Context(), p, "wait", nil)
	kindIs(t, err, contract.PluginCrashed, "hang: no progress for 1.5s")
	require.Equal(t, 500*time.Millisecond, <-seen, "it is seen before it is ended")
	require.Zero(t, p.Stalled())
}

// Embed has no heartbeat: the plugin's counts stand in for one.
func TestAnEmbeddingWithoutProgressIsAHang(t *testing.T) {
	// What is to work has the usual patience: a loaded machine may leave a process without the processor for seconds.
	patient := start(t, "good")
	open(t, patient)
	r, err := patient.Embed(t.Context(), &cladev1.EmbedStart{}, []int32{1, 2})
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2}, r.Values)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = patient.Embed(ctx, &cladev1.EmbedStart{}, []int32{9})
	kindIs(t, err, contract.Cancelled, "deadline")
	require.Equal(t, Ready, patient.State())

	p := start(t, "good", func(s *Spec) { s.Stall = 1500 * time.Millisecond })
	open(t, p)
	limit, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	_, err = p.Embed(limit, &cladev1.EmbedStart{}, []int32{9})
	kindIs(t, err, contract.PluginCrashed, "hang: no progress for 1.5s")
	require.Zero(t, p.Stalled())
	noZombie(t)
}

func TestASlowReaderIsNoHang(t *testing.T) {
	p := start(t, "good", func(s *Spec) { s.Silence = 3 * time.Second })
	open(t, p)
	g, err := p.Generate(t.Context(), &cladev1.GenerateStart{RequestId: "echo"}, []int32{1})
	require.NoError(t, err)
	time.Sleep(3500 * time.Millisecond)
	for err == nil {
		_, err = g.Recv()
	}
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, Ready, p.State())
}

// Both lines of defence hold alone: the liveness pipe, and on Linux the kernel's signal.
func TestAKillUnderMemoryPressureIsOutOfMemory(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after uint64
		counted       bool
		kind          contract.Kind
		says          string
	}{
		{"a kill was counted meanwhile", 3, 4, true, contract.OutOfMemory, "out of memory suspected"},
		{"none was", 3, 3, true, contract.PluginCrashed, "from outside"},
		{"nobody counts", 0, 0, false, contract.PluginCrashed, "out of memory suspected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := specFor(t, "good")
			var kills atomic.Uint64
			kills.Store(c.before)
			spec.oomKills = func() (uint64, bool) { return kills.Load(), c.counted }
			p, err := Start(t.Context(), spec)
			require.NoError(t, err)
			kills.Store(c.after)
			require.NoError(t, syscall.Kill(p.Pid(), syscall.SIGKILL))
			<-p.Done()
			kindIs(t, p.Err(), c.kind, c.says)
			<-p.cleaned
		})
	}
}

func TestAPluginIsTheVictimBeforeTheHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // no other system scores
	}
	score := func(pid string) int {
		data, err := os.ReadFile(filepath.Join("/proc", pid, "oom_score_adj"))
		require.NoError(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		require.NoError(t, err)
		return n
	}
	p := start(t, "good")
	require.Greater(t, score(strconv.Itoa(p.Pid())), score("self"))
}

func TestNoPluginOutlivesAKilledHost(t *testing.T) {
	modes := []string{"good", "good with grandchild", "good without parent-death signal"}
	if parentDeathSignal {
		modes = append(modes, "good, liveness off")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			exe, err := os.Executable()
			require.NoError(t, err)
			host := exec.Command(exe)
			host.Env = append(os.Environ(), envHost+"="+mode)
			out, err := host.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, host.Start())
			said := firstLine(out)
			defer func() { _ = host.Wait() }()
			pid, err := strconv.Atoi(said)
			require.NoError(t, err, said)
			require.False(t, gone(pid))
			require.NoError(t, host.Process.Kill())
			require.Eventually(t, func() bool { return gone(pid) }, soon, 10*time.Millisecond)
		})
	}
}

func TestTheLastWordsOfADyingPluginAreNotLostInAStream(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	_, err := generate(t.Context(), p, "last words", nil)
	kindIs(t, err, contract.PluginCrashed, "fatal error: said through os.Stderr", "exited with code 9")
}

func TestStopEndsGrandchildrenAndReturnsInTime(t *testing.T) {
	p := start(t, "good with grandchild")
	pid, err := strconv.Atoi(strings.TrimPrefix(p.Output()[0], "grandchild "))
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, p.Stop(t.Context()))
	require.Less(t, time.Since(began), soon, "the grandchild sleeps for a minute")
	require.Eventually(t, func() bool { return gone(pid) }, soon, 10*time.Millisecond)
	noZombie(t)
}

func TestStopDrainsAndKillsWhatDoesNotEnd(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	g, err := p.Generate(t.Context(), &cladev1.GenerateStart{RequestId: "stop"}, nil)
	require.NoError(t, err)
	defer g.Close()
	_, err = g.Recv()
	require.NoError(t, err)
	time.Sleep(100 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	kindIs(t, p.Stop(ctx), contract.PluginCrashed, "did not stop in time")
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, specFor(t, "never handshakes"))
	kindIs(t, err, contract.Cancelled)
	noZombie(t)
}

func TestALongTMPDIRDoesNotBreakTheSocket(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	require.NoError(t, os.Mkdir(long, 0o700))
	t.Setenv("TMPDIR", long)
	t.Setenv("XDG_RUNTIME_DIR", long)
	p := start(t, "good")
	require.NoError(t, p.Health(t.Context()))
}

func TestTheSocketDirectoryIsGoneAfterTheProcess(t *testing.T) {
	p := start(t, "good")
	dir := filepath.Dir(p.child.dir)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, p.Stop(t.Context()))
	require.NoDirExists(t, dir)
}

func TestAFileThatCannotRunIsMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clade-x")
	_, err := Start(t.Context(), Spec{Path: file})
	kindIs(t, err, contract.PluginMissing, file)
	require.NoError(t, os.WriteFile(file, []byte("no program"), 0o700))
	_, err = Start(t.Context(), Spec{Path: file})
	kindIs(t, err, contract.PluginCrashed, "cannot be started", "exec format error")
}
