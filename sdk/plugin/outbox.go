package plugin

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
)

// An outbox whose host does not read holds at most this much before push blocks.
const (
	outboxMessages = 256
	outboxBytes    = contract.MessageBudget
)

// outbox sends the messages of one stream from one goroutine, so that a Model is not held up by a send: what became ready
// during a slow send leaves merged, and so does what the pace holds back. close ends the goroutine.
type outbox[M proto.Message] struct {
	ctx   context.Context
	send  func(M) error
	merge func(into, next M) bool
	pace  *pace        // of messages that are patient; nil: none waits
	waits func(M) bool // says which are

	sent time.Time // the goroutine's alone

	mu     sync.Mutex
	queue  []M
	bytes  int
	closed bool
	err    error
	wake   chan struct{} // something to send, or closed
	room   chan struct{} // the queue was taken
	done   chan struct{}
}

// newOutbox starts the sender. merge folds next into a queued message and says whether it did; ctx is the stream's.
func newOutbox[M proto.Message](ctx context.Context, send func(M) error, merge func(into, next M) bool) *outbox[M] {
	return newPacedOutbox(ctx, send, merge, nil, nil)
}

// newPacedOutbox has messages for which waits is true leave at the pace.
func newPacedOutbox[M proto.Message](ctx context.Context, send func(M) error, merge func(into, next M) bool, p *pace, waits func(M) bool) *outbox[M] {
	o := &outbox[M]{
		ctx: ctx, send: send, merge: merge, pace: p, waits: waits,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go o.run()
	return o
}

// push queues m; it blocks while the queue is full and fails once the stream is over.
func (o *outbox[M]) push(m M) error {
	size := proto.Size(m)
	if size > contract.MessageBudget {
		return contract.Errorf(contract.Internal, string(m.ProtoReflect().Descriptor().Name()),
			"message of %d bytes, more than %d", size, contract.MessageBudget)
	}
	for {
		o.mu.Lock()
		if o.err != nil || o.closed {
			err := o.err
			o.mu.Unlock()
			if err == nil {
				err = contract.Errorf(contract.Internal, "", "emit after the call returned")
			}
			return err
		}
		if len(o.queue) == 0 || (len(o.queue) < outboxMessages && o.bytes+size <= outboxBytes) {
			if len(o.queue) == 0 || !o.merge(o.queue[len(o.queue)-1], m) {
				o.queue = append(o.queue, m)
			}
			o.bytes += size
			o.mu.Unlock()
			notify(o.wake)
			return nil
		}
		o.mu.Unlock()
		select {
		case <-o.room:
		case <-o.done:
		case <-o.ctx.Done():
			return contract.Errorf(contract.Cancelled, "", "the host ended the stream")
		}
	}
}

// idle says that nothing waits to be sent, so that a heartbeat is of use.
func (o *outbox[M]) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) == 0 && o.err == nil
}

// close sends what is queued and returns the first error of a send.
func (o *outbox[M]) close() error {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	notify(o.wake)
	<-o.done
	return o.err
}

func (o *outbox[M]) run() {
	defer close(o.done)
	for {
		if d := o.delay(); d > 0 {
			o.rest(d)
			continue
		}
		o.mu.Lock()
		batch, closed := o.queue, o.closed
		o.queue, o.bytes = nil, 0
		o.mu.Unlock()
		if len(batch) == 0 {
			if closed {
				return
			}
			<-o.wake
			continue
		}
		notify(o.room)
		o.sent = time.Now()
		for _, m := range batch {
			if err := o.send(m); err != nil {
				o.mu.Lock()
				o.err = contract.Errorf(contract.Cancelled, "", "the host ended the stream: %w", err)
				o.mu.Unlock()
				return
			}
		}
	}
}

// delay is how long what is queued waits for more.
func (o *outbox[M]) delay() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pace == nil || o.closed || len(o.queue) == 0 || slices.ContainsFunc(o.queue, func(m M) bool { return !o.waits(m) }) {
		return 0
	}
	return o.pace.delay(o.sent, time.Now())
}

// rest waits for d, or until there is something new.
func (o *outbox[M]) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-o.wake:
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
