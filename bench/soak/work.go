package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// tally counts over all servers.
type tally struct{ ended, left, kills atomic.Int64 }

// patience is how long a request may take: none runs for ever.
const patience = 2 * time.Minute

// work has clients ask for a while, with the plugin killed once in it.
func (s *server) work(ctx context.Context, clients int, length time.Duration, total *tally) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	until := time.Now().Add(length)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i)))
			for time.Now().Before(until) && ctx.Err() == nil {
				if err := s.one(ctx, rng, total); err != nil {
					cancel(fmt.Errorf("client %d: %w", i, err))
				}
			}
		})
	}
	wg.Go(func() {
		select {
		case <-time.After(time.Duration(rand.Int64N(int64(length) * 3 / 4))):
		case <-ctx.Done():
			return
		}
		pids, err := children(s.cmd.Process.Pid)
		if err != nil {
			cancel(err)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			total.kills.Add(1)
		}
	})
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// questions that conversations begin with: several clients share each beginning.
var questions = []string{
	"What is the capital of France?", "Tell a long story about a lighthouse.", "Name three rivers.",
	"Write down the numbers from one to twenty. " + strings.Repeat("Take your time, and think of every number. ", 20),
}

// one request of a random kind.
func (s *server) one(ctx context.Context, rng *rand.Rand, total *tally) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer total.ended.Add(1)
	body := map[string]any{
		"max_tokens": 4 + rng.IntN(28), "temperature": float64(rng.IntN(2)), "seed": rng.IntN(1000),
		"messages": []map[string]string{{"role": "user", "content": questions[rng.IntN(len(questions))]}},
	}
	leaves := false
	switch rng.IntN(6) {
	case 0:
		body["n"] = 2
	case 1: // the next turn
		body["messages"] = []map[string]string{
			{"role": "user", "content": questions[rng.IntN(len(questions))]}, {"role": "assistant", "content": "I think so."}, {"role": "user", "content": "Why?"},
		}
	case 2: // before the first token
		leaves = true
		short, end := context.WithTimeout(ctx, time.Duration(rng.IntN(60))*time.Millisecond)
		defer end()
		ctx = short
	case 3: // in mid-stream
		return s.leave(ctx, body, 1+rng.IntN(4), total)
	default:
		body["stream"] = true
	}
	resp, err := s.post(ctx, body)
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		err = drain(resp.Body, body["stream"] == true)
	}
	if leaves {
		total.left.Add(1)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
	}
	return err
}

// leave reads some events of a stream and goes.
func (s *server) leave(ctx context.Context, body map[string]any, events int, total *tally) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body["stream"], body["max_tokens"] = true, 400
	resp, err := s.post(ctx, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); events > 0 && lines.Scan(); {
		if strings.Contains(lines.Text(), `"error"`) {
			return fmt.Errorf("an error event: %s", lines.Text())
		}
		if strings.HasPrefix(lines.Text(), "data: ") {
			events--
		}
	}
	total.left.Add(1)
	return nil
}
