//go:build linux || darwin

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
		Profile:     &cladev1.Profile{Loader: "safetensors", Loop: "autoregressive", FromCaller: true},
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
