package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

func TestEveryCheckpointOpensAndLeavesNothing(t *testing.T) {
	b := backend(t)
	for name, path := range tinyPaths {
		t.Run(name, func(t *testing.T) {
			before := mlx.LiveHandles()
			model := spec(t, path, &cladev1.Composition{Dtype: ptr("float32"), Kernels: ptr("auto"), Deterministic: ptr(true)})
			plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: model})
			require.NoError(t, err)
			again, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: model})
			require.NoError(t, err)
			require.True(t, proto.Equal(plan, again), "a plan is a function of its request")

			var last *cladev1.LoadProgress
			m, err := b.Open(context.Background(), &cladev1.OpenRequest{Model: model, Plan: plan}, func(r *cladev1.OpenResponse) { last = r.GetLoad() })
			require.NoError(t, err)
			require.Equal(t, last.BytesTotal, last.BytesDone)
			require.Equal(t, last.TensorsTotal, last.TensorsDone)
			require.EqualValues(t, plan.Lines[0].Bytes, weightsLine(plan))
			ids, finish := generate(t, m, &plugin.GenerateJob{
				Start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(4)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}, IDs: []int32{1, 5, 9},
			})
			require.Len(t, ids, 4)
			require.Equal(t, "float32", finish.Provenance.Dtype)
			require.Equal(t, plan.Notes, finish.Provenance.Notes)
			require.NoError(t, m.Close())
			require.Equal(t, before, mlx.LiveHandles())
		})
	}
}

func weightsLine(p *cladev1.Plan) uint64 {
	for _, l := range p.Lines {
		if l.Name == "weights" {
			return l.Bytes
		}
	}
	return 0
}

func TestLoadedWeightsTakeWhatThePlanSays(t *testing.T) {
	b := backend(t)
	for _, dtype := range []string{"float32", "bfloat16", "float16"} {
		for _, name := range []string{"llama-f32", "llama-affine4"} {
			m, plan := open(t, b, spec(t, tinyPaths[name], &cladev1.Composition{Dtype: ptr(dtype)}), nil)
			// Frequencies and scalars are all that lives beside the parameters.
			held := m.Facts().Memory.ActiveBytes
			require.GreaterOrEqual(t, held, weightsLine(plan), "%s %s", name, dtype)
			require.LessOrEqual(t, held, weightsLine(plan)+weightsLine(plan)/50+4096, "%s %s", name, dtype)
			require.NoError(t, m.Close())
		}
	}
}

func TestThePlanNamesTheKernelsThatRun(t *testing.T) {
	b := backend(t)
	plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths["llama-gguf-q4_1.gguf"], &cladev1.Composition{Kernels: ptr("require")})})
	require.NoError(t, err)
	require.Len(t, plan.Kernels, 4)
	for _, k := range plan.Kernels {
		require.True(t, k.Native, "%v", k)
	}
	require.Empty(t, plan.Notes)
}

// What the kernels hold in more bits than the file is said; K-quants are held in their own codes.
func TestThePlanNotesWhatIsHeldWiderThanStored(t *testing.T) {
	b := backend(t)
	for name, note := range map[string]string{
		"llama-gguf-q4_k_m.gguf": "", "llama-gguf-q2_k.gguf": "", "llama-gguf-q5_1.gguf": "",
		"llama-gguf-iq4_nl.gguf": "16 IQ4_NL as 8-bit codes", "llama-gguf-iq4_xs.gguf": "16 IQ4_XS as 8-bit codes",
		"llama-gguf-mxfp4.gguf": "16 MXFP4 as 5-bit codes", "llama-mxfp4": "29 mxfp4 as 5-bit codes",
		"llama-nvfp4": "29 nvfp4 as 8-bit codes", "llama-mxfp8": "30 mxfp8 as bfloat16",
	} {
		plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths[name], &cladev1.Composition{})})
		require.NoError(t, err, name)
		if note == "" {
			require.Empty(t, plan.Notes, name)
			continue
		}
		require.Len(t, plan.Notes, 1, name)
		require.Contains(t, plan.Notes[0], note)
	}
}

func TestAFallbackIsToldAndRequireRefusesIt(t *testing.T) {
	b := backend(t)
	plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths["llama-gguf-q4_1.gguf"], &cladev1.Composition{Kernels: ptr("off")})})
	require.NoError(t, err)
	for _, k := range plan.Kernels {
		require.False(t, k.Native)
		require.Contains(t, k.Reason, "kernels=off")
	}
	require.Contains(t, plan.Notes[0], "Q4_1")
	require.Greater(t, plan.TotalBytes, uint64(0))
}

