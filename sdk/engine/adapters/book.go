package adapters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// Spec names an adapter to load.
type Spec struct {
	ID, Path string
	// Scale multiplies its changes where a request says nothing.
	Scale float64
}

// Book is the adapters of one open model. Its methods may be called concurrently.
type Book struct {
	model  Model
	board  *nn.Board
	worker *mlx.Worker
	limit  int64

	mu      sync.Mutex
	loaded  []*entry // found by id
	held    int64    // bytes of all, of those that leave and of one that is being loaded too
	loading map[string]bool
	preset  []contract.AdapterUse
	closed  bool
}

// entry is one loaded adapter.
type entry struct {
	info  *cladev1.AdapterInfo
	low   *nn.LowRank
	users int
	left  bool          // it is found by no new request
	freed chan struct{} // closed when its memory is free
}

// NewBook makes the book of a model whose layers were made with board, for adapters of at most limit bytes together.
func NewBook(m Model, board *nn.Board, worker *mlx.Worker, limit int64) *Book {
	return &Book{model: m, board: board, worker: worker, limit: limit, loading: map[string]bool{}}
}

// Board is the model's.
func (b *Book) Board() *nn.Board { return b.board }

// Preset makes uses what a request has that names none. They must be loaded.
func (b *Book) Preset(uses []contract.AdapterUse) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range uses {
		if b.find(u.ID) == nil {
			return contract.Errorf(contract.InvalidArgument, "adapters", "%s is not among the adapters that go with the model", u.ID)
		}
	}
	b.preset = uses
	return nil
}

func (b *Book) find(id string) *entry {
	if i := slices.IndexFunc(b.loaded, func(e *entry) bool { return e.info.Id == id }); i >= 0 {
		return b.loaded[i]
	}
	return nil
}

// Load reads an adapter whole, or leaves everything as it was. Requests go on meanwhile, between its modules.
func (b *Book) Load(ctx context.Context, spec Spec) (err error) {
	if err := errors.Join(contract.CheckAdapterID(spec.ID), contract.CheckAdapterScale(spec.ID, spec.Scale)); err != nil {
		return err
	}
	a, err := lora.Open(spec.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	fitted, err := Fit(a, b.model)
	if err != nil {
		return err
	}
	if err := b.reserve(spec.ID, fitted.Bytes); err != nil {
		return err
	}
	e, err := b.read(ctx, a, fitted)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.loading, spec.ID)
	if err != nil {
		b.held -= fitted.Bytes
		return err
	}
	e.info.Id, e.info.Scale = spec.ID, spec.Scale
	b.loaded = append(b.loaded, e)
	return nil
}

// reserve takes the id and the bytes before anything is read.
func (b *Book) reserve(id string, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return contract.Errorf(contract.Unavailable, "model", "it is closing")
	case b.find(id) != nil || b.loading[id]:
		return contract.Errorf(contract.InvalidArgument, id, "an adapter of this name is loaded already").WithNext("unload it, or choose another name")
	case b.held+bytes > b.limit:
		return contract.Errorf(contract.MemoryAdmission, id, "takes %d bytes beside %d of other adapters, and %d were planned for all", bytes, b.held, b.limit).
			WithNext("unload others, or open the model with a larger --adapter-memory")
	}
	b.held += bytes
	b.loading[id] = true
	return nil
}

func (b *Book) read(ctx context.Context, a *lora.Adapter, fitted Fitted) (_ *entry, err error) {
	digest, err := a.Digest()
	if err != nil {
		return nil, err
	}
	e := &entry{low: &nn.LowRank{}, freed: make(chan struct{}), info: &cladev1.AdapterInfo{
		Path: a.Path, Format: string(a.Format), Rank: uint32(fitted.Rank), Modules: uint32(len(a.Modules)), Bytes: uint64(fitted.Bytes), Digest: digest,
	}}
	defer func() {
		if err != nil {
			_ = b.worker.Do(context.WithoutCancel(ctx), func(*mlx.Scope) error { e.low.Close(); return nil })
		}
	}()
	for _, m := range fitted.Modules {
		err := b.worker.Do(ctx, func(s *mlx.Scope) error {
			u, err := load(s, b.model.Kernels, a, m)
			if err = errors.Join(err, s.Err()); err != nil {
				return err
			}
			return e.low.Add(b.board, m.Layer, u)
		})
		if err != nil {
			return nil, fmt.Errorf("load %s of %s: %w", m.Path, a.Path, err)
		}
	}
	return e, nil
}

