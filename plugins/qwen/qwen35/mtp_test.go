package qwen35

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// headed is a subject with its head: NAME of a checkpoint that bundles one, or NAME-head-hf, NAME-head-mlx of one that lies beside NAME.
func headed(name string, target weights.Target, config engine.Config) enginetest.Subject {
	model, _, beside := strings.Cut(name, "-head-")
	s := subject(model, target, config)
	s.Draft = enginetest.Draft{Kind: bundledMTP, Depth: 4, Always: true}
	if beside {
		s.Draft.Kind, s.Draft.Path = besideMTP, tinyPaths[name]
	}
	return s
}

type mtpGolden struct {
	enginetest.Golden
	Drafts map[string][]int32
}

func mtpGoldens(t *testing.T) []mtpGolden {
	data, err := os.ReadFile("../testdata/mtp.json")
	require.NoError(t, err)
	var file struct{ Checkpoints []mtpGolden }
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Checkpoints)
	return file.Checkpoints
}

// Prefilled over the prompt shifted by one, each layout's head gives mlx-vlm's logits, and its ids when it goes on from its own states.
func TestHeadsDraftWhatMLXVLMDrafts(t *testing.T) {
	for _, g := range mtpGoldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				before := mlx.LiveHandles()
				s := headed(g.Name, target, engine.Config{})
				worker, model, b := s.Model(t)
				d := s.Drafter(t, worker, model).(*drafter)
				for length, row := range g.LastRows {
					n, err := strconv.Atoi(length)
					require.NoError(t, err)
					require.NoError(t, worker.Do(context.Background(), func(scope *mlx.Scope) error {
						drafts, logits, err := d.chain(scope, model, b.Layout.Caches, tiny.Prompt(n, g.Vocab), len(g.Drafts[length]))
						if err != nil {
							return err
						}
						distance := enginetest.Distance(enginetest.Row(t, row), logits)
						t.Logf("behind %d: %.1e", n, distance)
						require.LessOrEqual(t, distance, oracleBound)
						require.Equal(t, g.Drafts[length], drafts)
						return nil
					}))
				}
				require.NoError(t, worker.Do(context.Background(), func(*mlx.Scope) error { d.Close(); model.Close(); return nil }))
				require.NoError(t, worker.Close())
				require.Equal(t, before, mlx.LiveHandles())
			})
		})
	}
}

// chain runs a prompt through model and head and drafts n tokens greedily behind it and the token that the model picks.
func (d *drafter) chain(s *mlx.Scope, model engine.Model, caches []kv.Spec, prompt []int32, n int) (drafts []int32, first []float32, err error) {
	cache, own := kv.New(caches, d.kernels), kv.New(d.caches, d.kernels)
	defer cache.Close()
	defer own.Close()
	pass := cache.Begin(len(prompt))
	hidden := model.Forward(s, mlx.FromSlice(s, prompt, 1, len(prompt)), pass)
	pass.End()
	pick := func(hidden *mlx.Array) (id int32, row []float32, err error) {
		last := s.SliceAxis(hidden, 1, hidden.Dim(1)-1, hidden.Dim(1))
		if row, err = mlx.ToSlice[float32](s, s.Reshape(model.Unembed(s, last), -1)); err == nil {
			id = int32(slices.Index(row, slices.Max(row)))
		}
		return id, row, err
	}
	id, _, err := pick(hidden)
	if err != nil {
		return nil, nil, err
	}
	ids := append(slices.Clone(prompt[1:]), id)
	for len(drafts) < n {
		pass := own.Begin(len(ids))
		hidden = d.head.Forward(s, mlx.FromSlice(s, ids, 1, len(ids)), hidden, pass)
		pass.End()
		id, row, err := pick(hidden)
		if err != nil {
			return nil, nil, err
		}
		if first == nil {
			first = row
		}
		drafts, ids = append(drafts, id), []int32{id}
		hidden = s.SliceAxis(hidden, 1, hidden.Dim(1)-1, hidden.Dim(1))
	}
	return drafts, first, nil
}