func TestACompositionThatCannotBeHonouredIsRefused(t *testing.T) {
	b := backend(t)
	plain := func(s string) *cladev1.KvScheme { return &cladev1.KvScheme{Scheme: &cladev1.KvScheme_Plain{Plain: s}} }
	tests := map[string]*cladev1.Composition{
		"device":        {Device: ptr("cuda-sm90")},
		"dtype":         {Dtype: ptr("float8")},
		"kv":            {Kv: plain("f17")},
		"rows":          {Rows: ptr(uint32(0))},
		"prefill_chunk": {PrefillChunk: ptr(uint32(0))},
		"kernels":       {Kernels: ptr("faster")},
		"deterministic": {Deterministic: ptr(true), Kernels: ptr("off")},
	}
	for option, composition := range tests {
		t.Run(option, func(t *testing.T) {
			_, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths["llama-f32"], composition)})
			require.ErrorContains(t, err, option)
			require.Contains(t, []contract.Kind{contract.UnsupportedOption, contract.InvalidArgument}, contract.KindOf(err))
		})
	}
}

func TestAPlanBeyondTheBudgetIsNotOpened(t *testing.T) {
	b := backend(t)
	model := spec(t, tinyPaths["llama-f32"], &cladev1.Composition{MemoryBudgetBytes: ptr(uint64(1 << 20))})
	_, err := b.Open(context.Background(), &cladev1.OpenRequest{Model: model}, func(*cladev1.OpenResponse) {})
	require.Equal(t, contract.MemoryAdmission, contract.KindOf(err), "%v", err)
}

func TestAGraphNamedByTheCallerIsNeverReplaced(t *testing.T) {
	b := backend(t)
	model := spec(t, tinyPaths["llama-f32"], &cladev1.Composition{})
	model.GraphEntry = "llama-fused"
	plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: model})
	require.NoError(t, err)
	require.Equal(t, "dense", plan.GraphEntry)
	require.NotEmpty(t, plan.GraphReason)
	model.GraphRequired = true
	_, err = b.Plan(context.Background(), &cladev1.PlanRequest{Model: model})
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "has dense")
}

// edit copies a tiny safetensors checkpoint with another header and config.
func edit(t *testing.T, name string, header func(map[string]any), config func(map[string]any)) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join(tinyPaths[name], "model.safetensors"))
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(data)
	var head map[string]any
	require.NoError(t, json.Unmarshal(data[8:8+n], &head))
	if header != nil {
		header(head)
	}
	text, err := json.Marshal(head)
	require.NoError(t, err)
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), append(out, data[8+n:]...), 0o600))

	raw, err := os.ReadFile(filepath.Join(tinyPaths[name], "config.json"))
	require.NoError(t, err)
	var tree map[string]any
	require.NoError(t, json.Unmarshal(raw, &tree))
	if config != nil {
		config(tree)
	}
	raw, err = json.Marshal(tree)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600))
	return dir
}