// Unload takes an adapter's id away at once, and returns when its memory is free: when the last request that has it has ended. A ctx
// that ends leaves the freeing to that request.
func (b *Book) Unload(ctx context.Context, id string) error {
	b.mu.Lock()
	e := b.find(id)
	switch {
	case e == nil:
		b.mu.Unlock()
		return notLoaded(id)
	case slices.ContainsFunc(b.preset, func(u contract.AdapterUse) bool { return u.ID == id }):
		b.mu.Unlock()
		return contract.Errorf(contract.InvalidArgument, id, "requests that choose nothing have it: it was opened with the model").
			WithNext("choose \"%s\" in the request, or open the model without it", contract.NoAdapter)
	}
	b.loaded = slices.DeleteFunc(b.loaded, func(other *entry) bool { return other == e })
	e.left = true
	free := e.users == 0
	b.mu.Unlock()
	if free {
		b.free(e)
	}
	select {
	case <-e.freed:
		return nil
	case <-ctx.Done():
		return contract.Errorf(contract.Cancelled, id, "no new request finds it; its memory is free when the last that has it has ended")
	}
}

// free runs once for an entry, when nobody can use it any more.
func (b *Book) free(e *entry) {
	_ = b.worker.Do(context.Background(), func(*mlx.Scope) error { e.low.Close(); return nil }) // the worker ends after the book
	b.mu.Lock()
	b.held -= int64(e.info.Bytes)
	b.mu.Unlock()
	close(e.freed)
}

// List says what can be asked for, in the order of loading.
func (b *Book) List() *cladev1.AdaptersResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := &cladev1.AdaptersResponse{}
	for _, e := range b.loaded {
		out.Loaded = append(out.Loaded, e.info.Id)
		out.Adapters = append(out.Adapters, e.info)
	}
	return out
}

// Taken is the adapters of one request. The zero value is none.
type Taken struct {
	Stack nn.Stack
	// Names are id:scale in their order. Key is the same for two stacks exactly when they do the same.
	Names []string
	Key   string

	book    *Book
	entries []*entry
}

// Take finds the adapters that a request chooses; nil: the preset ones. Release must be called.
func (b *Book) Take(choice *string) (Taken, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uses := b.preset
	if choice != nil {
		var err error
		if uses, err = contract.ParseAdapters(*choice); err != nil {
			return Taken{}, err
		}
	}
	out := Taken{book: b}
	var key []string
	for _, u := range uses {
		e := b.find(u.ID)
		if e == nil {
			return Taken{}, notLoaded(u.ID)
		}
		scale := e.info.Scale
		if u.Scale != nil {
			scale = *u.Scale
		}
		out.entries = append(out.entries, e)
		out.Stack = append(out.Stack, nn.Use{LowRank: e.low, Scale: scale})
		out.Names = append(out.Names, fmt.Sprintf("%s:%g", u.ID, scale))
		key = append(key, fmt.Sprintf("%s:%g", e.info.Digest, scale))
	}
	for _, e := range out.entries {
		e.users++
	}
	out.Key = strings.Join(key, "+")
	return out, nil
}

func notLoaded(id string) error {
	return contract.Errorf(contract.NotFound, id, "no adapter of this name is loaded")
}

// Release gives the adapters back, when no forward with them can begin any more.
func (t *Taken) Release() {
	if t.book == nil {
		return
	}
	var free []*entry
	t.book.mu.Lock()
	for _, e := range t.entries {
		if e.users--; e.users == 0 && e.left {
			free = append(free, e)
		}
	}
	t.book.mu.Unlock()
	for _, e := range free {
		t.book.free(e)
	}
	t.book = nil
}

// Close frees every adapter that nobody uses, on the worker's thread; nothing can be loaded any more.
func (b *Book) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, e := range b.loaded {
		e.low.Close()
	}
	b.loaded = nil
}
