package check

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// launch says how to start a plugin.
type launch struct {
	path     string
	runtime  string
	env      []string
	versions string // contract majors to offer, "1"
	limits   limits
}

// process is one plugin process and the connection to it.
type process struct {
	limits   limits
	cmd      *exec.Cmd
	dir      string // private; its socket lies here
	liveness *os.File
	line     handshake
	conn     *grpc.ClientConn
	rpc      cladev1.PluginServiceClient
	tls      *tls.Config
	exited   chan struct{} // closed when it was reaped and its output read

	mu     sync.Mutex
	extra  bytes.Buffer // standard output behind the handshake line
	stderr bytes.Buffer
}

// handshake is the line core|version|network|address|protocol|certificate.
type handshake struct {
	raw, core, version, network, address, protocol, certificate string
}

// outputKept bounds what is kept of either output.
const outputKept = 1 << 20

// start starts a plugin and reads its handshake line. The caller ends the process, also after an error from connect.
func start(ctx context.Context, l launch) (*process, error) {
	dir, err := os.MkdirTemp("/tmp", "clade-check-")
	if err != nil {
		return nil, err
	}
	p := &process{limits: l.limits, dir: dir, exited: make(chan struct{})}
	certificate, pair, err := newCertificate()
	if err != nil {
		return nil, err
	}
	p.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, ServerName: "localhost"}
	h := contract.Handshake()
	p.cmd = exec.Command(l.path)
	p.cmd.Dir = "/"
	p.cmd.Env = append(contract.Environment(os.Environ()),
		h.MagicCookieKey+"="+h.MagicCookieValue, "PLUGIN_MIN_PORT=10000", "PLUGIN_MAX_PORT=25000",
		"PLUGIN_PROTOCOL_VERSIONS="+l.versions, "PLUGIN_CLIENT_CERT="+string(certificate), "PLUGIN_UNIX_SOCKET_DIR="+dir,
		contract.EnvLiveness+"=1", contract.EnvRuntime+"="+l.runtime)
	p.cmd.Env = append(p.cmd.Env, l.env...)
	ownGroup(p.cmd)
	lines, err := p.pipes()
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("cannot be started: %w", err)
	}
	select {
	case line, ok := <-lines:
		if ok {
			p.line = readHandshake(line)
			return p, nil
		}
		<-p.exited
		err = fmt.Errorf("ended (%s) before it printed a handshake line; its last words: %s", p.cmd.ProcessState, p.lastWords())
	case <-time.After(l.limits.start):
		err = fmt.Errorf("printed no handshake line within %s; it must come before anything is loaded", l.limits.start)
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.kill()
	return nil, err
}

// pipes starts the child and its readers. The channel gives the first line of its output, or is closed at once when there is
// none. The goroutines end with the process and whoever holds its pipes: kill takes its group.
func (p *process) pipes() (<-chan string, error) {
	stdin, liveness, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdin, p.liveness = stdin, liveness
	err = p.cmd.Start()
	_ = stdin.Close()
	if err != nil {
		_ = liveness.Close()
		return nil, err
	}
	first := make(chan string, 1)
	var readers sync.WaitGroup
	readers.Go(func() {
		defer close(first)
		r := bufio.NewReader(stdout)
		line, err := r.ReadString('\n')
		if err == nil {
			first <- line
		}
		p.keep(&p.extra, r)
	})
	readers.Go(func() { p.keep(&p.stderr, stderr) })
	go func() {
		readers.Wait()
		_ = p.cmd.Wait() // its state is read from ProcessState
		close(p.exited)
	}()
	return first, nil
}

func (p *process) keep(into *bytes.Buffer, from io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		if into.Len() < outputKept {
			into.Write(buf[:n])
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *process) said() (extra, stderr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.extra.String(), p.stderr.String()
}

func (p *process) lastWords() string {
	_, said := p.said()
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}

func readHandshake(line string) handshake {
	part := append(strings.Split(strings.TrimSpace(line), "|"), make([]string, 6)...)
	return handshake{strings.TrimSpace(line), part[0], part[1], part[2], part[3], part[4], part[5]}
}

// connect dials with mutual TLS and waits for the health service.
func (p *process) connect(ctx context.Context) error {
	der, err := base64.RawStdEncoding.DecodeString(p.line.certificate)
	if err != nil {
		return fmt.Errorf("the handshake's certificate is not unpadded base64: %w", err)
	}
	server, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("the handshake's certificate: %w", err)
	}
	p.tls.RootCAs = x509.NewCertPool()
	p.tls.RootCAs.AddCert(server)
	if p.conn, err = p.dial(credentials.NewTLS(p.tls)); err != nil {
		return err
	}
	p.rpc = cladev1.NewPluginServiceClient(p.conn)
	return p.health(ctx)
}

func (p *process) dial(c credentials.TransportCredentials) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(c),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(contract.MaxMessage), grpc.MaxCallSendMsgSize(contract.MaxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, p.line.network, p.line.address)
		}))
}

// healthName is the service that go-plugin asks for.
const healthName = "plugin"

func (p *process) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.limits.quick)
	defer cancel()
	r, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: healthName})
	if err != nil {
		return fmt.Errorf("the health service %q does not answer over mutual TLS: %w", healthName, err)
	}
	if r.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("the health service %q says %s, not SERVING", healthName, r.Status)
	}
	return nil
}

// alive says that the process has not ended, or how it did.
func (p *process) alive() error {
	select {
	case <-p.exited:
		return fmt.Errorf("the process ended (%s); its last words: %s", p.cmd.ProcessState, p.lastWords())
	default:
		return nil
	}
}

// died is how the process ended, if that is what an error of a call came of: the connection breaks before the process is reaped.
func (p *process) died(err error) error {
	if err == nil {
		return nil
	}
	if contract.KindOf(err) == contract.PluginCrashed {
		p.ends(time.Second)
	}
	return p.alive()
}

// ends waits for the exit.
func (p *process) ends(within time.Duration) bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(within):
		return false
	}
}

// kill ends the group at once and frees what is the suite's. A process that was reaped has left no group to kill.
func (p *process) kill() {
	if p.alive() == nil {
		killGroup(p.cmd.Process)
	}
	<-p.exited
	p.release()
}

func (p *process) release() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	_ = p.liveness.Close()
	_ = os.RemoveAll(p.dir)
}

// stop asks for a shutdown and kills what does not obey.
func (p *process) stop(ctx context.Context) error {
	defer p.kill()
	if p.rpc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.limits.exit)
	defer cancel()
	if _, err := p.rpc.Shutdown(ctx, &cladev1.ShutdownRequest{}); err != nil {
		return fmt.Errorf("shutdown: %w", contract.FromStatus(err))
	}
	if !p.ends(p.limits.exit) {
		return errors.New("the process lives on after Shutdown")
	}
	return nil
}

// newCertificate is of the kind that go-plugin makes: P-521, for localhost, its own authority.
func newCertificate() ([]byte, tls.Certificate, error) {
	fail := func(err error) ([]byte, tls.Certificate, error) {
		return nil, tls.Certificate{}, fmt.Errorf("certificate: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement | x509.KeyUsageCertSign,
		NotBefore:   time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fail(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