func TestAStrictLoadNamesFileAndTensor(t *testing.T) {
	b := backend(t)
	rename := func(from, to string) func(map[string]any) {
		return func(h map[string]any) {
			if to != "" {
				h[to] = h[from]
			}
			delete(h, from)
		}
	}
	shape := func(name string, dims ...int) func(map[string]any) {
		return func(h map[string]any) { h[name].(map[string]any)["shape"] = dims }
	}
	set := func(path string, v any) func(map[string]any) {
		return func(c map[string]any) { c[path] = v }
	}
	tests := []struct {
		name, from string
		header     func(map[string]any)
		config     func(map[string]any)
		kind       contract.Kind
		says       string
	}{
		{"missing and extra", "llama-f32", rename("model.norm.weight", "model.norm.gamma"), nil, contract.ArtifactCorrupt, "model.norm.weight: this tensor is missing"},
		{"wrong shape", "llama-f32", shape("model.layers.2.mlp.up_proj.weight", 64, 128), nil, contract.ArtifactCorrupt, "model.safetensors: model.layers.2.mlp.up_proj.weight: has shape [64 128], the config makes it [128 64]"},
		{"a head that the config ties away", "llama-untied-headdim", nil, set("tie_word_embeddings", true), 0, ""},
		{"a bias that the config does not know", "llama-bias", nil, set("mlp_bias", false), contract.ArtifactCorrupt, "model.layers.0.mlp.down_proj.bias: the graph has no place for this tensor, nor for 11 more"},
		{"scales without biases", "llama-affine8", rename("model.layers.0.mlp.up_proj.biases", "model.layers.0.mlp.up_proj.other"), nil, contract.ArtifactCorrupt, "model.layers.0.mlp.up_proj.biases is missing"},
		{"a listed path of other bits", "llama-affine8", nil, func(c map[string]any) {
			c["quantization"].(map[string]any)["model.layers.0.mlp.up_proj"] = map[string]any{"bits": 4, "group_size": 64}
		}, contract.ArtifactCorrupt, "is affine, 8 bits in groups of 64, the config says affine, 4 bits in groups of 64"},
		{"a listed path that is dense", "llama-f32", nil, func(c map[string]any) {
			c["quantization"] = map[string]any{"bits": 4, "group_size": 64, "model.layers.0.mlp.up_proj": map[string]any{"bits": 4, "group_size": 64}}
		}, contract.ArtifactCorrupt, "model.layers.0.mlp.up_proj.scales is missing"},
		{"another mode", "llama-affine8", nil, func(c map[string]any) {
			c["quantization"] = map[string]any{"bits": 4, "group_size": 32, "mode": "mxfp6"}
		}, contract.UnsupportedModel, `mode "mxfp6"`},
		{"triples under another default mode, as mlx-lm infers", "llama-affine8", nil, func(c map[string]any) {
			c["quantization"] = map[string]any{"bits": 4, "group_size": 32, "mode": "mxfp4"}
		}, 0, ""},
		{"a mode with another mode's groups", "llama-affine8", nil, func(c map[string]any) {
			c["quantization"] = map[string]any{"bits": 4, "group_size": 64, "mode": "mxfp4"}
		}, contract.ArtifactCorrupt, "4 bits in groups of 64 is no format of mode mxfp4"},
		{"a listed path of another mode", "llama-mxfp8", nil, func(c map[string]any) {
			c["quantization"].(map[string]any)["model.layers.0.mlp.up_proj"] = map[string]any{"mode": "nvfp4"}
		}, contract.ArtifactCorrupt, "is mxfp8, 8 bits in groups of 32, the config says nvfp4, 4 bits in groups of 16"},
		// mlx-lm hands a listed entry on as it is, and its mode is affine then.
		{"a listed path without a mode is affine", "llama-mxfp4", nil, func(c map[string]any) {
			c["quantization"].(map[string]any)["model.layers.0.mlp.up_proj"] = map[string]any{"bits": 4, "group_size": 32}
		}, contract.ArtifactCorrupt, "is mxfp4, 4 bits in groups of 32, the config says affine, 4 bits in groups of 32"},
		{"byte scales in groups of no mode", "llama-affine8", func(h map[string]any) {
			const path = "model.layers.0.mlp.up_proj"
			rename(path+".biases", path+".other")(h)
			s := h[path+".scales"].(map[string]any)
			s["dtype"], s["shape"] = "U8", []int{128, 4}
		}, nil, contract.UnsupportedModel, "8-bit scales on 8-bit codes in groups of 16"},
		{"a global scale that is no float", "llama-nvfp4-global", func(h map[string]any) {
			h["model.layers.0.mlp.up_proj.global_scale"].(map[string]any)["dtype"] = "U32"
		}, nil, contract.ArtifactCorrupt, "model.layers.0.mlp.up_proj.global_scale: is U32 []: a global scale is one F32"},
		{"another tool's method", "llama-f32", nil, set("quantization_config", map[string]any{"quant_method": "bitnet"}), contract.UnsupportedModel, `the method "bitnet"`},
		{"a method without its tensors", "llama-f32", nil, set("quantization_config", map[string]any{"quant_method": "gptq", "bits": 4}), contract.ArtifactCorrupt, "no tensor ends in .qweight"},
		{"a rope of no known type", "llama-f32", nil, set("rope_scaling", map[string]any{"rope_type": "spiral", "factor": 2.0}), contract.UnsupportedModel, `"spiral"`},
		{"linear rope without a factor", "llama-f32", nil, set("rope_scaling", map[string]any{"rope_type": "linear"}), contract.ArtifactCorrupt, "rope_scaling.factor"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := edit(t, tt.from, tt.header, tt.config)
			_, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, path, &cladev1.Composition{})})
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, tt.kind, contract.KindOf(err), "%v", err)
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// The types take less room than Q6_K, so that only the type is wrong.
func TestAGGUFTypeThatIsNotDecodedIsRefusedByName(t *testing.T) {
	for kind, name := range map[uint32]string{16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4"} {
		_, err := backend(t).Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, retyped(t, "llama-gguf-q6_k.gguf", kind), &cladev1.Composition{})})
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "output.weight: stored as "+name+", which this version does not decode")
		require.ErrorContains(t, err, "Q2_K to Q6_K")
	}
}

