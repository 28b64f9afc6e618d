package serve

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/clademl/clade/core/machine"
	"github.com/clademl/clade/core/serve/admin"
	"github.com/clademl/clade/sdk/contract"
)

// publish tells this user's command lines where the server is; it runs without that too. The result takes it back.
func (s *Server) publish(addr net.Addr) func() {
	if s.token == "" {
		return func() {}
	}
	remove, err := admin.Publish(s.o.StateDir, admin.State{Pid: os.Getpid(), URL: urlOf(addr), Token: s.token, Started: time.Now()})
	if err != nil {
		s.o.Logger.Warn("server cannot be found by `clade ps`", "error", err)
		return func() {}
	}
	return remove
}

// urlOf is how this machine reaches addr: loopback where the server listens on every address.
func urlOf(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return "http://" + addr.String()
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		host = "127.0.0.1"
		if tcp.IP.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

// Running implements admin.Host.
func (s *Server) Running() []admin.Running {
	out := make([]admin.Running, 0, len(s.registry.models))
	for _, m := range s.registry.models {
		card := m.card()
		r := admin.Running{Adapters: adminAdapters(m.adapters()), Model: m.name, State: card.State, Device: card.Device, Context: card.Context, Server: os.Getpid()}
		m.mu.Lock()
		e := m.engine
		r.Requests = m.leases
		if e != nil && m.leases == 0 && s.registry.keepAlive >= 0 {
			r.ExpiresIn = new(max(0, time.Until(m.used.Add(s.registry.keepAlive)).Seconds()))
		}
		m.mu.Unlock()
		if e != nil {
			r.PlannedBytes, r.Pid = e.PlannedBytes(), e.Pid()
			r.ResidentBytes = machine.Resident(r.Pid)
		}
		out = append(out, r)
	}
	return out
}

func adminAdapters(list []Adapter) (out []admin.Adapter) {
	for _, a := range list {
		out = append(out, admin.Adapter{ID: a.ID, Path: a.Path, Scale: a.Scale, Given: a.Given})
	}
	return out
}

// Stop implements admin.Host. It goes on when the client that asked leaves.
func (s *Server) Stop(ctx context.Context, name string) (string, bool, error) {
	m, err := s.registry.pick(name)
	if err != nil {
		return "", false, err
	}
	done := make(chan bool, 1)
	s.registry.wg.Go(func() { done <- s.registry.stop(m, s.o.DrainTimeout) })
	select {
	case open := <-done:
		return m.name, open, nil
	case <-ctx.Done():
		return m.name, true, contract.Errorf(contract.Cancelled, m.name, "stops when its requests have ended")
	}
}

// Borrow implements admin.Host.
func (s *Server) Borrow(key string) (admin.Model, func(), error) {
	for _, m := range s.registry.models {
		if m.key != key || key == "" {
			continue
		}
		if e, release := m.join(); e != nil {
			return e.Plain(), release, nil
		}
	}
	return nil, nil, contract.Errorf(contract.NotFound, "model", "the server has no such model open")
}

// Evictor closes idle models to make room for others.
func (s *Server) Evictor() interface {
	Idle() uint64
	Evict(ctx context.Context, bytes uint64)
} {
	return s.registry
}
