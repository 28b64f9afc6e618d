package plugin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Open loads the one model of this process.
func (s *Server) Open(req *cladev1.OpenRequest, stream grpc.ServerStreamingServer[cladev1.OpenResponse]) error {
	if err := s.known(req); err != nil {
		return contract.ToStatus(err)
	}
	ctx, end, err := s.begin(stream.Context())
	if err != nil {
		return contract.ToStatus(err)
	}
	defer end()
	if err := s.claim(); err != nil {
		return contract.ToStatus(err)
	}
	model, err := s.open(ctx, req, stream)
	s.mu.Lock()
	s.opening = false
	if err == nil {
		s.model = model
	}
	s.mu.Unlock()
	return contract.ToStatus(err)
}

// claim takes the process's one place for a model.
func (s *Server) claim() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening || s.model != nil {
		return contract.Errorf(contract.Busy, s.manifest.Name, "this process has its model already")
	}
	s.opening = true
	return nil
}

func (s *Server) open(ctx context.Context, req *cladev1.OpenRequest,
	stream grpc.ServerStreamingServer[cladev1.OpenResponse],
) (model Model, err error) {
	out := newOutbox(stream.Context(), stream.Send, mergeOpen)
	stop := beat(out, func() *cladev1.OpenResponse {
		return &cladev1.OpenResponse{Event: &cladev1.OpenResponse_Progress{Progress: &cladev1.Progress{}}}
	})
	defer func() {
		stop()
		cerr := out.close()
		if err == nil && cerr != nil {
			err = cerr
		}
		if err != nil && model != nil {
			_ = s.guard("Close", model.Close)
			model = nil
		}
	}()
	if err = s.replan(ctx, req); err != nil {
		return nil, err
	}
	if err = assertFiles(s.manifest, req.Model); err != nil {
		return nil, err
	}
	err = s.guard("Open", func() (err error) {
		model, err = s.family.Backend.Open(ctx, req, func(e *cladev1.OpenResponse) { _ = out.push(e) })
		return err
	})
	if err != nil {
		return model, err
	}
	if model == nil {
		return nil, contract.Errorf(contract.Internal, s.manifest.Name, "the backend opened no model and no error")
	}
	if err = context.Cause(ctx); err != nil {
		return model, contract.Errorf(contract.Cancelled, s.manifest.Name, "open: %w", err)
	}
	var facts *cladev1.ModelFacts
	if err = s.guard("Facts", func() error { facts = model.Facts(); return nil }); err != nil {
		return model, err
	}
	if facts == nil {
		return model, contract.Errorf(contract.Internal, s.manifest.Name, "the model states no facts")
	}
	return model, out.push(&cladev1.OpenResponse{Event: &cladev1.OpenResponse_Opened{Opened: facts}})
}

// replan plans again under the budget that the host planned with and refuses a difference.
func (s *Server) replan(ctx context.Context, req *cladev1.OpenRequest) error {
	if req.Plan == nil {
		return contract.Errorf(contract.InvalidArgument, "plan", "an admitted plan is needed")
	}
	again := &cladev1.PlanRequest{Model: req.Model}
	s.mu.Lock()
	if s.planned != nil && proto.Equal(s.planned.Model, req.Model) {
		again = s.planned
	}
	s.mu.Unlock()
	p, err := s.plan(ctx, again)
	if err != nil {
		return err
	}
	if !proto.Equal(p, req.Plan) {
		return contract.Errorf(contract.PluginMismatch, "plan", "%s", difference(req.Plan, p)).
			WithNext("the model's files or the machine changed since the plan; try again")
	}
	return nil
}

// difference names the first field in which two plans differ.
func difference(admitted, now *cladev1.Plan) string {
	a, b := admitted.ProtoReflect(), now.ProtoReflect()
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !a.Get(fd).Equal(b.Get(fd)) {
			return fmt.Sprintf("%s is %s now, %s was admitted", fd.Name(), show(fd, b), show(fd, a))
		}
	}
	return "differs from the admitted one"
}

func show(fd protoreflect.FieldDescriptor, m protoreflect.Message) string {
	const enough = 120
	text := fmt.Sprint(m.Get(fd).Interface())
	if fd.IsList() {
		text = fmt.Sprintf("%d entries", m.Get(fd).List().Len())
	}
	return text[:min(len(text), enough)]
}

func mergeOpen(into, next *cladev1.OpenResponse) bool {
	a, b := into.GetLoad(), next.GetLoad()
	if a == nil || b == nil || a.Phase != b.Phase {
		return false
	}
	into.Event = next.Event
	return true
}

// begin enters a job: its context ends with the stream, a cancel, or a shutdown.
func (s *Server) begin(parent context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(parent)
	j := &job{cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		cancel(nil)
		return nil, nil, contract.Errorf(contract.Unavailable, s.manifest.Name, "the plugin is shutting down")
	}
	if len(s.active) == 0 {
		s.idle = make(chan struct{})
	}
	s.active[j] = struct{}{}
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.active, j)
		if len(s.active) == 0 {
			close(s.idle)
		}
	}, nil
}

// cancelGrace is how long a cancelled job may take to notice before the model is closed under it.
const cancelGrace = 2 * time.Second

// Shutdown drains, frees the model, and lets the process exit.
func (s *Server) Shutdown(ctx context.Context, req *cladev1.ShutdownRequest) (*cladev1.ShutdownResponse, error) {
	if err := s.known(req); err != nil {
		return nil, contract.ToStatus(err)
	}
	err := s.drain(ctx, time.Duration(req.GetDrainNs()))
	if s.exit != nil {
		s.exit()
	}
	return &cladev1.ShutdownResponse{}, contract.ToStatus(err)
}

func (s *Server) drain(ctx context.Context, patience time.Duration) error {
	s.mu.Lock()
	s.draining = true
	idle := s.idle
	s.mu.Unlock()
	if !wait(ctx, idle, patience) {
		s.mu.Lock()
		for j := range s.active {
			j.cancel(contract.Errorf(contract.Cancelled, "", "the plugin is shutting down"))
		}
		s.mu.Unlock()
		if !wait(ctx, idle, cancelGrace) {
			return contract.Errorf(contract.Busy, s.manifest.Name, "a request did not end in %s", cancelGrace)
		}
	}
	s.mu.Lock()
	model := s.model
	s.model = nil
	s.mu.Unlock()
	if model == nil {
		return nil
	}
	return s.guard("Close", model.Close)
}

func wait(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}
