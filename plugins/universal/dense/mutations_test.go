package dense

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// mutations is how many damaged copies of each row's checkpoint are tried; CLADE_MUTATIONS asks for more.
func mutations(t *testing.T) int {
	t.Helper()
	if n := os.Getenv("CLADE_MUTATIONS"); n != "" {
		out, err := strconv.Atoi(n)
		require.NoError(t, err)
		return out
	}
	if allRows {
		return 1500
	}
	return 24
}

// Limits of reading a damaged checkpoint: nothing of it may take longer, or allocate more.
const mutationTime, mutationBytes = 10 * time.Second, 96 << 20

// specimen is a checkpoint in pieces that are damaged.
type specimen struct {
	config map[string]any
	header map[string]map[string]any // of the tensors
	bytes  int64                     // of their payload
}

func openSpecimen(t *testing.T, path string) specimen {
	t.Helper()
	var s specimen
	data, err := os.ReadFile(filepath.Join(path, "config.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &s.config))
	file, err := os.ReadFile(filepath.Join(path, "model.safetensors"))
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(file)
	require.NoError(t, json.Unmarshal(file[8:8+n], &s.header))
	delete(s.header, "__metadata__")
	s.bytes = int64(len(file)) - 8 - int64(n)
	return s
}

// write makes the specimen a folder: its payload is zeros, which take no room on the disk. cut is how many of its last bytes are missing.
func (s specimen) write(t *testing.T, dir string, flip func(header []byte), cut int64) {
	t.Helper()
	config, err := json.Marshal(s.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600))
	header, err := json.Marshal(s.header)
	require.NoError(t, err)
	flip(header)
	path := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.WriteFile(path, append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), 0o600))
	require.NoError(t, os.Truncate(path, max(0, 8+int64(len(header))+s.bytes-cut)))
}

// clone is a copy that a mutation may change.
func (s specimen) clone(t *testing.T) specimen {
	t.Helper()
	out := specimen{bytes: s.bytes}
	for _, part := range []struct{ from, to any }{{s.config, &out.config}, {s.header, &out.header}} {
		data, err := json.Marshal(part.from)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, part.to))
	}
	return out
}

// absurd are values that stand where others belong.
var absurd = []any{
	nil, "x", "", -1, 0, 1, 7, 1.5, 1e30, -1e-30, int64(1) << 40, int64(1) << 62,
	map[string]any{"__float__": "NaN"},
	map[string]any{"__float__": "Infinity"},
	[]any{},
	map[string]any{},
	true, false,
	[]any{1, "x"},
	[]any{-1, 0, 1 << 40},
}

// places lists the path of every value of a tree.
func places(tree map[string]any, at ...string) [][]string {
	var out [][]string
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		path := append(slices.Clone(at), key)
		out = append(out, path)
		if inner, ok := tree[key].(map[string]any); ok {
			out = append(out, places(inner, path...)...)
		}
	}
	return out
}

// mutateConfig puts an absurd value somewhere. It returns where, and what was there.
func mutateConfig(rng *rand.Rand, s specimen) (path []string, value, old any) {
	all := places(s.config)
	path, value = all[rng.IntN(len(all))], absurd[rng.IntN(len(absurd))]
	tree := s.config
	for _, key := range path[:len(path)-1] {
		tree = tree[key].(map[string]any)
	}
	old = tree[path[len(path)-1]]
	tree[path[len(path)-1]] = value
	return path, value, old
}

