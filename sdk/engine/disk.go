package engine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/clademl/clade/sdk/engine/prefix"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// Disk is where the beginnings of requests outlive the process.
type Disk struct {
	*prefix.Disk
	// Label tells a person whose runs they are.
	Label string
	// Identity names all but the tokens that a run depends on. It may take as long as reading the model: nothing is read or written
	// before it is known.
	Identity func(context.Context) (prefix.Identity, error)
}

const (
	// unsaved is how many texts may wait to be written; one more, and the oldest is not.
	unsaved = 64
	// saveLimit is how long an engine that closes goes on writing.
	saveLimit = 3 * time.Second
	// nameLimit is how long after an engine's start requests wait for the model's identity. One that takes longer is made for the
	// first time, and nothing is on disk under it.
	nameLimit = 3 * time.Second
	// complainEvery bounds how often the log has a failed write.
	complainEvery = time.Minute
)

// saver writes what rows have computed, and reads what requests begin with. Its goroutine, which Engine.Close ends, writes; requests'
// own goroutines read. Neither touches a row or the worker but through the loop, a run at a time: decoding waits for a copy in
// memory, never for the disk.
type saver struct {
	Disk
	identity atomic.Pointer[prefix.Identity]
	named    chan struct{} // closed once the identity is known, or will not be
	texts    chan savable
	closing  chan struct{}
	ctx      context.Context
	stop     context.CancelFunc
	ended    chan struct{}

	read, written, failures atomic.Uint64 // tokens, tokens, writes
	complained              time.Time
}

// savable is a text whose runs may be written, and the places where another text may part from it.
type savable struct {
	namespace string
	ids       []int32
	borders   []int
}

func (e *Engine) startSaver() *saver {
	if e.config.Disk == nil || !e.memory.on {
		return nil
	}
	t := &saver{Disk: *e.config.Disk, texts: make(chan savable, unsaved), closing: make(chan struct{}), ended: make(chan struct{}), named: make(chan struct{})}
	t.ctx, t.stop = context.WithCancel(context.Background())
	go t.loop(e)
	return t
}

func (t *saver) loop(e *Engine) {
	defer close(t.ended)
	id, err := t.Identity(t.ctx)
	if err == nil {
		t.identity.Store(&id)
	}
	close(t.named)
	if err != nil {
		if t.ctx.Err() == nil {
			t.complain(fmt.Errorf("nothing is kept on disk: the model cannot be named: %w", err))
		}
		return
	}
	for {
		select {
		case text := <-t.texts:
			t.save(e, id, text)
			continue
		default:
		}
		select {
		case text := <-t.texts:
			t.save(e, id, text)
		case <-t.closing:
			if len(t.texts) == 0 {
				return
			}
		case <-t.ctx.Done():
			return
		}
	}
}

// close writes what waits, for a while. The engine's loop has ended.
func (t *saver) close() {
	close(t.closing)
	limit := time.AfterFunc(saveLimit, t.stop)
	<-t.ended
	limit.Stop()
	t.stop()
}

// offer queues a text, in the place of the oldest where there is no room. The loop calls it, which waits for nothing.
func (t *saver) offer(text savable) {
	for {
		select {
		case t.texts <- text:
			return
		default:
		}
		select {
		case <-t.texts:
		default:
		}
	}
}

// save writes a text's runs that are not there yet. One that is no longer in memory ends it: those behind would be of no use.
func (t *saver) save(e *Engine, id prefix.Identity, text savable) {
	ends := prefix.Ends(len(text.ids), text.borders)
	keys := within(id, text.namespace).Keys(text.ids, ends)
	there := map[int]bool{0: true} // positions that runs on disk reach
	from := 0
	for i, end := range ends {
		if t.ctx.Err() != nil {
			return
		}
		if run, ok := t.Head(keys[i]); ok && there[run.From] {
			there[end], from = true, end
			continue
		}
		body, ok := e.encoded(text.namespace, text.ids[:end], from)
		if !ok {
			return
		}
		if err := t.Put(keys[i], prefix.Stored{From: from, End: end, Label: t.Label}, body); err != nil {
			t.complain(err)
			return
		}
		t.written.Add(uint64(end - from))
		there[end], from = true, end
	}
}

// within is the identity of runs of a namespace: what the adapters of its rows do.
func within(id prefix.Identity, namespace string) prefix.Identity {
	if namespace == "" {
		return id
	}
	return append(slices.Clip(id), "adapters", namespace)
}

func (t *saver) complain(err error) {
	t.failures.Add(1)
	if time.Since(t.complained) > complainEvery {
		t.complained = time.Now()
		fmt.Fprintln(os.Stderr, err)
	}
}

