package adapters

import (
	"fmt"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Model is what adapters must know of a model.
type Model struct {
	// Params are the graph's; Layer gives the path of the linear layer that an adapter's module path means, false for none.
	Params []weights.Param
	Layer  func(module string) (path string, ok bool)
	// Kernels hold the matrices; nil: they are arrays.
	Kernels *mlx.Kernels
}

// Fitted is an adapter whose modules all are layers of the model.
type Fitted struct {
	Modules []Module
	// Bytes is what they take loaded; Rank the largest.
	Bytes int64
	Rank  int
}

// Module is one change of a layer.
type Module struct {
	lora.Module
	Layer string
}

var dtypes = map[artifact.DType]mlx.DType{artifact.F32: mlx.Float32, artifact.F16: mlx.Float16, artifact.BF16: mlx.BFloat16}

// Fit holds an adapter to a model, from headers.
func Fit(a *lora.Adapter, m Model) (Fitted, error) {
	shapes := map[string][]int{}
	for _, p := range m.Params {
		shapes[p.Name] = p.Shape
	}
	var out Fitted
	seen := map[string]string{}
	for _, module := range a.Modules {
		refuse := func(format string, args ...any) (Fitted, error) {
			return Fitted{}, contract.Errorf(contract.ArtifactCorrupt, module.A.File+": "+module.Path, format, args...).WithNext("it was made for another model")
		}
		layer, ok := m.Layer(module.Path)
		shape := shapes[layer+".weight"]
		switch {
		case !ok || shape == nil:
			return refuse("the model has no such linear layer that takes adapters")
		case len(shape) == 3:
			return Fitted{}, contract.Errorf(contract.UnsupportedOption, module.A.File+": "+module.Path, "changes the matrices of experts, which take no adapters").
				WithNext("use an adapter of other layers")
		case len(shape) != 2 || shape[0] != module.Out || shape[1] != module.In:
			return refuse("changes a layer of %d by %d, the model's is %v", module.Out, module.In, shape)
		case seen[layer] != "":
			return refuse("changes the same layer as %s", seen[layer])
		}
		seen[layer] = module.Path
		for _, part := range []struct {
			lora.Matrix
			rows, cols int
		}{{module.A, module.Rank, module.In}, {module.B, module.Out, module.Rank}} {
			n, err := bytesOf(m.Kernels, part.rows, part.cols, dtypes[part.DType])
			if err != nil {
				return Fitted{}, fmt.Errorf("%s: %w", part.Name, err)
			}
			out.Bytes += n
		}
		out.Modules, out.Rank = append(out.Modules, Module{module, layer}), max(out.Rank, module.Rank)
	}
	return out, nil
}

func bytesOf(k *mlx.Kernels, rows, cols int, dtype mlx.DType) (int64, error) {
	if k == nil {
		return int64(rows) * int64(cols) * int64(dtype.Size()), nil
	}
	return k.DenseBytes(rows, cols, dtype)
}

// load brings a module into memory, in the dtype that it is stored in. It runs on the worker's thread.
func load(s *mlx.Scope, k *mlx.Kernels, a *lora.Adapter, m Module) (nn.Update, error) {
	out := nn.Update{Scale: m.Scale}
	for _, part := range []struct {
		lora.Matrix
		rows, cols int
		into       *nn.Matrix
	}{{m.A, m.Rank, m.In, &out.A}, {m.B, m.Out, m.Rank, &out.B}} {
		values, err := a.Read(part.Matrix)
		if err == nil {
			*part.into, err = matrix(s, k, values, part.rows, part.cols, dtypes[part.DType])
		}
		if err != nil {
			out.A.Close()
			out.B.Close()
			return nn.Update{}, err
		}
	}
	return out, nil
}

func matrix(s *mlx.Scope, k *mlx.Kernels, values []float32, rows, cols int, dtype mlx.DType) (nn.Matrix, error) {
	array := s.AsType(mlx.FromSlice(s, values, rows, cols), dtype)
	raw, err := mlx.Bytes(s, array)
	if err != nil {
		return nn.Matrix{}, err
	}
	if k == nil {
		return nn.Matrix{Array: s.Keep(array)}, nil
	}
	p, err := k.NewDense(rows, cols, dtype)
	if err != nil {
		return nn.Matrix{}, err
	}
	if err := p.SetDense(0, rows, raw); err != nil {
		p.Close()
		return nn.Matrix{}, err
	}
	return nn.Matrix{Packed: p}, nil
}
