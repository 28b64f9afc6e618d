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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is one `clade serve` with its model open.
type server struct {
	cmd    *exec.Cmd
	url    string
	exited chan struct{}
	log    *bytes.Buffer
}

func start(ctx context.Context, clade, model string) (*server, error) {
	s := &server{exited: make(chan struct{}), log: &bytes.Buffer{}}
	s.cmd = exec.CommandContext(ctx, clade, "serve", model, "--port", "0")
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
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.exited:
		return nil
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
		return errors.New("it did not end within 30 s of SIGTERM")
	}
}

func (s *server) post(ctx context.Context, prompt string, tokens int, stream bool) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{
		"model": "", "stream": stream, "temperature": 0, "max_tokens": tokens,
		"messages": []map[string]string{{"role": "user", "content": prompt}},
	})
	if err != nil {
		return nil, err
	}
	name, err := s.model(ctx)
	if err != nil {
		return nil, err
	}
	body = bytes.Replace(body, []byte(`"model":""`), []byte(`"model":`+strconv.Quote(name)), 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		resp.Body.Close()
		return nil, fmt.Errorf("HTTP %d: %s", resp.StatusCode, text)
	}
	return resp, err
}

func (s *server) model(ctx context.Context) (string, error) {
	resp, err := get(ctx, s.url+"/v1/models")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var list struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || len(list.Data) == 0 {
		return "", fmt.Errorf("no model is served: %w", err)
	}
	return list.Data[0].ID, nil
}

// ask returns the answer to the question that does not change. A plugin that was just killed is started again by it.
func (s *server) ask(ctx context.Context) (string, error) {
	resp, err := s.post(ctx, "What is the capital of France?", 16, false)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var out struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || len(out.Choices) != 1 {
		return "", fmt.Errorf("no choice in the answer: %w", err)
	}
	return out.Choices[0].Message.Content, nil
}

// settled is what the server holds once it has answered again, with the text that it always gives.
func (s *server) settled(ctx context.Context, want string) (usage, error) {
	got, err := s.ask(ctx)
	if err != nil {
		return usage{}, err
	}
	if got != want {
		return usage{}, fmt.Errorf("the answer was %q, now it is %q", want, got)
	}
	return s.usage()
}

var errGone = errors.New("the client went away")

func gone(err error) error {
	if errors.Is(err, errGone) {
		return nil
	}
	return fmt.Errorf("the stream should have been left: %w", err)
}

// stream reads a long answer and calls middle after its third event; its error leaves the stream there.
func (s *server) stream(ctx context.Context, middle func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := s.post(ctx, "Tell a long story about a lighthouse.", 32, true)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	events, done := 0, false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if strings.Contains(data, `"error"`) {
			return fmt.Errorf("%w: %s", errEvent, data)
		}
		done = done || data == "[DONE]"
		if events++; events == 3 {
			if err := middle(); err != nil {
				return err
			}
		}
	}
	if !done {
		return errors.New("the stream ended without [DONE]")
	}
	return nil
}

var errEvent = errors.New("an error event")

// killPlugin kills the plugin in mid-stream: the stream has to end with an error that says so.
func (s *server) killPlugin(ctx context.Context) error {
	err := s.stream(ctx, func() error {
		pids, err := children(s.cmd.Process.Pid)
		if err != nil || len(pids) == 0 {
			return fmt.Errorf("no plugin to kill: %w", err)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, errEvent) {
		return fmt.Errorf("the stream of the killed plugin ended with %w, want an error event", err)
	}
	return nil
}

// killHost starts a second server, kills it in mid-stream, and gives its plugin two seconds to be gone.
func killHost(ctx context.Context, clade, model string) error {
	s, err := start(ctx, clade, model)
	if err != nil {
		return err
	}
	var pids []int
	_ = s.stream(ctx, func() error { // it ends with a broken connection
		pids, err = children(s.cmd.Process.Pid)
		return errors.Join(err, s.cmd.Process.Kill())
	})
	<-s.exited
	if len(pids) == 0 {
		return errors.New("the killed host had no plugin")
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

// alive is false for a zombie, which only waits for init.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func children(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		// pid (comm) state ppid: comm may hold spaces and parentheses
		rest := string(data)[strings.LastIndexByte(string(data), ')')+1:]
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				return nil, err
			}
			out = append(out, child)
		}
	}
	return out, nil
}

// usage is what a server holds.
type usage struct {
	descriptors, plugins int
	megabytes            float64
}

// Growth beyond these is a leak: a round leaves at most noise.
const (
	descriptorSlack = 8
	megabyteSlack   = 24
)

func (s *server) usage() (usage, error) {
	pid := s.cmd.Process.Pid
	fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return usage{}, err
	}
	statm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return usage{}, err
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		return usage{}, err
	}
	plugins, err := children(pid)
	return usage{len(fds), len(plugins), resident * float64(os.Getpagesize()) / 1e6}, err
}

func (u usage) grownFrom(before usage) error {
	switch {
	case u.plugins != before.plugins:
		return fmt.Errorf("%d plugins run, %d ran", u.plugins, before.plugins)
	case u.descriptors > before.descriptors+descriptorSlack:
		return fmt.Errorf("%d descriptors are open, %d were", u.descriptors, before.descriptors)
	case u.megabytes > before.megabytes+megabyteSlack:
		return fmt.Errorf("%.1f MB are resident, %.1f were", u.megabytes, before.megabytes)
	}
	return nil
}