// Whatever a head says, and from wherever it lies, greedy and seeded answers are those of plain decoding: alone, together, from what was
// kept, behind rejected drafts.
func TestAnswersWithAHeadAreThoseOfPlainDecoding(t *testing.T) {
	for name, accepts := range map[string]bool{
		"qwen35-agrees": true, "qwen35-affine4": false, "qwen35-moe-hf-mtp": false, "qwen35-agrees-head-mlx": true,
	} {
		t.Run(name, func(t *testing.T) {
			s := headed(name, onKernels(t), engine.Config{PrefillChunk: 64, Rows: 8, Queue: 64, PrefixBytes: 1 << 30})
			plain := s
			plain.Draft, plain.Config = enginetest.Draft{}, engine.Config{PrefillChunk: 512}
			wishes := enginetest.Wishes(t, plain.Open(t), 16)
			e := s.Open(t)
			for range 2 {
				ids, errs := enginetest.AskAll(e, wishes)
				for i, w := range wishes {
					require.NoError(t, errs[i])
					require.Equal(t, w.Want, ids[i], "request %d", i)
				}
			}
			stats := e.Stats()
			t.Logf("%d of %d drafts accepted in %d rounds", stats.AcceptedTokens, stats.DraftedTokens, stats.DraftRounds)
			require.Equal(t, s.Draft.Kind, stats.DraftKind, "it was not parked")
			require.Positive(t, stats.DraftedTokens)
			require.Zero(t, stats.FailedEvaluations)
			if accepts {
				require.Greater(t, 2*stats.AcceptedTokens, stats.DraftedTokens)
			}
		})
	}
}

// A greedy answer of the model that agrees with its head takes one forward for five tokens, and usage says so.
func TestAnAgreeingHeadSavesForwards(t *testing.T) {
	e := headed("qwen35-agrees", onKernels(t), engine.Config{PrefillChunk: 64}).Open(t)
	_, finish := enginetest.Generate(t, e, tiny.Prompt(30, 256), greedy(100))
	u := finish.Usage
	t.Logf("%d of %d drafts accepted, %d forwards", u.Accepted, u.Drafted, u.DraftRounds)
	require.Greater(t, u.Accepted*10, u.Drafted*8)
	require.Less(t, u.DraftRounds, uint32(30))
}

// The engine hands a head's cache back with the row: prompts in chunks of one, restarts in the middle, and a head that joins late draft
// alike.
func TestAHeadFollowsPromptsHoweverTheyAreCut(t *testing.T) {
	var want uint32
	for _, chunk := range []int{512, 33, 1} {
		e := headed("qwen35-hf-mtp", onKernels(t), engine.Config{PrefillChunk: chunk}).Open(t)
		_, finish := enginetest.Generate(t, e, tiny.Prompt(50, 256), greedy(60))
		if want == 0 {
			want = finish.Usage.Accepted + 1
		}
		require.Equal(t, want, finish.Usage.Accepted+1, "chunk %d", chunk)
	}
}

