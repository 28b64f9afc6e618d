package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// The host's cost a message: the CPU time that this process spends to receive the tokens of a supervised plugin, beside
// what it spends on the same messages at the same times from a bare gRPC server. Both senders are the program emitter.

const envInterval = "CLADE_BENCH_INTERVAL"

// receiver opens one stream of n tokens and reads it to its end.
type receiver func(ctx context.Context, n uint32) error

// rpcRows compares at several intervals with one stream, and at 8 ms with 16.
func rpcRows(ctx context.Context, emitter string, repeats int, length time.Duration) ([]Row, error) {
	var rows []Row
	for _, c := range []struct {
		interval time.Duration
		streams  int
	}{{time.Millisecond, 1}, {2 * time.Millisecond, 1}, {4 * time.Millisecond, 1}, {8 * time.Millisecond, 1}, {8 * time.Millisecond, 16}} {
		r, err := rpcCase(ctx, emitter, c.interval, c.streams, repeats, length)
		if err != nil {
			return nil, fmt.Errorf("rpc at %v: %w", c.interval, err)
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

func rpcCase(ctx context.Context, emitter string, interval time.Duration, streams, repeats int, length time.Duration) ([]Row, error) {
	clade, stopClade, err := supervised(ctx, emitter, interval)
	if err != nil {
		return nil, err
	}
	defer stopClade()
	bare, stopBare, err := bareStream(ctx, emitter, interval)
	if err != nil {
		return nil, err
	}
	defer stopBare()
	n := uint32(length / interval)
	var cpu, bareCPU, rate, bareRate []float64
	for i := range repeats + 1 {
		c, cr, err := cost(ctx, clade, streams, n)
		if err != nil {
			return nil, err
		}
		b, br, err := cost(ctx, bare, streams, n)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			continue // the first round fills caches and pools
		}
		cpu, bareCPU, rate, bareRate = append(cpu, c), append(bareCPU, b), append(rate, cr), append(bareRate, br)
	}
	name := fmt.Sprintf("rpc/%dms/%d-streams", interval.Milliseconds(), streams)
	return []Row{
		paired(name+"/receiver-cpu", "us/message", "bare gRPC", cpu, bareCPU, "<= 1.5 x"),
		paired(name+"/throughput", "messages/s", "bare gRPC", rate, bareRate, ">= 0.98 x"),
	}, nil
}

// cost returns this process's CPU microseconds a message and the messages a second.
func cost(ctx context.Context, r receiver, streams int, n uint32) (cpu, rate float64, err error) {
	before, start := cpuTime(), time.Now()
	errs := make([]error, streams)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() { errs[i] = r(ctx, n) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	total := float64(n) * float64(streams)
	return float64((cpuTime() - before).Microseconds()) / total, total / time.Since(start).Seconds(), nil
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // only a wrong argument can fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func supervised(ctx context.Context, emitter string, interval time.Duration) (receiver, func(), error) {
	p, err := supervise.Start(ctx, supervise.Spec{Path: emitter, RuntimeDir: filepath.Dir(emitter), Env: []string{envInterval + "=" + interval.String()}})
	if err != nil {
		return nil, nil, err
	}
	stop := func() { _ = p.Stop(context.WithoutCancel(ctx)) }
	model := &cladev1.ModelSpec{
		Graph: "bench.clademl/emitter", GraphEntry: "emitter", Composition: &cladev1.Composition{},
		Artifacts: []*cladev1.Artifact{{Role: cladev1.Role_ROLE_TARGET, Path: filepath.Dir(emitter), Format: "safetensors"}},
		Profile:   &cladev1.Profile{Loader: "safetensors", Loop: "autoregressive", FromCaller: true},
	}
	plan, err := p.Plan(ctx, &cladev1.PlanRequest{Model: model})
	if err == nil {
		_, err = p.Open(ctx, &cladev1.OpenRequest{Model: model, Plan: plan}, nil)
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return func(ctx context.Context, n uint32) error {
		s, err := p.Generate(ctx, &cladev1.GenerateStart{MaxTokens: &n}, []int32{1})
		if err != nil {
			return err
		}
		defer s.Close()
		return drain(s.Recv, n)
	}, stop, nil
}

func bareStream(ctx context.Context, emitter string, interval time.Duration) (receiver, func(), error) {
	dir, err := os.MkdirTemp("", "clade-bench-")
	if err != nil {
		return nil, nil, err
	}
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(ctx, emitter, "bare", socket)
	cmd.Env = append(os.Environ(), envInterval+"="+interval.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		stdin.Close()
		_ = cmd.Wait()
		os.RemoveAll(dir)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		stop()
		return nil, nil, fmt.Errorf("the bare server did not start: %q: %w", line, err)
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		stop()
		return nil, nil, err
	}
	client := cladev1.NewPluginServiceClient(conn)
	return func(ctx context.Context, n uint32) error {
		s, err := client.Generate(ctx)
		if err != nil {
			return err
		}
		start := &cladev1.GenerateStart{MaxTokens: &n}
		if err := s.Send(&cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Start{Start: start}}); err != nil {
			return err
		}
		return drain(s.Recv, n)
	}, func() { conn.Close(); stop() }, nil
}

// drain reads to the end and counts the tokens: a stream that loses some is no measurement.
func drain(recv func() (*cladev1.GenerateResponse, error), n uint32) error {
	got := 0
	for {
		r, err := recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		got += len(r.GetStep().GetIds())
	}
	if got != int(n) {
		return fmt.Errorf("%d tokens came, %d were sent", got, n)
	}
	return nil
}
