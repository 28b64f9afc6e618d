// Command soak starts, streams, stops and kills in a loop, for a bounded time, and looks at what is left behind.
//
//	soak -clade bin/clade -model FILE.gguf [-for 5m]
//
// One server lives for the whole run. Each round one of these happens to it, in turn: a stream that ends, a client that goes
// away in mid-stream, the plugin killed in mid-stream; and, beside it, a second host that is killed (-9) in mid-stream. After
// every round the server answers the same question with the same text, and no plugin is left without its host. At the end
// descriptors, goroutine-sized memory and processes are where they were after the first rounds.
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
	s, err := start(ctx, clade, model)
	if err != nil {
		return err
	}
	defer s.stop()
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
	deadline := time.Now().Add(length)
	for n := 0; time.Now().Before(deadline); n++ {
		r := rounds[n%len(rounds)]
		if err := r.run(ctx, s); err != nil {
			return fmt.Errorf("round %d, %s: %w", n, r.name, err)
		}
		got, err := s.ask(ctx)
		if err != nil {
			return fmt.Errorf("after round %d, %s: %w", n, r.name, err)
		}
		if got != want {
			return fmt.Errorf("after round %d, %s: the answer was %q, now it is %q", n, r.name, want, got)
		}
		now, err := s.usage()
		if err != nil {
			return err
		}
		if n == 2*len(rounds)-1 {
			before = now
		}
		fmt.Printf("round %d, %s: %d descriptors, %.1f MB, %d plugins\n", n, r.name, now.descriptors, now.megabytes, now.plugins)
		if before.plugins > 0 {
			if err := now.grownFrom(before); err != nil {
				return fmt.Errorf("after round %d, %s: %w", n, r.name, err)
			}
		}
	}
	return nil
}
