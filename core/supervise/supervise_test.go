//go:build linux || darwin

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func specFor(t *testing.T, mode string) Spec {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	return Spec{Path: exe, RuntimeDir: t.TempDir(), Env: []string{
		envPlugin + "=" + mode,
		"GORACE=atexit_sleep_ms=0", // else an exit takes a second under -race
	}}
}

func start(t *testing.T, mode string, change ...func(*Spec)) *Process {
	t.Helper()
	spec := specFor(t, mode)
	for _, c := range change {
		c(&spec)
	}
	p, err := Start(t.Context(), spec)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func open(t *testing.T, p *Process) {
	t.Helper()
	_, err := p.Open(t.Context(), openRequest(t, p), nil)
	require.NoError(t, err)
}

func model() *cladev1.ModelSpec {
	device := "cpu-x86_64"
	return &cladev1.ModelSpec{
		Artifacts:   []*cladev1.Artifact{{Role: cladev1.Role_ROLE_TARGET, Path: "/m", Format: "safetensors"}},
		Graph:       "example.org/echo",
		Profile:     &cladev1.Profile{Id: "echo-resident", Loader: "safetensors", Loop: "autoregressive"},
		Composition: &cladev1.Composition{Device: &device},
	}
}

func openRequest(t *testing.T, p *Process) *cladev1.OpenRequest {
	t.Helper()
	plan, err := p.Plan(t.Context(), &cladev1.PlanRequest{Model: model()})
	require.NoError(t, err)
	return &cladev1.OpenRequest{Model: model(), Plan: plan}
}

// generate runs one request to its end and returns the ids after the first step.
func generate(ctx context.Context, p *Process, id string, ids []int32) ([]int32, error) {
	g, err := p.Generate(ctx, &cladev1.GenerateStart{RequestId: id}, ids)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	var out []int32
	for {
		r, err := g.Recv()
		if errors.Is(err, io.EOF) {
			return out[1:], nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, r.GetStep().GetIds()...)
	}
}

// kindIs checks an error's Kind and that its text is one line with every part.
func kindIs(t *testing.T, err error, kind contract.Kind, parts ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, kind.String(), contract.KindOf(err).String(), err.Error())
	require.NotContains(t, err.Error(), "\n")
	require.Less(t, len(err.Error()), 1000)
	for _, part := range parts {
		require.Contains(t, err.Error(), part)
	}
}

// noZombie checks that no child of this process waits to be reaped.
func noZombie(t *testing.T) {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		f := strings.Fields(rest)
		if len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			require.NotEqual(t, "Z", f[0], "zombie: %s", data)
		}
	}
}

// gone says that pid does not run (a zombie that PID 1 has not reaped yet does not).
func gone(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func TestAModelAnswersThroughThePlugin(t *testing.T) {
	p := start(t, "good")
	require.Equal(t, Ready, p.State())
	require.NoError(t, p.Health(t.Context()))
	d, err := p.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, "echo", d.Name)

	var events int
	facts, err := p.Open(t.Context(), openRequest(t, p), func(*cladev1.OpenResponse) { events++ })
	require.NoError(t, err)
	require.Equal(t, "echo", facts.Family)
	require.Equal(t, 1, events)

	ids, err := generate(t.Context(), p, "echo", []int32{5, 6, 7})
	require.NoError(t, err)
	require.Equal(t, []int32{5, 6, 7}, ids)

	var values []float32
	_, err = p.Score(t.Context(), &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS}, []int32{1, 2},
		func(f *cladev1.ScoreFrame) error { values = append(values, f.Values...); return nil })
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2}, values)

	n, err := p.Tune(t.Context(), 3)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	_, err = p.Stats(t.Context())
	require.NoError(t, err)

	require.NoError(t, p.Stop(t.Context()))
	require.Equal(t, Dead, p.State())
	_, err = p.Stats(t.Context())
	kindIs(t, err, contract.Unavailable, "stopped")
	noZombie(t)
}

func TestALongPromptTravelsInChunks(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	ids := make([]int32, 3*idsPerChunk+1)
	for i := range ids {
		ids[i] = int32(i)
	}
	got, err := generate(t.Context(), p, "echo", ids)
	require.NoError(t, err)
	require.Equal(t, ids, got)
}

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
	require.Eventually(t, func() bool { return gone(pid) }, 2*time.Second, 10*time.Millisecond, "the grandchild lives")
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
	kindIs(t, err, contract.PluginCrashed, "killed (out of memory suspected)")
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
	_, err := generate(t.Context(), p, "wait", nil)
	kindIs(t, err, contract.PluginCrashed, "hang: no progress for 1.5s")
}

