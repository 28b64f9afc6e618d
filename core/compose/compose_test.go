package compose

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func all(string) bool { return true }

func field(t *testing.T, c *Composition, name string) Field {
	t.Helper()
	for _, f := range c.Fields {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no field %s", name)
	return Field{}
}

func TestEveryFieldKnowsWhoDecidedIt(t *testing.T) {
	tests := []struct {
		name, field string
		in          Input
		want        Field
	}{
		{"user context", "context", Input{Wishes: Wishes{Context: 100}, Model: Model{MaxContext: 4096}, Family: Family{Context: 2048}}, Field{"context", "100", FromUser}},
		{"family context", "context", Input{Model: Model{MaxContext: 4096}, Family: Family{Context: 2048}}, Field{"context", "2048", FromFamily}},
		{"model context below the family's", "context", Input{Model: Model{MaxContext: 1024}, Family: Family{Context: 2048}}, Field{"context", "1024", FromFiles}},
		{"default context", "context", Input{}, Field{"context", "4096", FromDefault}},
		{"native dtype is the checkpoint's", "dtype", Input{Model: Model{Format: "safetensors", FloatDType: "bfloat16"}}, Field{"dtype", "bfloat16", FromFiles}},
		{"native dtype of gguf", "dtype", Input{Model: Model{Format: "gguf", FloatDType: "float16"}}, Field{"dtype", "float32", FromDefault}},
		{"asked dtype", "dtype", Input{Wishes: Wishes{DType: "float16"}, Model: Model{FloatDType: "bfloat16"}}, Field{"dtype", "float16", FromUser}},
		{"family kv", "kv", Input{Family: Family{KV: "f32"}}, Field{"kv", "f32", FromFamily}},
		{"threads", "threads", Input{Wishes: Wishes{Threads: 3}}, Field{"threads", "3", FromUser}},
		{"deterministic by default", "deterministic", Input{}, Field{"deterministic", "true", FromDefault}},
		{"deterministic off", "deterministic", Input{Wishes: Wishes{Deterministic: "false"}}, Field{"deterministic", "false", FromUser}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Declares = all
			c, err := Resolve(tt.in)
			require.NoError(t, err)
			require.Equal(t, tt.want, field(t, c, tt.field))
		})
	}
}

func TestAskedFieldThatThePluginLacksIsRefusedByName(t *testing.T) {
	for name, w := range map[string]Wishes{
		"device": {Device: "cpu-x"}, "dtype": {DType: "float32"}, "kv": {KV: "f32"}, "context": {Context: 5}, "threads": {Threads: 1},
		"kernels": {Kernels: "require"}, "deterministic": {Deterministic: "true"},
	} {
		_, err := Resolve(Input{Wishes: w, Declares: func(string) bool { return false }})
		require.Equal(t, contract.UnsupportedOption, contract.KindOf(err), name)
		require.ErrorContains(t, err, name)
	}
	c, err := Resolve(Input{Declares: func(string) bool { return false }})
	require.NoError(t, err)
	require.Equal(t, []Field{{"draft", "none", FromDefault}, {"programs", "none", FromDefault}, {"adapters", "none", FromDefault}}, c.Fields,
		"an undeclared default is neither sent nor claimed; what nobody asked for is none")
}

