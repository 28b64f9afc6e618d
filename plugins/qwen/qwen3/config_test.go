package qwen3

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// A config is untrusted: whatever it holds is read or refused with a Kind, never a panic, and what was read can be listed.
func FuzzReadConfig(f *testing.F) {
	f.Add([]byte(`{"hidden_size":64,"intermediate_size":128,"vocab_size":256,"num_hidden_layers":1,"num_attention_heads":4,
		"num_key_value_heads":2,"head_dim":32,"rms_norm_eps":1e-6,"rope_theta":1e6,"layer_types":["full_attention"],
		"tie_word_embeddings":true,"eos_token_ids":[2]}`))
	f.Add([]byte(`{"rope_scaling":{"rope_type":"yarn","factor":{"__float__":"NaN"}},"layer_types":["sliding_attention"]}`))
	f.Add([]byte(`{"head_dim":3,"num_attention_heads":2147483648,"eos_token_ids":[-1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := artifact.ParseConfig("config.json", data)
		if err != nil {
			return
		}
		c, err := ReadConfig(parsed)
		if err != nil {
			require.Contains(t, []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedModel}, contract.KindOf(err), "%v", err)
		} else if c.Layers < 1000 {
			require.NotEmpty(t, c.Params())
			require.Len(t, c.Caches(), c.Layers)
		}
	})
}

// The config of a mixture is as untrusted.
func FuzzReadMoEConfig(f *testing.F) {
	f.Add([]byte(`{"hidden_size":64,"intermediate_size":128,"vocab_size":256,"num_hidden_layers":3,"num_attention_heads":4,
		"num_key_value_heads":2,"head_dim":32,"rms_norm_eps":1e-6,"rope_theta":1e6,"tie_word_embeddings":true,"num_experts":8,
		"num_experts_per_tok":2,"moe_intermediate_size":32,"decoder_sparse_step":2,"mlp_only_layers":[0,7],"norm_topk_prob":true}`))
	f.Add([]byte(`{"num_experts":2147483647,"decoder_sparse_step":0,"mlp_only_layers":{"a":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := artifact.ParseConfig("config.json", data)
		if err != nil {
			return
		}
		c, err := ReadMoEConfig(parsed)
		if err != nil {
			require.Contains(t, []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedModel}, contract.KindOf(err), "%v", err)
		} else if c.Layers < 100 && c.MoE.Experts <= 256 {
			require.NotEmpty(t, c.Params())
			require.Len(t, c.Caches(), c.Layers)
		}
	})
}

// mlx-lm reads no layer_types here and would attend to everything, whatever the config says.
func TestSlidingLayersAreRefused(t *testing.T) {
	parsed, err := artifact.ParseConfig("config.json", []byte(`{"hidden_size":64,"intermediate_size":128,"vocab_size":256,
		"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"rms_norm_eps":1e-6,"rope_theta":1e6,
		"layer_types":["sliding_attention"],"tie_word_embeddings":true}`))
	require.NoError(t, err)
	_, err = ReadConfig(parsed)
	require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
	require.ErrorContains(t, err, "layer_types[0]")
}