func TestASlowReaderIsNoHang(t *testing.T) {
	p := start(t, "good", func(s *Spec) { s.Silence = 1200 * time.Millisecond })
	open(t, p)
	g, err := p.Generate(t.Context(), &cladev1.GenerateStart{RequestId: "echo"}, []int32{1})
	require.NoError(t, err)
	time.Sleep(1500 * time.Millisecond)
	for err == nil {
		_, err = g.Recv()
	}
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, Ready, p.State())
}

func TestCancelAndControlReachTheRequest(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := generate(ctx, p, "wait", nil)
	kindIs(t, err, contract.Cancelled)

	g, err := p.Generate(t.Context(), &cladev1.GenerateStart{RequestId: "until told"}, nil)
	require.NoError(t, err)
	require.NoError(t, g.Control(&cladev1.Control{Action: &cladev1.Control_StopAt{StopAt: 41}}))
	var ids []int32
	for err == nil {
		var r *cladev1.GenerateResponse
		r, err = g.Recv()
		ids = append(ids, r.GetStep().GetIds()...)
	}
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, []int32{-1, 41}, ids)

	g, err = p.Generate(t.Context(), &cladev1.GenerateStart{RequestId: "wait"}, nil)
	require.NoError(t, err)
	require.NoError(t, g.Control(&cladev1.Control{Action: &cladev1.Control_Cancel{Cancel: true}}))
	for err == nil {
		_, err = g.Recv()
	}
	kindIs(t, err, contract.Cancelled)
	require.Equal(t, Ready, p.State())
}

func TestNoOptionIsIgnored(t *testing.T) {
	p := start(t, "good")
	open(t, p)
	run := func(s *cladev1.GenerateStart) error {
		g, err := p.Generate(t.Context(), s, nil)
		for err == nil {
			_, err = g.Recv()
		}
		return err
	}
	k := uint32(3)
	kindIs(t, run(&cladev1.GenerateStart{Sampling: &cladev1.Sampling{TopK: &k}}), contract.UnsupportedOption, "sampling.top_k")
	require.ErrorIs(t, run(&cladev1.GenerateStart{MaxTokens: &k}), io.EOF)

	unknown := &cladev1.GenerateStart{Sampling: &cladev1.Sampling{}}
	unknown.Sampling.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1))
	kindIs(t, run(unknown), contract.UnsupportedOption, "start.sampling.77")
}

func TestASecondOpenIsBusyAndAChangedPlanIsRefused(t *testing.T) {
	p := start(t, "good")
	req := openRequest(t, p)
	changed := &cladev1.OpenRequest{Model: model(), Plan: &cladev1.Plan{TotalBytes: 8}}
	_, err := p.Open(t.Context(), changed, nil)
	kindIs(t, err, contract.PluginMismatch, "total_bytes is 7 now, 8 was admitted")
	_, err = p.Open(t.Context(), req, nil)
	require.NoError(t, err)
	_, err = p.Open(t.Context(), req, nil)
	kindIs(t, err, contract.Busy)
}

func TestNoPluginOutlivesAKilledHost(t *testing.T) {
	for _, c := range []struct {
		mode string
		stop bool // the plugin cannot run, so it cannot see EOF; only the kernel's signal reaches it
	}{{"good", false}, {"good with grandchild", false}, {"good", true}} {
		t.Run(fmt.Sprintf("%s stopped=%v", c.mode, c.stop), func(t *testing.T) {
			if c.stop && !parentDeathSignal {
				return
			}
			exe, err := os.Executable()
			require.NoError(t, err)
			host := exec.Command(exe)
			host.Env = append(os.Environ(), envHost+"="+c.mode)
			out, err := host.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, host.Start())
			pid, err := strconv.Atoi(firstLine(out))
			require.NoError(t, err)
			require.False(t, gone(pid))
			if c.stop {
				require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			}
			require.NoError(t, host.Process.Kill())
			_ = host.Wait()
			require.Eventually(t, func() bool { return gone(pid) }, 2*time.Second, 10*time.Millisecond)
		})
	}
}

func TestStopEndsGrandchildrenAndReturnsInTime(t *testing.T) {
	p := start(t, "good with grandchild")
	pid, err := strconv.Atoi(strings.TrimPrefix(p.Output()[0], "grandchild "))
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, p.Stop(t.Context()))
	require.Less(t, time.Since(began), 2*time.Second)
	require.Eventually(t, func() bool { return gone(pid) }, 2*time.Second, 10*time.Millisecond)
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
