// Command soak uses servers as many impatient clients do, for a bounded time, and looks at what is left behind.
//
//	soak -clade bin/clade -model FILE.gguf [-for 5m] [-clients 6]
//
// Clients ask at once: whole answers and streams, greedy and sampled, several choices, long prompts, conversations that go on; some leave
// in mid-stream, some before the first token. Meanwhile the plugin is killed (-9) now and then: no client may see it. Every half minute
// the clients pause, and the server must be as it was: it answers the same question with the same text, has one plugin, and holds no
// more descriptors, goroutines and memory than after its first pause; the plugin stays within its plan, and the prefix cache on disk
// within its quota. A request that does not end in two minutes fails the run. Once in a server's life a second host is killed (-9) in
// mid-stream, and its plugin has to go; a server that does not end 30 s after SIGTERM fails the run.
//
// All requests go to 127.0.0.1. Not for: figures (bench) or correctness of the text (tests).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	clade := flag.String("clade", "bin/clade", "the host")
	model := flag.String("model", "", "a small GGUF")
	length := flag.Duration("for", 5*time.Minute, "how long")
	clients := flag.Int("clients", 6, "that ask at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, *clade, *model, *length, *clients); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

const (
	// lifetime of a server, in the course of which nothing may grow.
	lifetime = 10 * time.Minute
	// period between two pauses.
	period = 30 * time.Second
)

func soak(ctx context.Context, clade, model string, length time.Duration, clients int) error {
	deadline := time.Now().Add(length)
	total := &tally{}
	for n := 1; n == 1 || time.Now().Before(deadline); n++ {
		end := time.Now().Add(lifetime)
		if deadline.Before(end) {
			end = deadline
		}
		fmt.Printf("server %d\n", n)
		if err := life(ctx, clade, model, end, clients, total); err != nil {
			return fmt.Errorf("server %d: %w", n, err)
		}
	}
	fmt.Printf("%d requests ended, %d of them left by their clients, beside %d kills of the plugin\n", total.ended.Load(), total.left.Load(), total.kills.Load())
	return nil
}

// life is one server from its start to its end.
func life(ctx context.Context, clade, model string, end time.Time, clients int, total *tally) (err error) {
	s, err := start(ctx, clade, model)
	if err != nil {
		return err
	}
	defer func() {
		if e := s.stop(); err == nil {
			err = e
		}
	}()
	want, err := s.ask(ctx)
	if err != nil {
		return err
	}
	var before *usage
	for n := 1; n <= 2 || time.Now().Before(end); n++ {
		if err := s.work(ctx, clients, period, total); err != nil {
			return fmt.Errorf("period %d: %w", n, err)
		}
		now, err := s.settled(ctx, want)
		if err != nil {
			return fmt.Errorf("after period %d: %w", n, err)
		}
		fmt.Printf("  period %d: %s; %d requests, %d kills so far\n", n, now, total.ended.Load(), total.kills.Load())
		if before == nil {
			before = &now
		} else if err := now.grownFrom(*before); err != nil {
			return fmt.Errorf("after period %d: %w", n, err)
		}
	}
	return killHost(ctx, clade, model)
}