// encoded is the bytes of the tokens from a position to the end, if they are held.
func (e *Engine) encoded(namespace string, ids []int32, from int) (body []byte, ok bool) {
	copying := func(s *mlx.Scope) error {
		pieces, n, release := e.memory.runs.Lookup(namespace, ids)
		defer release()
		if n < len(ids) {
			return nil
		}
		parts := behind(pieces, from)
		run := parts[0].Run
		if len(parts) > 1 || parts[0].Tokens < run.Tokens() {
			joined, err := e.emptyCache().Join(s, parts)
			if err != nil {
				return err
			}
			defer joined.Close()
			run = joined
		}
		var err error
		body, err = run.Encode(s)
		ok = err == nil
		return err
	}
	if !e.between(copying) {
		<-e.ended // Close waits for the saver, which has the engine's memory and its worker for itself now
		e.doOrCount(copying)
	}
	return body, ok
}

// behind is the pieces without their first tokens.
func behind(pieces []prefix.Piece[*kv.Run], tokens int) []kv.Piece {
	var out []kv.Piece
	for _, p := range pieces {
		skip := min(tokens, p.Tokens)
		tokens -= skip
		if p.Tokens > skip {
			out = append(out, kv.Piece{Run: p.Payload, From: p.From + skip, Tokens: p.Tokens - skip})
		}
	}
	return out
}

// between runs fn on the worker's thread between two forwards. It reports false where there will be none.
func (e *Engine) between(fn func(*mlx.Scope) error) bool {
	done := make(chan struct{})
	heard := e.tell(func() { e.doOrCount(fn); close(done) })
	if heard {
		<-done
	}
	return heard
}

func (e *Engine) doOrCount(fn func(*mlx.Scope) error) {
	if err := e.do(fn); err != nil {
		e.totals.failures.Add(1)
	}
}

// fetch brings into memory what the disk holds of a request's beginning beyond what memory has. The request's own goroutine reads and
// checks the files. The last token is always computed.
func (e *Engine) fetch(ctx context.Context, namespace string, ids []int32) {
	t := e.saver
	if t == nil {
		return
	}
	select { // right after a start the first requests wait for it: what they would compute instead takes longer
	case <-t.named:
	case <-time.After(time.Until(e.started.Add(nameLimit))):
	case <-ctx.Done():
	}
	id := t.identity.Load()
	if id == nil {
		return
	}
	ids = ids[:len(ids)-1]
	held := 0
	if !e.between(func(*mlx.Scope) error { held = e.usable(namespace, ids); return nil }) {
		return
	}
	for _, k := range t.Chain(within(*id, namespace), ids) {
		if k.End <= held {
			continue
		}
		run, body, ok := t.Get(k)
		if !ok || ctx.Err() != nil || !e.takeIn(namespace, ids[:k.End], run.From, body) {
			return
		}
		t.read.Add(uint64(k.End - max(run.From, held)))
	}
}

// usable is how many of the first tokens a row could go on behind.
func (e *Engine) usable(namespace string, ids []int32) int {
	pieces, n, release := e.memory.runs.Lookup(namespace, ids)
	defer release()
	if kv.Forgets(e.layout.Caches) {
		_, n = e.emptyCache().Usable(behind(pieces, 0))
	}
	return n
}

// takeIn puts a run of the tokens behind from into memory, and says whether all of ids is held now.
func (e *Engine) takeIn(namespace string, ids []int32, from int, body []byte) (ok bool) {
	e.between(func(s *mlx.Scope) error {
		run, err := e.emptyCache().DecodeRun(s, e.config.DType, body)
		if err != nil {
			return err
		}
		if run.Tokens() != len(ids)-from {
			run.Close()
			return fmt.Errorf("a kept run has %d tokens of %d", run.Tokens(), len(ids)-from)
		}
		taken := false
		of := func(at, to int) (prefix.Piece[*kv.Run], error) {
			if at < from || taken {
				return prefix.Piece[*kv.Run]{}, fmt.Errorf("what is before token %d went meanwhile", from)
			}
			taken = true
			return prefix.Piece[*kv.Run]{Payload: run, From: at - from, Tokens: to - at}, nil
		}
		err = e.memory.runs.Insert(namespace, ids, of)
		if err == nil && !taken && kv.Forgets(e.layout.Caches) { // its tokens are there, but not how the text ends with the last of them
			err = e.memory.runs.Renew(namespace, ids, of, func([]prefix.Piece[*kv.Run]) bool { return taken })
		}
		if !taken {
			run.Close()
		}
		ok = err == nil && e.memory.runs.Held(namespace, ids) == len(ids)
		return nil
	})
	return ok
}
