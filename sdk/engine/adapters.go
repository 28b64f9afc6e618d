package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/adapters"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// takeAdapters finds what a request chooses; nil chooses the composition's. Release gives it back.
func (e *Engine) takeAdapters(choice *string) (adapters.Taken, error) {
	if e.config.Adapters != nil {
		return e.config.Adapters.Take(choice)
	}
	if choice == nil || *choice == contract.NoAdapter {
		return adapters.Taken{}, nil
	}
	return adapters.Taken{}, unhonoured("adapter", "the model's graph takes no adapters").WithNext("leave it out")
}

// Adapters loads, unloads and lists.
func (e *Engine) Adapters(ctx context.Context, req *cladev1.AdaptersRequest) (*cladev1.AdaptersResponse, error) {
	book := e.config.Adapters
	if book == nil {
		return nil, unhonoured("adapters", "the model's graph takes none")
	}
	var err error
	switch a := req.GetAction().(type) {
	case *cladev1.AdaptersRequest_Load:
		scale := 1.0
		if a.Load.Scale != nil {
			scale = *a.Load.Scale
		}
		err = book.Load(ctx, adapters.Spec{ID: a.Load.GetId(), Path: a.Load.GetPath(), Scale: scale})
	case *cladev1.AdaptersRequest_Unload:
		err = book.Unload(ctx, a.Unload.GetId())
	case *cladev1.AdaptersRequest_List:
	default:
		err = invalid("action", "want load, unload or list")
	}
	if err != nil {
		return nil, err
	}
	return book.List(), nil
}

// wishedAdapter is one that goes with the model, held to it from headers.
type wishedAdapter struct {
	adapters.Spec
	bytes int64
}

// readAdapters holds the adapters among the artifacts to the model, and what every request is to have to them.
func (d *draft) readAdapters(spec *cladev1.ModelSpec) error {
	for _, a := range spec.Artifacts {
		if a.Role != cladev1.Role_ROLE_ADAPTER {
			continue
		}
		if d.Adapts == nil {
			return unhonoured("adapters", "the graph %s takes none", d.graph.ID).WithNext("leave %s out", a.Path)
		}
		one := wishedAdapter{Spec: adapters.Spec{ID: a.GetId(), Path: a.Path, Scale: 1}}
		if a.Id == nil {
			one.ID = filepath.Base(a.Path)
		}
		if a.Scale != nil {
			one.Scale = *a.Scale
		}
		if slices.ContainsFunc(d.adapters, func(other wishedAdapter) bool { return other.ID == one.ID }) {
			return invalid("adapters", "two are called %s", one.ID)
		}
		opened, err := lora.Open(a.Path)
		if err != nil {
			return err
		}
		fitted, err := adapters.Fit(opened, d.adapted())
		_ = opened.Close() // only read
		if err != nil {
			return err
		}
		one.bytes = fitted.Bytes
		d.adapters = append(d.adapters, one)
	}
	for _, id := range d.preset {
		if !slices.ContainsFunc(d.adapters, func(a wishedAdapter) bool { return a.ID == id }) {
			return invalid("adapters", "%s is not among the artifacts", id)
		}
	}
	if d.adapterBytes > 0 && d.Adapts == nil {
		return unhonoured("adapter_bytes", "the graph %s takes no adapters", d.graph.ID)
	}
	return nil
}

// takesAdapters reports whether any can be loaded.
func (d *draft) takesAdapters() bool { return len(d.adapters) > 0 || d.adapterBytes > 0 }

// adapted is the model as adapters see it.
func (d *draft) adapted() adapters.Model {
	return adapters.Model{Params: d.Weights.Params(), Layer: d.Adapts, Kernels: d.library}
}

// chooseUpdates adds the kernel of rows with adapters to the choices, where there can be such rows.
func (d *draft) chooseUpdates(b *Backend) {
	if !d.takesAdapters() {
		return
	}
	for _, k := range b.kernels.Load().Choose(kernels.LinearUpdates.Name) {
		if d.library == nil {
			k.Native, k.Reason = false, "the weights are not packed; "+kernels.LinearUpdates.Fallback
		}
		d.kernels = append(d.kernels, k)
	}
}

// adaptersLine is the name of what adapters take.
const adaptersLine = "adapters"

// planAdapters adds what adapters take: those that go with the model, room for others, and the products of rows that have some, which
// are held as float32 until they are whole.
func (d *draft) planAdapters(p *cladev1.Plan) {
	if !d.takesAdapters() {
		return
	}
	loaded, widest := int64(0), 0
	for _, a := range d.adapters {
		loaded += a.bytes
	}
	for _, param := range d.Weights.Params() {
		if len(param.Shape) == 2 && param.Shape[0] != d.Layout.Vocab {
			widest = max(widest, param.Shape[0])
		}
	}
	products := int64(d.chunk+d.rows) * int64(2*widest+lora.MaxRank) * int64(mlx.Float32.Size())
	p.Lines = append(p.Lines, &cladev1.MemoryLine{
		Name: adaptersLine, Bytes: uint64(loaded + d.adapterBytes + products),
		Detail: fmt.Sprintf("%d with the model %d, room for others %d, products of their rows %d", len(d.adapters), loaded, d.adapterBytes, products),
	})
}

// openBook loads the adapters that go with the model; nil where none can be loaded.
func (d *draft) openBook(ctx context.Context, board *nn.Board, worker *mlx.Worker, report func(*cladev1.OpenResponse)) (*adapters.Book, error) {
	if d.Adapts == nil {
		return nil, nil
	}
	limit, total := d.adapterBytes, int64(0)
	for _, a := range d.adapters {
		limit += a.bytes
		total += a.bytes
	}
	book, done := adapters.NewBook(d.adapted(), board, worker, limit), int64(0)
	for i, a := range d.adapters {
		if err := book.Load(ctx, a.Spec); err != nil {
			closeBook(book, worker)
			return nil, err
		}
		done += a.bytes
		report(&cladev1.OpenResponse{Event: &cladev1.OpenResponse_Load{Load: &cladev1.LoadProgress{
			Phase: "adapters", BytesDone: uint64(done), BytesTotal: uint64(total), TensorsDone: uint32(i + 1), TensorsTotal: uint32(len(d.adapters)),
		}}})
	}
	uses := make([]contract.AdapterUse, len(d.preset))
	for i, id := range d.preset {
		uses[i].ID = id
	}
	if err := book.Preset(uses); err != nil {
		closeBook(book, worker)
		return nil, err
	}
	return book, nil
}

func closeBook(b *adapters.Book, w *mlx.Worker) {
	if b == nil {
		return
	}
	_ = w.Do(context.Background(), func(*mlx.Scope) error { b.Close(); return nil }) // the first error is the one to tell
}