func TestAHeadThatIsMissingDamagedOrOfAnotherModelIsRefusedByName(t *testing.T) {
	read := func(name string, change func(*tiny.Checkpoint)) error {
		model, _, beside := strings.Cut(name, "-head-")
		c := slices.Concat(tiny.Qwen35(model), tiny.Qwen35MoE(model))
		s := enginetest.Subject{Graph: Graph(), Manifest: manifest, Draft: enginetest.Draft{Kind: bundledMTP}}
		changed := &c[0]
		if beside {
			heads := tiny.Qwen35Heads(model)
			changed = &heads[slices.IndexFunc(heads, func(c tiny.Checkpoint) bool { return c.Name == name })]
			s.Draft.Kind = besideMTP
		}
		change(changed)
		path, err := c[0].Write(t.TempDir())
		require.NoError(t, err)
		s.Path = path
		if beside {
			s.Draft.Path, err = changed.Write(t.TempDir())
			require.NoError(t, err)
		}
		_, err = s.Head(t)
		return err
	}
	tensor := func(c *tiny.Checkpoint, name string) *tiny.Tensor {
		return &c.Tensors[slices.IndexFunc(c.Tensors, func(t tiny.Tensor) bool { return t.Name == name })]
	}
	without := func(name string) func(*tiny.Checkpoint) {
		return func(c *tiny.Checkpoint) {
			c.Tensors = slices.DeleteFunc(c.Tensors, func(t tiny.Tensor) bool { return t.Name == name })
		}
	}
	text := func(field string, v any) func(*tiny.Checkpoint) {
		return func(c *tiny.Checkpoint) { c.Config["text_config"].(map[string]any)[field] = v }
	}
	for what, c := range map[string]struct {
		name   string
		change func(*tiny.Checkpoint)
		kind   contract.Kind
		says   string
	}{
		"no head":        {"qwen35-hf", func(*tiny.Checkpoint) {}, contract.InvalidArgument, "qwen35-hf has no MTP head: none of its tensors is named mtp.*"},
		"a tensor lacks": {"qwen35-hf-mtp", without("mtp.layers.0.self_attn.k_proj.weight"), contract.ArtifactCorrupt, "mtp.layers.0.self_attn.k_proj.weight: this tensor is missing"},
		"beside, a tensor lacks": {
			"qwen35-hf-mtp-head-mlx", without("fc.weight"), contract.ArtifactCorrupt, "mtp.fc.weight: this tensor is missing",
		},
		"a shape": {"qwen35-hf-mtp", func(c *tiny.Checkpoint) { tensor(c, "mtp.fc.weight").Shape = []int{128, 64} }, contract.ArtifactCorrupt, "mtp.fc.weight: has shape [128 64], the config makes it [64 128]"},
		"one too many": {"qwen35-hf-mtp", func(c *tiny.Checkpoint) {
			c.Tensors = append(c.Tensors, tiny.Tensor{Name: "mtp.layers.1.mlp.up_proj.weight", Shape: []int{1}, Values: []float32{1}})
		}, contract.ArtifactCorrupt, "mtp.layers.1.mlp.up_proj.weight: the graph has no place for this tensor"},
		"two layers":     {"qwen35-hf-mtp", text("mtp_num_hidden_layers", 2), contract.UnsupportedModel, "mtp_num_hidden_layers: a head of 2 layers"},
		"own embeddings": {"qwen35-hf-mtp", text("mtp_use_dedicated_embeddings", true), contract.UnsupportedModel, "mtp_use_dedicated_embeddings"},
		"another model":  {"qwen35-hf-mtp-head-hf", text("hidden_size", 96), contract.InvalidArgument, "is a head of another model: its hidden_size is 96, the model's 64"},
		"another rope": {"qwen35-hf-mtp-head-hf", func(c *tiny.Checkpoint) {
			text := c.Config["text_config"].(map[string]any)
			text["rope_parameters"] = map[string]any{"rope_theta": 5e6, "partial_rotary_factor": 0.25}
		}, contract.InvalidArgument, "its rope_parameters.rope_theta is 5000000, the model's 100000"},
	} {
		t.Run(what, func(t *testing.T) {
			err := read(c.name, c.change)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.kind, contract.KindOf(err))
		})
	}
}

// mlx-lm converts a model and leaves its head as it is, mlx-vlm converts both and says so in the file: what neither tells is refused.
func TestABundledHeadWhoseNormsAreUndecidedIsRefused(t *testing.T) {
	for name, format := range map[string]string{"qwen35-mlx-mtp": "pt", "qwen35-hf-mtp": "mlx"} {
		c := tiny.Qwen35(name)[0]
		c.Format = format
		path, err := c.Write(t.TempDir())
		require.NoError(t, err)
		s := enginetest.Subject{Graph: Graph(), Manifest: manifest, Path: path, Draft: enginetest.Draft{Kind: bundledMTP}}
		_, err = s.Head(t)
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
		require.ErrorContains(t, err, "mtp.fc.weight: the head's norms may be stored less 1 or not")
	}
}
