package kernels

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

// The sources of kernels for GPUs: NAME.cu and NAME.metal are the body of a function that MLX writes, trellis.cuh and trellis.metal stand
// before it. Their templates' constants are T, the dtype of activations, and BITS, BLOCK, STATE and AXIS of a quant.Trellis; R is how many
// rows of activations a group computes at once, which no bit of theirs depends on.
//
//go:embed sources
var sources embed.FS

// TrellisCUDA and TrellisMetal are Trellis as sources, which MLX compiles when they first run: a plan has the one of its device where the
// model has such matrices.
var (
	TrellisCUDA  = Kernel{Name: "trellis-cuda", Signature: Trellis.Signature, Devices: []string{"cuda"}, Fallback: Trellis.Fallback}
	TrellisMetal = Kernel{Name: "trellis-metal", Signature: Trellis.Signature, Devices: []string{"metal"}, Fallback: Trellis.Fallback}
)

// GPU is the registry of the kernels that are sources.
func GPU() Registry { return NewRegistry(TrellisCUDA, TrellisMetal) }

// OnDevice is the kernel of a device that does what another does on the CPU; false where there is none.
func OnDevice(name, device string) (Kernel, bool) {
	for _, k := range []Kernel{TrellisCUDA, TrellisMetal} {
		if name == Trellis.Name && k.runsOn(device) {
			return k, true
		}
	}
	return Kernel{}, false
}

func (k Kernel) runsOn(device string) bool {
	for _, prefix := range k.Devices {
		if strings.HasPrefix(device, prefix) {
			return true
		}
	}
	return false
}

// Sources are the kernels of a runtime's GPU.
type Sources struct {
	device       string
	digest       string // of the sources
	kernel       Kernel
	linear, rows *mlx.SourceKernel
	test         func() error
}

// LoadSources takes the sources for the runtime's GPU. Nothing is compiled before the first SelfTest or the first evaluation. An error is
// why there are none.
func LoadSources(r *mlx.Runtime) (*Sources, error) {
	out := &Sources{}
	for _, d := range r.Info().Devices {
		if d.Kind == mlx.GPU {
			out.device = d.Name
			break
		}
	}
	kernel, ok := OnDevice(Trellis.Name, out.device)
	if !ok && out.device != "" {
		return nil, errors.New("there is none for " + out.device)
	}
	out.kernel = kernel
	sum := sha256.New()
	cuda := strings.HasPrefix(out.device, "cuda")
	read := func(cudaFile, metalFile string) string {
		name := metalFile
		if cuda {
			name = cudaFile
		}
		text, err := sources.ReadFile("sources/" + name)
		if err != nil {
			return "" // a test reads every file
		}
		sum.Write(text)
		return string(text)
	}
	for _, k := range []struct {
		into   **mlx.SourceKernel
		name   string
		inputs []string
		ints   []string
	}{
		{&out.linear, "trellis_linear", []string{"x", "rings", "scales"}, []string{"BITS", "BLOCK", "STATE", "AXIS", "R"}},
		{&out.rows, "trellis_rows", []string{"ids", "rings", "scales"}, []string{"BITS", "BLOCK", "STATE", "AXIS"}},
	} {
		var err error
		if *k.into, err = r.NewSource(mlx.Source{
			Name: "clade_" + k.name, Inputs: k.inputs, Output: "y", Types: []string{"T"}, Ints: k.ints,
			Header: read("trellis.cuh", "trellis.metal"), Body: read(k.name+".cu", k.name+".metal"),
		}); err != nil {
			return nil, err
		}
	}
	out.digest = hex.EncodeToString(sum.Sum(nil))
	out.test = sync.OnceValue(func() error { return out.compare(r) })
	return out, nil
}

// Kernel is the one that the sources are.
func (s *Sources) Kernel() Kernel { return s.kernel }

// Revision stands for the sources' text: other text, other bits.
func (s *Sources) Revision() string { return s.digest }

// Has implements Library.
func (s *Sources) Has(name string) bool { return name == s.kernel.Name }

// Lacks is why the sources are not the kernel of that name.
func (s *Sources) Lacks(name string) string { return "there is none for " + s.device }

// SelfTest compiles the kernel and compares it with its fallback, once.
func (s *Sources) SelfTest(string) error { return s.test() }

