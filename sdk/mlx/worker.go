package mlx

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/clademl/clade/sdk/contract"
)

// DeviceKind is where a worker computes.
type DeviceKind int

// Kinds of device.
const (
	CPU DeviceKind = iota
	GPU
)

// String is "cpu" or "gpu".
func (k DeviceKind) String() string {
	if k == GPU {
		return "gpu"
	}
	return "cpu"
}

// Worker owns one locked OS thread with its own MLX stream. NewWorker starts its goroutine and Close ends it.
type Worker struct {
	kind DeviceKind
	jobs chan *job
	quit chan struct{}
	done chan struct{}
	once sync.Once

	stream unsafe.Pointer // the stream of every operation
	cpu    unsafe.Pointer // the thread's CPU stream: memory that the host fills is made on it

	failed   atomic.Int64
	closeErr error // written before done is closed
}

type job struct {
	fn     func(*Scope) error
	result chan error
}

// NewWorker starts a worker on the first device of that kind. Several workers may live at once; their arrays do not mix.
func (r *Runtime) NewWorker(kind DeviceKind) (*Worker, error) {
	w := &Worker{kind: kind, jobs: make(chan *job), quit: make(chan struct{}), done: make(chan struct{})}
	started := make(chan error, 1)
	go w.run(started)
	if err := <-started; err != nil {
		<-w.done
		return nil, errors.Join(err, w.closeErr)
	}
	return w, nil
}

// run is the worker's goroutine. It never unlocks its thread, which therefore ends with it, default stream and all. The
// streams are freed also when a function ends the goroutine with runtime.Goexit, as a failing test does.
func (w *Worker) run(started chan<- error) {
	runtime.LockOSThread()
	defer func() {
		w.closeErr = w.tearDown()
		close(w.done)
	}()
	err := w.setUp()
	started <- err
	for err == nil {
		select {
		case <-w.quit:
			return
		case j := <-w.jobs:
			j.result <- w.call(j.fn)
		}
	}
}

func (w *Worker) setUp() error {
	step := func(name string, ok bool) error {
		if ok {
			return nil
		}
		return contract.Errorf(contract.Internal, "mlx", "no worker on the %s: %s: %s", w.kind, name, takeMessage())
	}
	err := withDevice(w.kind, 0, func(dev C.mlx_device) error {
		var avail C.bool
		if err := step("device", C.cx_mlx_device_is_available(&avail, dev) == 0); err != nil {
			return err
		}
		if !bool(avail) {
			return contract.Errorf(contract.UnsupportedOption, "device", "this runtime has no %s", w.kind)
		}
		st := C.cx_mlx_stream_new_device(dev)
		w.stream = st.ctx
		if err := step("stream", st.ctx != nil); err != nil {
			return err
		}
		if err := step("default device", C.cx_mlx_set_default_device(dev) == 0); err != nil {
			return err
		}
		return step("default stream", C.cx_mlx_set_default_stream(st) == 0)
	})
	if err != nil {
		return err
	}
	if w.kind == CPU {
		w.cpu = w.stream
		return nil
	}
	host := C.cx_mlx_default_cpu_stream_new()
	w.cpu = host.ctx
	return step("cpu stream", host.ctx != nil)
}

func (w *Worker) tearDown() error {
	var err error
	if w.stream != nil {
		err = w.synchronize()
		if C.cx_mlx_stream_free(C.mlx_stream{ctx: w.stream}) != 0 {
			err = errors.Join(err, &OpError{Op: "stream_free", Message: takeMessage()})
		}
	}
	if w.cpu != nil && w.cpu != w.stream && C.cx_mlx_stream_free(C.mlx_stream{ctx: w.cpu}) != 0 {
		err = errors.Join(err, &OpError{Op: "stream_free", Message: takeMessage()})
	}
	return err
}

// call runs one job in a scope of its own. What fn returns wins; else the scope's first error; a panic after an operation
// failed is a consequence of it (an inert array has no shape) and gives way to it.
func (w *Worker) call(fn func(*Scope) error) (err error) {
	s := newScope(w, w.stream, &failure{})
	defer func() {
		p := recover()
		cause := s.Err()
		s.Close()
		switch {
		case p != nil && cause != nil:
			err = cause
		case p != nil:
			err = &PanicError{Value: p, Stack: string(debug.Stack())}
		case err == nil:
			err = s.Err()
		}
	}()
	return fn(s)
}

// PanicError is a panic in a function that ran on a worker.
type PanicError struct {
	Value any
	Stack string
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic on the mlx worker: %v", e.Value) }

// Do runs fn on the worker's thread with a fresh scope, which is closed afterwards. ctx cancels only while the call waits
// for its turn; fn sees to its own cancelling. Do inside Do would wait for itself: use the scope at hand.
func (w *Worker) Do(ctx context.Context, fn func(*Scope) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{fn: fn, result: make(chan error, 1)}
	select {
	case w.jobs <- j:
		return w.await(j)
	case <-ctx.Done():
		return ctx.Err()
	case <-w.done:
		return contract.Errorf(contract.Unavailable, "mlx", "the worker is closed")
	}
}

func (w *Worker) await(j *job) error {
	select {
	case err := <-j.result:
		return err
	case <-w.done:
	}
	select {
	case err := <-j.result: // both were ready
		return err
	default:
		return contract.Errorf(contract.Internal, "mlx", "the function ended its worker's goroutine")
	}
}

// Close waits for the running job, synchronizes, frees the streams and ends the thread. Kept arrays are to be closed
// before, in a Do.
func (w *Worker) Close() error {
	w.once.Do(func() { close(w.quit) })
	<-w.done
	return w.closeErr
}

// Kind is where the worker computes.
func (w *Worker) Kind() DeviceKind { return w.kind }

// Poisoned counts the failed evaluations since the last clean Synchronize. While it is not zero, everything evaluated on
// this worker since then is suspect, and reads are refused.
func (w *Worker) Poisoned() int64 { return w.failed.Load() }

func (w *Worker) poison() { w.failed.Add(1) }

func (w *Worker) synchronize() error {
	if C.cx_mlx_synchronize(C.mlx_stream{ctx: w.stream}) != 0 {
		w.poison()
		return &OpError{Op: "synchronize", Message: takeMessage()}
	}
	w.failed.Store(0)
	return nil
}
