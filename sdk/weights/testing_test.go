package weights

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/mlx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openRuntime finds the runtime: CLADE_RUNTIME, else bin/runtime/cpu of this repository.
func openRuntime(t testing.TB) (*mlx.Worker, *mlx.Kernels) {
	t.Helper()
	dir := os.Getenv("CLADE_RUNTIME")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "bin", "runtime", "cpu")
	}
	r, err := mlx.Open(dir)
	require.NoError(t, err, "run make setup")
	k, err := r.Kernels()
	require.NoError(t, err, "run make setup")
	w, err := r.NewWorker(mlx.CPU)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w, k
}

// tensor is one of a test's safetensors file. A nil Data is zeros, which take no room on the disk.
type tensor struct {
	Name, DType string
	Shape       []int
	Data        []byte
}

var sizes = map[string]int{"F32": 4, "U32": 4, "BF16": 2, "F16": 2, "U8": 1}

func (t tensor) bytes() int {
	n := sizes[t.DType]
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// write makes a directory that artifact.Open reads.
func write(t testing.TB, tensors ...tensor) *artifact.Artifact {
	t.Helper()
	header, end := map[string]any{}, 0
	for _, x := range tensors {
		header[x.Name] = map[string]any{"dtype": x.DType, "shape": x.Shape, "data_offsets": []int{end, end + x.bytes()}}
		end += x.bytes()
	}
	head, err := json.Marshal(header)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"test"}`), 0o600))
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	at := int64(8 + len(head))
	_, err = f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...))
	require.NoError(t, err)
	for _, x := range tensors {
		_, err := f.WriteAt(x.Data, at)
		require.NoError(t, err)
		at += int64(x.bytes())
	}
	require.NoError(t, f.Truncate(at))
	require.NoError(t, f.Close())
	return open(t, dir)
}

func open(t testing.TB, path string) *artifact.Artifact {
	t.Helper()
	a, err := artifact.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// triple is an affine matrix of zeros.
func triple(path string, rows, cols, bits, group int) []tensor {
	return []tensor{
		{path + ".weight", "U32", []int{rows, cols * bits / 32}, nil},
		{path + ".scales", "BF16", []int{rows, cols / group}, nil},
		{path + ".biases", "BF16", []int{rows, cols / group}, nil},
	}
}

// load brings params into memory for target and hands them to use.
func load(t testing.TB, w *mlx.Worker, set *Set, target Target, report func(Progress), use func(*mlx.Scope, *Tensors)) error {
	t.Helper()
	return w.Do(context.Background(), func(s *mlx.Scope) error {
		tensors, err := set.Load(context.Background(), s, target, report)
		if err != nil {
			return err
		}
		defer tensors.Close()
		use(s, tensors)
		return s.Err()
	})
}

// rowsOf reads a loaded matrix back, whichever way it is held.
func rowsOf(t testing.TB, s *mlx.Scope, tensors *Tensors, name string, rows int) []float32 {
	t.Helper()
	a := tensors.Get(name)
	if p := tensors.Packed(name); p != nil {
		ids := make([]int32, rows)
		for i := range ids {
			ids[i] = int32(i)
		}
		a = s.PackedEmbed(mlx.FromSlice(s, ids), p, mlx.Float32)
	}
	values, err := mlx.ToSlice[float32](s, s.AsType(a, mlx.Float32))
	require.NoError(t, err)
	return values
}

func quiet(Progress) {}

// bothWays runs fn with the kernels and without.
func bothWays(t *testing.T, fn func(t *testing.T, w *mlx.Worker, target Target)) {
	w, k := openRuntime(t)
	for _, target := range []Target{{DType: mlx.Float32, Kernels: k}, {DType: mlx.Float32}} {
		t.Run(fmt.Sprintf("kernels %t", target.Kernels != nil), func(t *testing.T) { fn(t, w, target) })
	}
}
