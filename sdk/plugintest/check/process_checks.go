package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/clademl/clade/sdk/contract"
)

func processChecks() []check {
	return []check{
		{"handshake", "the first line of its output is a handshake for this host's contract, at once", (*subject).checkHandshake},
		{"versions", "of the majors that a host offers it serves the highest it has, else its lowest", (*subject).checkVersions},
		{"mutual-tls", "it answers a client with the host's certificate, and nobody else", (*subject).checkMutualTLS},
		{"services", "health, controller and stdio services are served beside the contract", (*subject).checkServices},
		{"by-hand", "started by hand it says what it is and exits 1", (*subject).checkByHand},
		{"liveness", "it exits when its standard input ends: the host is gone", (*subject).checkLiveness},
		{"signals", "SIGINT is the host's affair; SIGTERM ends it", (*subject).checkSignals},
	}
}

func (s *subject) checkHandshake(ctx context.Context) error {
	p, err := start(ctx, s.launch())
	if err != nil {
		return err
	}
	defer p.kill()
	l := p.line
	switch {
	case l.core != "1":
		return fmt.Errorf("its first line of output is %q; a handshake begins with 1|", clip(l.raw))
	case l.version != fmt.Sprint(contract.Major):
		return fmt.Errorf("it serves contract %q to a host that offers %d", l.version, contract.Major)
	case l.network != "unix" || filepath.Dir(l.address) != p.dir:
		return fmt.Errorf("it listens on %s %s; a Unix socket in the folder PLUGIN_UNIX_SOCKET_DIR is due", l.network, l.address)
	case l.protocol != "grpc":
		return fmt.Errorf("it speaks %q; grpc is due", l.protocol)
	case l.certificate == "":
		return errors.New("the line has no certificate: PLUGIN_CLIENT_CERT asks for mutual TLS")
	}
	return p.connect(ctx)
}

func clip(s string) string {
	const enough = 120
	if len(s) > enough {
		return s[:enough] + "..."
	}
	return s
}

func (s *subject) checkVersions(ctx context.Context) error {
	for offered, want := range map[string]string{"1": "1", "99,1": "1", "1,99": "1"} {
		if err := s.served(ctx, offered, want); err != nil {
			return err
		}
	}
	if s.describe == nil {
		return nil
	}
	lowest := uint32(0)
	for _, major := range s.describe.ContractVersions {
		if err := s.served(ctx, fmt.Sprint(major), fmt.Sprint(major)); err != nil {
			return err
		}
		if lowest == 0 || major < lowest {
			lowest = major
		}
	}
	return s.served(ctx, "98,99", fmt.Sprint(lowest))
}

func (s *subject) served(ctx context.Context, offered, want string) error {
	l := s.launch()
	l.versions = offered
	p, err := start(ctx, l)
	if err != nil {
		return fmt.Errorf("offered the contracts %s it %w", offered, err)
	}
	defer p.kill()
	if p.line.version != want {
		return fmt.Errorf("offered the contracts %s it serves %q, not %s", offered, clip(p.line.version), want)
	}
	return nil
}

func (s *subject) checkMutualTLS(ctx context.Context) error {
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	_, stranger, err := newCertificate()
	if err != nil {
		return err
	}
	own := p.conn
	defer func() { p.conn = own }()
	for who, c := range map[string][]byte{"without a certificate": nil, "with another certificate": stranger.Certificate[0]} {
		config := p.tls.Clone()
		config.Certificates = nil
		if c != nil {
			config.Certificates = append(config.Certificates, stranger)
		}
		conn, err := p.dial(credentials.NewTLS(config))
		if err != nil {
			return err
		}
		p.conn = conn
		err = p.health(ctx)
		_ = conn.Close()
		if err == nil {
			return fmt.Errorf("a client %s is served: anyone on the machine could use the model", who)
		}
	}
	return nil
}

// The services of go-plugin, by the names on the wire; their messages are empty or not read.
const (
	controllerShutdown = "/plugin.GRPCController/Shutdown"
	stdioStream        = "/plugin.GRPCStdio/StreamStdio"
)

func (s *subject) checkServices(ctx context.Context) error {
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	if err := p.stdio(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.quick)
	defer cancel()
	err = p.conn.Invoke(ctx, controllerShutdown, &emptypb.Empty{}, &emptypb.Empty{})
	if status.Code(err) == codes.Unimplemented {
		return errors.New("the controller service is missing: a host's Kill would wait for it, then send SIGKILL")
	}
	if !p.ends(s.limits.exit) {
		return fmt.Errorf("the process lives on %s after the controller's Shutdown", s.limits.exit)
	}
	return nil
}

// stdio asks for the output streams: they may be empty or at their end, but must be there.
func (p *process) stdio(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	stream, err := p.conn.NewStream(ctx, streamDesc, stdioStream)
	if err == nil {
		if err = stream.SendMsg(&emptypb.Empty{}); err == nil {
			_ = stream.CloseSend()
			err = stream.RecvMsg(&emptypb.Empty{})
		}
	}
	if status.Code(err) == codes.Unimplemented {
		return errors.New("the stdio service is missing: go-plugin's client asks for it at its start")
	}
	return nil
}

// byHand runs the binary without a host's environment.
func (s *subject) byHand(ctx context.Context, args ...string) (stdout, stderr string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.start)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Path, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(contract.Environment(environ()), s.Env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil {
		return out.String(), errs.String(), -1, fmt.Errorf("did not end within %s", s.limits.start)
	}
	if errors.As(err, &exit) {
		return out.String(), errs.String(), exit.ExitCode(), nil
	}
	return out.String(), errs.String(), 0, err
}

func (s *subject) checkByHand(ctx context.Context) error {
	_, stderr, code, err := s.byHand(ctx)
	switch {
	case err != nil:
		return err
	case code != 1:
		return fmt.Errorf("exits with code %d, 1 is due", code)
	case strings.TrimSpace(stderr) == "":
		return errors.New("says nothing on its standard error")
	}
	return nil
}

func (s *subject) checkLiveness(ctx context.Context) error {
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	_ = p.liveness.Close()
	if !p.ends(s.limits.exit) {
		return fmt.Errorf("the process lives on %s after its standard input ended: an orphan would hold the model's memory", s.limits.exit)
	}
	return nil
}

func (s *subject) checkSignals(ctx context.Context) error {
	if !signals {
		return notRun("this system has no signals")
	}
	p, err := s.process(ctx)
	if err != nil {
		return err
	}
	defer p.kill()
	if err := interrupt(p.cmd.Process); err != nil {
		return err
	}
	if p.ends(200 * time.Millisecond) {
		return errors.New("SIGINT ended it: Ctrl-C reaches the whole terminal, and its meaning is the host's to decide")
	}
	if err := terminate(p.cmd.Process); err != nil {
		return err
	}
	if !p.ends(s.limits.exit) {
		return fmt.Errorf("the process lives on %s after SIGTERM", s.limits.exit)
	}
	return nil
}
