package adapters

import (
	"fmt"
	"strings"

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
	// Rows of the layer. Part is where they lie among those of the module, as in a file that holds several layers as one; nil: they are
	// the module's.
	Rows int
	Part *weights.Part
}

var dtypes = map[artifact.DType]mlx.DType{artifact.F32: mlx.Float32, artifact.F16: mlx.Float16, artifact.BF16: mlx.BFloat16}

// layersOf are the graph's layers that a module is made of, and its sizes: one layer, or the parts of a tensor that holds several.
func (m Model) layersOf(path string) (layers []weights.Param, shape []int) {
	for _, p := range m.Params {
		if of := p.Part; of != nil && of.Of == path+".weight" {
			layers, shape = append(layers, p), []int{of.Rows, p.Shape[len(p.Shape)-1]}
		}
	}
	if layers != nil {
		return layers, shape
	}
	for _, p := range m.Params {
		if p.Name == path+".weight" {
			p.Part = nil // the layer whole, wherever its rows are stored
			return []weights.Param{p}, p.Shape
		}
	}
	return nil, nil
}

// Fit holds an adapter to a model, from headers.
func Fit(a *lora.Adapter, m Model) (Fitted, error) {
	var out Fitted
	seen := map[string]string{}
	for _, module := range a.Modules {
		refuse := func(format string, args ...any) (Fitted, error) {
			return Fitted{}, contract.Errorf(contract.ArtifactCorrupt, module.A.File+": "+module.Path, format, args...).WithNext("it was made for another model")
		}
		path, ok := m.Layer(module.Path)
		layers, shape := m.layersOf(path)
		switch {
		case ok && len(layers) > 0 && layers[0].Experts:
			return Fitted{}, contract.Errorf(contract.UnsupportedOption, module.A.File+": "+module.Path, "changes the matrices of experts, which take no adapters").
				WithNext("use an adapter of other layers")
		case !ok || len(layers) == 0 || len(layers[0].Shape) == 3:
			return refuse("the model has no such linear layer that takes adapters")
		case len(shape) != 2 || shape[0] != module.Out || shape[1] != module.In:
			return refuse("changes a layer of %d by %d, the model's is %v", module.Out, module.In, shape)
		case seen[path] != "":
			return refuse("changes the same layer as %s", seen[path])
		}
		seen[path] = module.Path
		for _, layer := range layers {
			one := Module{module, strings.TrimSuffix(layer.Name, ".weight"), layer.Shape[0], layer.Part}
			n, err := one.bytes(m.Kernels)
			if err != nil {
				return Fitted{}, err
			}
			out.Modules, out.Bytes = append(out.Modules, one), out.Bytes+n
		}
		out.Rank = max(out.Rank, module.Rank)
	}
	return out, nil
}

// bytes is what the change takes loaded.
func (m Module) bytes(k *mlx.Kernels) (int64, error) {
	a, err := bytesOf(k, m.Rank, m.In, dtypes[m.A.DType])
	if err != nil {
		return 0, fmt.Errorf("%s: %w", m.A.Name, err)
	}
	b, err := bytesOf(k, m.Rows, m.Rank, dtypes[m.B.DType])
	if err != nil {
		return 0, fmt.Errorf("%s: %w", m.B.Name, err)
	}
	return a + b, nil
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
	}{{m.A, m.Rank, m.In, &out.A}, {m.B, m.Rows, m.Rank, &out.B}} {
		values, err := a.Read(part.Matrix)
		if err == nil {
			if part.into == &out.B {
				values = m.own(values)
			}
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

// own are the layer's rows of the module's B.
func (m Module) own(values []float32) []float32 {
	if m.Part == nil {
		return values
	}
	out := make([]float32, 0, m.Rows*m.Rank)
	for r := 0; r < m.Rows; {
		at, run := m.Part.Row(r, m.Rows)
		out = append(out, values[at*m.Rank:(at+run)*m.Rank]...)
		r += run
	}
	return out
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
