// Command soak starts, streams, stops and kills in a loop, for a bounded time, and looks at what is left behind.
//
//	soak -clade bin/clade -model FILE.gguf [-for 5m]
//
// Each round one of these happens to a server, in turn: a stream that ends, a client that goes away in mid-stream, the
// plugin killed in mid-stream; and, beside it, a second host that is killed (-9) in mid-stream. After every round the server
// answers the same question with the same text, has one plugin, and holds no more descriptors and memory than after its first
// rounds. The host's circuit breaker gives a plugin up after a few crashes in a row, so a server is asked to end (SIGTERM) and
// another one started before that; a server that does not end in 30 s fails the run.
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
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := soak(ctx, *clade, *model, *length); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// round is one thing that may happen to a server.
type round struct {
	name string
	run  func(ctx context.Context, s *server) error
}

func soak(ctx context.Context, clade, model string, length time.Duration) error {
	deadline := time.Now().Add(length)
	for n := 1; n == 1 || time.Now().Before(deadline); n++ {
		fmt.Printf("server %d\n", n)
		if err := life(ctx, clade, model, deadline); err != nil {
			return fmt.Errorf("server %d: %w", n, err)
		}
	}
	return nil
}

// cycles of rounds in a server's life; the plugin is killed once a cycle, and core/loader's breaker opens at the fifth crash.
const cycles = 4

// life is one server from its start to its end.
func life(ctx context.Context, clade, model string, deadline time.Time) (err error) {
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
	rounds := []round{
		{"stream to its end", func(ctx context.Context, s *server) error { return s.stream(ctx, func() error { return nil }) }},
		{"client goes away", func(ctx context.Context, s *server) error {
			return gone(s.stream(ctx, func() error { return errGone }))
		}},
		{"plugin killed", func(ctx context.Context, s *server) error { return s.killPlugin(ctx) }},
		{"host killed", func(ctx context.Context, _ *server) error { return killHost(ctx, clade, model) }},
	}
	var before usage
	for n := range cycles * len(rounds) {
		if n > len(rounds) && time.Now().After(deadline) {
			return nil
		}
		r := rounds[n%len(rounds)]
		if err := r.run(ctx, s); err != nil {
			return fmt.Errorf("round %d, %s: %w", n, r.name, err)
		}
		now, err := s.settled(ctx, want)
		if err != nil {
			return fmt.Errorf("after round %d, %s: %w", n, r.name, err)
		}
		fmt.Printf("  round %d, %s: %d descriptors, %.1f MB, %d plugins\n", n, r.name, now.descriptors, now.megabytes, now.plugins)
		if n < len(rounds) {
			before = now
		} else if err := now.grownFrom(before); err != nil {
			return fmt.Errorf("after round %d, %s: %w", n, r.name, err)
		}
	}
	return nil
}