// Each refusal: kind, exit code, text.
func TestImpossibleWishesAreRefused(t *testing.T) {
	lacks := func(path string) func(string) bool { return func(p string) bool { return p != path } }
	for text, c := range map[string]struct {
		in   Input
		kind contract.Kind
	}{
		"context: 9000 is more than the 8192 positions the model was made for":       {Input{Wishes: Wishes{Context: 9000}, Model: Model{MaxContext: 8192}}, contract.InvalidArgument},
		"max_generation: 600 is more than the context of 512":                        {Input{Wishes: Wishes{Context: 512, MaxGeneration: 600}}, contract.InvalidArgument},
		`dtype: "int3" is not one of native, float32, bfloat16, float16`:             {Input{Wishes: Wishes{DType: "int3"}}, contract.InvalidArgument},
		`kv: "affine4" is no KV scheme`:                                              {Input{Wishes: Wishes{KV: "affine4"}}, contract.InvalidArgument},
		"kv: the model has no kv_config.json; name a scheme, or leave it out":        {Input{Wishes: Wishes{KV: "config"}}, contract.InvalidArgument},
		"kv: names layer 7 of a model with 4":                                        {Input{Wishes: Wishes{KV: "layers:7=4"}, Model: Model{Layers: 4}}, contract.InvalidArgument},
		"kv: the model's plugin does not convert a cache at a later token (@9)":      {Input{Wishes: Wishes{KV: "4@9"}, Declares: lacks("kv.start")}, contract.UnsupportedOption},
		"kv: the model's plugin does not honour it":                                  {Input{Wishes: Wishes{KV: "turbo"}, Declares: lacks("kv.turbo")}, contract.UnsupportedOption},
		`paging: "maybe" is not one of auto, true, false`:                            {Input{Wishes: Wishes{Paging: "maybe"}}, contract.InvalidArgument},
		"paging: the family does not page its cache":                                 {Input{Wishes: Wishes{Paging: "true"}}, contract.UnsupportedOption},
		`deterministic: "maybe" is not one of auto, true, false`:                     {Input{Wishes: Wishes{Deterministic: "maybe"}}, contract.InvalidArgument},
		"draft: the model's plugin does not speculate with ngram, at most 4 tokens;": {Input{Draft: &cladev1.Draft{Kind: "ngram", Depth: new(uint32(4))}, Declares: lacks("draft.depth")}, contract.UnsupportedOption},
		"adapters: the model's plugin does not honour it":                            {Input{Adapters: []string{"/a"}, Declares: lacks("adapters")}, contract.UnsupportedOption},
	} {
		if c.in.Declares == nil {
			c.in.Declares = all
		}
		_, err := Resolve(c.in)
		require.Equal(t, c.kind, contract.KindOf(err), text)
		require.Equal(t, 2, contract.KindOf(err).ExitCode())
		require.ErrorContains(t, err, text)
	}
}

func TestBindFreezesTheDeviceAndWhatFollowsFromIt(t *testing.T) {
	c, err := Resolve(Input{Model: Model{Format: "gguf"}, Declares: all})
	require.NoError(t, err)
	require.Nil(t, c.Proto.Device)
	changed, err := c.Bind(&cladev1.Plan{Device: "cuda-sm90"})
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "cuda-sm90", c.Proto.GetDevice())
	require.Equal(t, "bfloat16", c.Proto.GetDtype())
	require.False(t, c.Proto.GetDeterministic())
	changed, err = c.Bind(&cladev1.Plan{Device: "cuda-sm90"})
	require.NoError(t, err)
	require.False(t, changed)

	c, err = Resolve(Input{Wishes: Wishes{DType: "float32"}, Model: Model{Format: "gguf"}, Declares: all})
	require.NoError(t, err)
	_, err = c.Bind(&cladev1.Plan{Device: "cuda-sm90"})
	require.NoError(t, err)
	require.Equal(t, "float32", c.Proto.GetDtype(), "a wish is never changed")
}

func TestOnlyADefaultIsRelaxed(t *testing.T) {
	c, err := Resolve(Input{Declares: all})
	require.NoError(t, err)
	relaxed, err := c.Relax("deterministic")
	require.NoError(t, err)
	require.True(t, relaxed)
	require.False(t, c.Proto.GetDeterministic())
	relaxed, err = c.Relax("deterministic")
	require.NoError(t, err)
	require.False(t, relaxed, "once")
	c, err = Resolve(Input{Wishes: Wishes{Deterministic: "true"}, Declares: all})
	require.NoError(t, err)
	relaxed, err = c.Relax("deterministic")
	require.NoError(t, err)
	require.False(t, relaxed)
}
