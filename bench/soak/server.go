package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// server is one `clade serve` with its model open, and with folders of its own.
type server struct {
	cmd       *exec.Cmd
	url, home string
	exited    chan struct{}
	log       *bytes.Buffer
}

const (
	kept  = 64 << 20 // bytes of the prefix cache, in memory and on disk
	rows  = "4"
	quota = "64MiB"
)

func start(ctx context.Context, clade, model string) (*server, error) {
	home, err := os.MkdirTemp("", "clade-soak-")
	if err != nil {
		return nil, err
	}
	s := &server{exited: make(chan struct{}), log: &bytes.Buffer{}, home: home}
	s.cmd = exec.CommandContext(ctx, clade, "serve", model, "--port", "0", "--rows", rows, "--context", "2048", "--prefix-cache", quota, "--prefix-disk", quota)
	s.cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"), "XDG_RUNTIME_DIR="+home)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, addr, ok := strings.Cut(lines.Text(), "listening on "); ok {
			s.url = addr
			break
		}
		fmt.Fprintln(s.log, lines.Text())
	}
	go func() {
		_, _ = io.Copy(io.Discard, stderr) // until it exits
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	if s.url == "" {
		<-s.exited
		return nil, fmt.Errorf("clade serve did not listen: %s", s.log)
	}
	for range 600 {
		if resp, err := get(ctx, s.url+"/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil, errors.Join(errors.New("clade serve did not become healthy in two minutes"), s.stop())
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// stop asks the server to end and waits for it.
func (s *server) stop() error {
	defer func() { _ = os.RemoveAll(s.home) }() // a temporary folder
	_ = s.cmd.Process.Signal(syscall.SIGTERM)   // it may have ended
	select {
	case <-s.exited:
		return nil
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
		return errors.New("it did not end within 30 s of SIGTERM")
	}
}

func (s *server) post(ctx context.Context, body map[string]any) (*http.Response, error) {
	data, err := json.Marshal(body) // without a model: there is only one
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("HTTP %d: %s", resp.StatusCode, text)
	}
	return resp, err
}

// drain reads an answer to its end: a whole one, or a stream that says that it is done.
func drain(body io.Reader, stream bool) error {
	done := !stream
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data := strings.TrimPrefix(lines.Text(), "data: ")
		if strings.HasPrefix(data, `{"error"`) {
			return fmt.Errorf("an error event: %s", data)
		}
		done = done || data == "[DONE]"
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !done {
		return errors.New("the stream ended without [DONE]")
	}
	return nil
}

// ask returns the answer to the question that does not change.
func (s *server) ask(ctx context.Context) (string, error) {
	resp, err := s.post(ctx, map[string]any{
		"temperature": 0, "max_tokens": 16, "messages": []map[string]string{{"role": "user", "content": "What is the capital of France?"}},
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var out struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || len(out.Choices) != 1 {
		return "", fmt.Errorf("no choice in the answer: %w", err)
	}
	return out.Choices[0].Message.Content, nil
}

// settled is what the server holds once it has answered again, with the text that it always gives, and nothing runs.
func (s *server) settled(ctx context.Context, want string) (usage, error) {
	got, err := s.ask(ctx)
	if err != nil {
		return usage{}, err
	}
	if got != want {
		return usage{}, fmt.Errorf("the answer was %q, now it is %q", want, got)
	}
	http.DefaultClient.CloseIdleConnections()
	time.Sleep(2 * time.Second) // connections that clients left are closed
	return s.usage(ctx)
}

// killHost starts a second server, kills it in mid-stream, and gives its plugin two seconds to be gone.
func killHost(ctx context.Context, clade, model string) error {
	s, err := start(ctx, clade, model)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(s.home) }() // a temporary folder
	resp, err := s.post(ctx, map[string]any{"stream": true, "max_tokens": 400, "ignore_eos": true, "messages": []map[string]string{{"role": "user", "content": questions[1]}}})
	if err != nil {
		return errors.Join(err, s.stop())
	}
	_, err = bufio.NewReader(resp.Body).ReadString('\n')
	_ = resp.Body.Close()
	if err != nil {
		return errors.Join(err, s.stop())
	}
	pids, err := children(s.cmd.Process.Pid)
	err = errors.Join(err, s.cmd.Process.Kill())
	<-s.exited
	if err != nil || len(pids) == 0 {
		return fmt.Errorf("the killed host had plugins %v: %w", pids, err)
	}
	for range 40 {
		time.Sleep(50 * time.Millisecond)
		left := false
		for _, pid := range pids {
			left = left || alive(pid)
		}
		if !left {
			return nil
		}
	}
	return fmt.Errorf("plugins %v outlive their host by two seconds", pids)
}
