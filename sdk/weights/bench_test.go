package weights

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/mlx"
)

// all takes every tensor of an artifact for a parameter, and of an MLX triple the matrix.
func all(t testing.TB, a *artifact.Artifact, matrices map[string][]int) *Set {
	t.Helper()
	var params []Param
	for _, x := range a.Tensors() {
		p := Param{Name: x.Name}
		for _, d := range x.Shape {
			p.Shape = append(p.Shape, int(d))
		}
		if matrices != nil {
			shape, ok := matrices[x.Name]
			if !ok {
				continue
			}
			p.Shape = shape
		}
		params = append(params, p)
	}
	set, err := Match(a, params, Rules{})
	require.NoError(t, err)
	return set
}

// BenchmarkLoad is a load whose file is in the page cache, in bytes of the file: what keeps up with a disk of that speed.
func BenchmarkLoad(b *testing.B) {
	w, k := openRuntime(b)
	run := func(name string, set *Set, heads int) {
		for i := range set.sources {
			set.sources[i].InterleavedHeads = 0
			if heads != 0 && len(set.sources[i].Shape) == 2 {
				set.sources[i].InterleavedHeads = heads
			}
		}
		for _, target := range []Target{{DType: mlx.Float32, Kernels: k}, {DType: mlx.Float32}} {
			way := "/kernels"
			if target.Kernels == nil {
				way = "/stock"
				if set.Elements() > 1e9 {
					continue // more memory than a test should take
				}
			}
			b.Run(name+way, func(b *testing.B) {
				b.SetBytes(set.StoredBytes())
				for b.Loop() {
					require.NoError(b, load(b, w, set, target, quiet, func(*mlx.Scope, *Tensors) {}))
				}
			})
		}
	}
	for name, format := range map[string]struct{ bits, group int }{"affine4-1GB": {4, 64}, "affine8-500MB": {8, 64}, "affine6-400MB": {6, 64}} {
		var tensors []tensor
		matrices := map[string][]int{}
		for i := range 8 {
			path := string(rune('a' + i))
			tensors = append(tensors, triple(path, 28672, 8192, format.bits, format.group)...)
			matrices[path+".weight"] = []int{28672, 8192}
			if format.bits != 4 && i == 1 {
				break
			}
		}
		run(name, all(b, write(b, tensors...), matrices), 0)
	}
	run("bf16-1GB", all(b, write(b, tensor{"w.weight", "BF16", []int{65536, 8192}, nil}), nil), 0)
	run("q_proj-interleaved", all(b, write(b, triple("q", 8192, 8192, 4, 64)...), map[string][]int{"q.weight": {8192, 8192}}), 64)
	path := os.Getenv("CLADE_SMOLLM2")
	if path == "" {
		_, file, _, _ := runtime.Caller(0)
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "../../bin/demo/*.gguf"))
		require.NotEmpty(b, found, "run make demo")
		path = found[0]
	}
	run("smollm2", all(b, open(b, path), nil), 0)
}