// mutateTensor makes one tensor another one than the graph's, so that nothing must load any more.
func mutateTensor(rng *rand.Rand, s specimen) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.header)), func(name string) bool { // the graph drops them
		return strings.HasPrefix(name, "vision_tower.") || strings.HasPrefix(name, "multi_modal_projector.")
	})
	name := names[rng.IntN(len(names))]
	entry := s.header[name]
	shape := slices.Clone(entry["shape"].([]any))
	dim := func() int { return rng.IntN(len(shape)) }
	switch kind := rng.IntN(10); kind {
	case 0:
		delete(s.header, name)
		return "drop " + name
	case 1:
		delete(s.header, name)
		s.header[strings.Replace(name, "e", "ee", 1)] = entry
		return "rename " + name
	case 2:
		s.header[strings.TrimSuffix(name, ".weight")+".bias_of_nobody"] = map[string]any{"dtype": "F32", "shape": []int{1}, "data_offsets": []int64{s.bytes, s.bytes + 4}}
		return "a tensor beside " + name
	case 3:
		d := dim()
		shape[d] = shape[d].(float64) + float64(1+rng.IntN(2)*1000)
		entry["shape"] = shape
		return "wider " + name
	case 4:
		shape[dim()] = []any{0, -1, 1e18, 1.5, "8", nil}[rng.IntN(6)]
		entry["shape"] = shape
		return fmt.Sprintf("%s of %v", name, shape)
	case 5:
		entry["shape"] = append([]any{1}, shape...)
		return "one more dimension of " + name
	case 6:
		was := entry["dtype"].(string)
		entry["dtype"] = map[string]string{"F32": "I32", "U32": "F32", "U8": "I8", "F16": "I16", "I32": "F32"}[was]
		return fmt.Sprintf("%s is %v, not %s", name, entry["dtype"], was)
	case 7:
		entry["dtype"] = []any{"F64", "Q4_0", "", nil, 5}[rng.IntN(5)]
		return fmt.Sprintf("%s is %v", name, entry["dtype"])
	case 8:
		at := entry["data_offsets"].([]any)
		entry["data_offsets"] = []any{[]any{at[0], at[1].(float64) + 4}, []any{at[1], at[0]}, []any{-4, at[1]}, []any{1e18, 2e18}, []any{at[0]}, "x"}[rng.IntN(6)]
		return fmt.Sprintf("%s at %v", name, entry["data_offsets"])
	}
	if len(shape) == 2 && shape[0] != shape[1] {
		entry["shape"] = []any{shape[1], shape[0]}
		return "transpose " + name
	}
	delete(s.header, name)
	return "drop " + name
}

// readDamaged reads a checkpoint as the plugin does up to its weights; the time and the memory that it takes are bounded.
func readDamaged(t *testing.T, manifest *family.Manifest, dir, what string) (c Config, set *weights.Set, err error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	defer func() {
		require.Less(t, time.Since(began), mutationTime, what)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(mutationBytes), what)
		if err != nil {
			known := []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedModel}
			require.Contains(t, known, contract.KindOf(err), "%s: %v", what, err)
			require.NotContains(t, err.Error(), "\n", what)
		}
	}()
	a, err := artifact.Open(dir)
	if err != nil {
		return c, nil, err
	}
	defer func() { require.NoError(t, a.Close()) }()
	for _, record := range manifest.Families {
		if record.Graph != "universal-dense" {
			continue
		}
		if !record.Match(a.Config()).OK {
			return c, nil, contract.Errorf(contract.UnsupportedModel, what, "no record takes it")
		}
		parsed, err := record.Parse(a)
		if err != nil {
			return c, nil, err
		}
		if c, err = ReadConfig(parsed.Config, stated(a)); err != nil {
			return c, nil, err
		}
		set, err = Match(a, &c)
		return c, set, err
	}
	return c, nil, err
}

// Whatever is damaged in a row's checkpoint, in the config, the tensors or the file, it is refused with a kind and in one line, soon and without
// much memory; a tensor that is not the graph's never loads, and a config that still loads says something else than before, or is damaged where
// nothing is read.
func TestDamagedCheckpointsOfRowsAreRefusedOrHonoured(t *testing.T) {
	data, err := os.ReadFile("../plugin.yaml")
	require.NoError(t, err)
	manifest, err := family.ParseManifest(data)
	require.NoError(t, err)
	k, err := openRuntime(t).Kernels()
	require.NoError(t, err)
	paths := maps.Clone(tinyPaths)
	more, err := tiny.WriteAll(t.TempDir(), tiny.DenseQuantized("phi3-affine3", "glm4-mxfp4", "qwen2-gptq"))
	require.NoError(t, err)
	maps.Copy(paths, more)
	for _, name := range append(append(rowNames(), "llama-f32", "llama-affine4"), slices.Sorted(maps.Keys(more))...) {
		t.Run(name, func(t *testing.T) {
			whole, dir := openSpecimen(t, paths[name]), t.TempDir()
			whole.write(t, dir, func([]byte) {}, 0)
			sound, _, err := readDamaged(t, manifest, dir, "nothing")
			require.NoError(t, err)
			rng := rand.New(rand.NewPCG(20269, uint64(len(name))))
			loaded := 0
			for range mutations(t) {
				s, cut, flip := whole.clone(t), int64(0), func([]byte) {}
				what, mayLoad, unseen := "", false, true
				switch kind := rng.IntN(20); {
				case kind < 9:
					path, value, was := mutateConfig(rng, s)
					what, mayLoad = fmt.Sprintf("config %s = %v (was %v)", strings.Join(path, "/"), value, was), true
					unseen = unreadHere(whole.config, sound, path, value, was)
				case kind < 17:
					what = mutateTensor(rng, s)
				case kind == 17:
					cut = 1 + rng.Int64N(s.bytes)
					what = fmt.Sprintf("without the last %d bytes", cut)
				default:
					what, mayLoad = "bytes of the header", true
					flip = func(header []byte) {
						for range 1 + rng.IntN(3) {
							header[rng.IntN(len(header))] ^= 1 << rng.IntN(8)
						}
					}
				}
				s.write(t, dir, flip, cut)
				c, _, err := readDamaged(t, manifest, dir, what)
				if err != nil {
					continue
				}
				require.True(t, mayLoad, "%s loads", what)
				require.True(t, unseen || !reflect.DeepEqual(c, sound), "%s changes nothing", what)
				if loaded++; loaded <= 2 && c.HeadDim%16 == 0 {
					runZeros(t, dir, k)
				}
			}
		})
	}
}

