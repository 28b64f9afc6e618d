package family

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// layers spells a layer_types list: n layers, kind every k-th, other elsewhere.
func layers(n, k int, kind, other string) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%q", other)
		if (i+1)%k == 0 {
			out[i] = fmt.Sprintf("%q", kind)
		}
	}
	return "[" + strings.Join(out, ",") + "]"
}

// The rows are those of mlx-bun 1.0's family registry test, two-byte elements: KV bytes for a token in full and sliding
// layers, window, linear state. Its estimator counts shared layers.
func TestGeometryEqualsTheFrozenNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		graph, cfg                   string
		full, sliding, window, state int64
	}{
		"gemma4 12B": {"gemma4", `{"model_type":"gemma4_unified","text_config":{"num_hidden_layers":48,"hidden_size":3840,
			"num_attention_heads":16,"num_key_value_heads":8,"num_global_key_value_heads":1,"attention_k_eq_v":true,
			"sliding_window":1024,"sliding_window_pattern":6,"num_kv_shared_layers":0}}`, 16384, 327680, 1024, 0},
		"gemma4 e4b": {"gemma4", `{"model_type":"gemma4","text_config":{"num_hidden_layers":42,"hidden_size":2560,
			"num_attention_heads":8,"num_key_value_heads":2,"num_kv_shared_layers":18,"layer_types":` +
			layers(42, 6, "full_attention", "sliding_attention") + `}}`, 28672, 71680, 512, 0},
		"gemma4 e2b":    {"gemma4", `{"model_type":"gemma4","text_config":{}}`, 14336, 28672, 512, 0},
		"diffusion 26B": {"diffusion-gemma", `{"model_type":"diffusion_gemma"}`, 20480, 204800, 1024, 0},
		"qwen3.5 0.8B": {"qwen3.5", `{"model_type":"qwen3_5","text_config":{"num_hidden_layers":24,"num_attention_heads":8,
			"num_key_value_heads":2,"head_dim":256,"linear_num_value_heads":16,"linear_num_key_heads":16,
			"linear_key_head_dim":128,"linear_value_head_dim":128}}`, 12288, 0, 0, 19537920},
		"qwen3.8 27B": {"qwen3.5", `{"model_type":"qwen3_5","text_config":{"num_hidden_layers":64,"num_attention_heads":24,
			"num_key_value_heads":4,"head_dim":256,"hidden_size":5120,"linear_num_value_heads":48,"linear_num_key_heads":16,
			"linear_key_head_dim":128,"linear_value_head_dim":128}}`, 65536, 0, 0, 153944064},
		"minicpm5 1B": {"minicpm5", miniCPM5, 24576, 0, 0, 0},
		"llama 3.2 3B": {"universal-dense", `{"model_type":"llama","hidden_size":3072,"num_hidden_layers":28,
			"num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,"intermediate_size":8192,"rms_norm_eps":1e-5,
			"vocab_size":128256}`, 114688, 0, 0, 0},
		"GLM-5.2": {"glm5.2", glm52(`"eos_token_id":5`), 5111808, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := recordOf(t, c.graph)
			require.True(t, r.Match(config(t, c.cfg)).OK)
			p, err := r.ParseConfig(config(t, c.cfg), artifact.Config{})
			require.NoError(t, err)
			g, err := p.Geometry()
			require.NoError(t, err)
			full, sliding := g.PerToken(KVBytes{}, true)
			require.Equal(t, []int64{c.full, c.sliding, c.state}, []int64{full, sliding, g.StateBytes()})
			for _, l := range g.Layers {
				if l.Kind == SlidingLayer {
					require.Equal(t, c.window, l.Window)
				}
			}
		})
	}
}

func TestSharedLayersAndFullWindowsKeepNothingMore(t *testing.T) {
	p, err := recordOf(t, "gemma4").ParseConfig(config(t, `{"model_type":"gemma4","text_config":{}}`), artifact.Config{})
	require.NoError(t, err)
	g, err := p.Geometry()
	require.NoError(t, err)
	// E2B: 15 of 35 layers own a cache, 3 of them full.
	full, sliding := g.PerToken(KVBytes{}, false)
	require.Equal(t, int64(3*2*512*2), full)
	require.Equal(t, int64(12*2*256*2), sliding)
	require.Equal(t, 512*(full+sliding), g.Bytes(512, 1, KVBytes{}))
	require.Equal(t, 2*(2000*full+512*sliding), g.Bytes(2000, 2, KVBytes{}))
}

func TestKVSchemesCountGroupsAndRoundUp(t *testing.T) {
	l := LayerCache{Kind: FullLayer, Heads: 2, KeyDim: 128, ValueDim: 128}
	for _, c := range []struct {
		scheme KVBytes
		want   int64
	}{
		{KVBytes{}, 1024},
		{KVBytes{Element: 4}, 2048},
		{KVBytes{Bits: 8, Group: 64}, 512 + 8*4},
		{KVBytes{Bits: 4, Group: 64}, 256 + 8*4},
		{KVBytes{Bits: 2, Group: 32}, 128 + 16*4},
	} {
		require.Equal(t, c.want, l.TokenBytes(c.scheme), "%+v", c.scheme)
	}
	require.Equal(t, int64(1), KVBytes{Bits: 4, Group: 64}.of(1), "a fraction of a byte takes a byte")
	require.Zero(t, LayerCache{Kind: LinearLayer, Heads: 8, KeyDim: 8}.TokenBytes(KVBytes{}))
}

func TestHostileGeometryIsRefused(t *testing.T) {
	r := &Record{Graph: "x"}
	require.NoError(t, r.Config.check())
	base := `{"num_hidden_layers":2,"num_attention_heads":2,"head_dim":4`
	for extra, mention := range map[string]string{
		`,"layer_types":["full_attention"]}`:                     "layer_types",
		`,"layer_types":["full_attention","other"]}`:             `"other" is unknown`,
		`,"layer_types":["sliding_attention","full_attention"]}`: "sliding_window",
		`,"layer_types":["linear_attention","full_attention"]}`:  "linear_num_value_heads",
		`,"num_key_value_heads":-1}`:                             "num_key_value_heads",
		`,"num_key_value_heads":1099511627776}`:                  "num_key_value_heads",
		`,"num_key_value_heads":1.5}`:                            "num_key_value_heads",
		`,"num_hidden_layers_":0,"global_head_dim":"x"}`:         "global_head_dim",
	} {
		p, err := r.ParseConfig(config(t, base+extra), artifact.Config{})
		require.NoError(t, err)
		_, err = p.Geometry()
		require.Error(t, err, extra)
		require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
		require.ErrorContains(t, err, mention)
	}
	w := recordOf(t, "whisper")
	g, err := Parsed{Record: w}.Geometry()
	require.NoError(t, err)
	require.Zero(t, g.Bytes(4096, 1, KVBytes{}), "whisper has no KV cache that grows with the context")
}