func (s *Sources) compare(r *mlx.Runtime) (err error) {
	w, err := r.NewWorker(mlx.GPU)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return w.Do(context.Background(), func(scope *mlx.Scope) error { return errors.Join(testTrellisSource(scope, s), scope.Err()) })
}

var _ Library = (*Sources)(nil)

// describeLack is why a library does not have a kernel.
func describeLack(l Library, name string) (cladev1.SelfTest, string) {
	reason := "the runtime's libcladekernels does not have it"
	if s, ok := l.(interface{ Lacks(string) string }); ok {
		reason = s.Lacks(name)
	}
	return cladev1.SelfTest_SELF_TEST_MISSING, reason
}

// TrellisMatrix is a matrix [Rows, Cols] of trellis codes as arrays of a GPU. Close frees them.
type TrellisMatrix struct {
	sources       *Sources
	rings, scales *mlx.Array
	format        quant.Trellis
	Rows, Cols    int
}

// Trellis makes the matrix of rings [Rows, words] and scales [Rows, Cols/Block], of axis 0 [Rows/Block, words] and [Rows/Block, Cols], as
// quant.Trellis has them. It owns the arrays.
func (s *Sources) Trellis(rings, scales *mlx.Array, format quant.Trellis, rows, cols int) *TrellisMatrix {
	return &TrellisMatrix{sources: s, rings: rings, scales: scales, format: format, Rows: rows, Cols: cols}
}

// Close frees the arrays.
func (m *TrellisMatrix) Close() {
	m.rings.Close()
	m.scales.Close()
}

// Where a group's threads go in trellis_linear and trellis_rows: sources/ has the same numbers.
const (
	linearThreads = 256
	rowsThreads   = 128
	mostAtOnce    = 8 // rows of activations
)

// Multiply maps x [.., Cols] to x Wᵀ [.., Rows], of x's dtype with sums in float32. A row's bits depend on no other row.
func (m *TrellisMatrix) Multiply(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	shape := append([]int{}, x.Shape()...)
	if len(shape) == 0 || shape[len(shape)-1] != m.Cols {
		_ = s.Fail(&mlx.OpError{Op: "trellis_linear", Shapes: [][]int{shape, {m.Rows, m.Cols}}, Message: "the columns differ"})
		return x
	}
	flat := s.Reshape(x, -1, m.Cols)
	rows, at := flat.Dim(0), 1
	if rows == 0 {
		return s.Zeros(append(shape[:len(shape)-1], m.Rows), x.DType())
	}
	for at < rows && at < mostAtOnce {
		at *= 2
	}
	group := 8 // rows of the matrix
	if m.format.Axis == 0 {
		group = 16
	}
	y := s.Source(m.sources.linear, mlx.Launch{
		DType: x.DType(), Shape: []int{rows, m.Rows}, Types: []mlx.DType{x.DType()}, Ints: append(m.ints(), at),
		Grid: [3]int{(m.Rows + group - 1) / group * linearThreads, (rows + at - 1) / at, 1}, Group: [3]int{linearThreads, 1, 1},
	}, flat, m.rings, m.scales)
	return s.Reshape(y, append(shape[:len(shape)-1], m.Rows)...)
}

// Lookup is the rows of the matrix by ids [..], as [.., Cols] of dtype.
func (m *TrellisMatrix) Lookup(s *mlx.Scope, ids *mlx.Array, dtype mlx.DType) *mlx.Array {
	shape := append(append([]int{}, ids.Shape()...), m.Cols)
	flat := s.AsType(s.Reshape(ids, -1), mlx.Int32)
	if flat.Dim(0) == 0 {
		return s.Zeros(shape, dtype)
	}
	y := s.Source(m.sources.rows, mlx.Launch{
		DType: dtype, Shape: []int{flat.Dim(0), m.Cols}, Types: []mlx.DType{dtype}, Ints: m.ints(),
		Grid: [3]int{(m.Cols + rowsThreads - 1) / rowsThreads * rowsThreads, flat.Dim(0), 1}, Group: [3]int{rowsThreads, 1, 1},
	}, flat, m.rings, m.scales)
	return s.Reshape(y, shape...)
}

func (m *TrellisMatrix) ints() []int {
	return []int{m.format.Bits, m.format.Block, m.format.State, m.format.Axis}
}

// NBytes is what the arrays take.
func (m *TrellisMatrix) NBytes() int { return m.rings.NBytes() + m.scales.NBytes() }