// runZeros loads a damaged checkpoint, whose weights are zeros, and computes a few tokens.
func runZeros(t *testing.T, dir string, k *mlx.Kernels) {
	t.Helper()
	r := openRuntime(t)
	worker, err := r.NewWorker(mlx.CPU)
	require.NoError(t, err)
	defer func() { require.NoError(t, worker.Close()) }()
	model := load(t, worker, dir, weights.Target{DType: mlx.Float32, Kernels: k})
	require.NoError(t, worker.Do(context.Background(), func(*mlx.Scope) error {
		model.Close()
		return nil
	}))
}

// unread are keys that mlx-lm reads of no dense type either.
var unread = []string{"torch_dtype", "bos_token_id", "architectures", "short_factor", "sym", "zero_point", "version", "desc_act", "modules_to_not_convert"}

// unreadHere reports whether a value may have no effect: it says what it said, or nothing, or it stands where this row, like mlx-lm's file of
// the type, reads nothing.
func unreadHere(config map[string]any, c Config, path []string, value, old any) bool {
	before, _ := json.Marshal(old)
	after, _ := json.Marshal(value)
	leaf, row := path[len(path)-1], rows[c.kind]
	wrapped := config["text_config"] != nil && path[0] != "text_config"
	if wrapped || path[0] == "quantization_config" && config["quantization"] != nil {
		return true
	}
	if value == nil || value == "" || string(before) == string(after) || slices.Contains(unread, leaf) {
		return true
	}
	slides := slices.ContainsFunc(c.Windows, func(w int) bool { return w > 0 })
	switch leaf {
	case "quantization", "quantization_config", "bits", "group_size", "mode": // the tensors' shapes say what they are
		return len(path) <= 2
	case "rms_norm_eps":
		return row.Norm == layerNorm // theirs is layer_norm_eps
	case "tie_word_embeddings":
		return row.Head != byConfig
	case "sliding_window", "sliding_window_pattern":
		return !slides
	case "rope_type": // type goes before it
		parameters, _ := config["rope_parameters"].(map[string]any)
		return parameters["type"] != nil
	case "num_key_value_heads":
		return c.Latent
	case "model_type": // the wrapper's own goes before it
		return len(path) > 1
	case "rope_parameters": // an empty one says nothing
		return string(after) == "{}"
	}
	return false
}

// A GGUF's header with flipped bytes, and a file that ends too soon, are refused like any other, or read.
func TestDamagedGGUFsOfRowsAreRefusedOrRead(t *testing.T) {
	data, err := os.ReadFile("../plugin.yaml")
	require.NoError(t, err)
	manifest, err := family.ParseManifest(data)
	require.NoError(t, err)
	for i, name := range tiny.DenseGGUFNames() {
		if i%4 != 0 && !allRows {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			paths, err := tiny.WriteAll(dir, tiny.DenseGGUF(name))
			require.NoError(t, err)
			path := paths[name+".gguf"]
			a, err := artifact.Open(path)
			require.NoError(t, err)
			begin := a.Tensors()[0].Offset
			for _, x := range a.Tensors() {
				begin = min(begin, x.Offset)
			}
			require.NoError(t, a.Close())
			whole, err := os.ReadFile(path)
			require.NoError(t, err)
			rng := rand.New(rand.NewPCG(20270, uint64(len(name))))
			refused := 0
			for range mutations(t) / 3 {
				header, size := slices.Clone(whole[:begin]), int64(len(whole))
				for range 1 + rng.IntN(3) {
					header[4+rng.IntN(len(header)-4)] ^= 1 << rng.IntN(8)
				}
				if rng.IntN(8) == 0 {
					size = rng.Int64N(size)
					header = header[:min(begin, size)]
				}
				require.NoError(t, os.WriteFile(path, header, 0o600))
				require.NoError(t, os.Truncate(path, size))
				if _, _, err := readDamaged(t, manifest, path, "bytes of the header"); err != nil {
					refused++
				}
			}
			require.Positive(t, refused)
		})
	}
}