func TestRowsThatAreNotWholeBlocksAreRefusedByName(t *testing.T) {
	_, err := artifact.Open(retyped(t, "llama-gguf-q8_0.gguf", 12))
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "output.weight: Q4_K: its rows of 64 elements do not fill blocks of 256")
}

// retyped is a copy of a checkpoint whose output.weight has another type number.
func retyped(t *testing.T, name string, kind uint32) string {
	t.Helper()
	data, err := os.ReadFile(tinyPaths[name])
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, os.WriteFile(path, retype(t, data, "output.weight", kind), 0o600))
	return path
}

// retype changes a two-dimensional tensor's type number in a GGUF header.
func retype(t *testing.T, data []byte, name string, kind uint32) []byte {
	t.Helper()
	want := append(binary.LittleEndian.AppendUint64(nil, uint64(len(name))), name...)
	for i := range data {
		if i+len(want) < len(data) && string(data[i:i+len(want)]) == string(want) {
			binary.LittleEndian.PutUint32(data[i+len(want)+4+16:], kind)
			return data
		}
	}
	require.Fail(t, "no tensor "+name)
	return nil
}

func TestTheManifestAndTheTablesAgree(t *testing.T) {
	f, err := engine.Plugin(manifest, universal())
	require.NoError(t, err)
	_, err = plugin.NewServer(f)
	require.NoError(t, err)
	require.Len(t, f.Tables, 2)
	require.Equal(t, cladev1.SelfTest_SELF_TEST_NOT_RUN, f.Kernels()[0].SelfTest)
	require.Len(t, tinyPaths, len(tiny.Llama())+1, "and one with latents")
}

func TestWhatNothingHereOpensIsRefusedByRole(t *testing.T) {
	b := backend(t)
	target := tinyPaths["llama-f32"]
	for text, edit := range map[string]func(*cladev1.ModelSpec){
		`draft: the kind "assistant": only ngram, a model of this plugin's own families and heads of the graph can draft, and dense has no such head`: func(s *cladev1.ModelSpec) {
			s.Composition.Draft = &cladev1.Draft{Kind: "assistant", Depth: ptr(uint32(1))}
		},
		"draft.depth: 65: want 1 to 64": func(s *cladev1.ModelSpec) {
			s.Composition.Draft = &cladev1.Draft{Kind: "ngram", Depth: ptr(uint32(65))}
		},
		"draft: ngram needs no model": func(s *cladev1.ModelSpec) {
			s.Composition.Draft = &cladev1.Draft{Kind: "ngram", Depth: ptr(uint32(3)), Dir: ptr("/d")}
		},
		"artifacts: ROLE_SIDECAR /a: nothing here opens it": func(s *cladev1.ModelSpec) {
			s.Artifacts = append(s.Artifacts, &cladev1.Artifact{Role: cladev1.Role_ROLE_SIDECAR, Path: "/a"})
		},
		"/a/adapter_config.json: no such file": func(s *cladev1.ModelSpec) {
			s.Artifacts = append(s.Artifacts, &cladev1.Artifact{Role: cladev1.Role_ROLE_ADAPTER, Path: "/a"})
		},
		"adapters: b is not among the artifacts": func(s *cladev1.ModelSpec) { s.Composition.Adapters = []string{"b"} },
		"artifacts: ROLE_DRAFT /d: nothing here opens it": func(s *cladev1.ModelSpec) {
			s.Artifacts = append(s.Artifacts, &cladev1.Artifact{Role: cladev1.Role_ROLE_DRAFT, Path: "/d"})
		},
		"artifacts: the first one must be the model": func(s *cladev1.ModelSpec) { s.Artifacts[0].Role = cladev1.Role_ROLE_DRAFT },
		"draft: /d is named 0 times among the artifacts": func(s *cladev1.ModelSpec) {
			s.Composition.Draft = &cladev1.Draft{Kind: "two-model", Depth: ptr(uint32(2)), Dir: ptr("/d")}
		},
		"nowhere: universal 0.1.0 has no family of this id": func(s *cladev1.ModelSpec) {
			s.Artifacts = append(s.Artifacts, &cladev1.Artifact{Role: cladev1.Role_ROLE_DRAFT, Path: "/d"})
			s.Composition.Draft = &cladev1.Draft{Kind: "two-model", Depth: ptr(uint32(2)), Dir: ptr("/d"), Graph: ptr("nowhere")}
		},
	} {
		s := spec(t, target, &cladev1.Composition{Context: ptr(uint32(512))})
		edit(s)
		_, err := b.Plan(t.Context(), &cladev1.PlanRequest{Model: s})
		require.ErrorContains(t, err, text)
	}
}
