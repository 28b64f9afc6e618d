package dense

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// A config is untrusted: whatever it holds is read or refused with a Kind, never a panic, and what was read can be listed.
func FuzzReadConfig(f *testing.F) {
	f.Add([]byte(`{"model_type":"llama","hidden_size":64,"intermediate_size":128,"vocab_size":256,"num_hidden_layers":1,"num_attention_heads":4,
		"num_key_value_heads":2,"head_dim":16,"rms_norm_eps":1e-6,"rope_theta":1e4,"layer_types":["full_attention"],
		"quantization":{"bits":4,"group_size":64,"lm_head":false,"model.embed_tokens":{"bits":8}}}`))
	f.Add([]byte(`{"rope_scaling":{"rope_type":"yarn","factor":{"__float__":"NaN"}},"layer_types":["sliding_attention"]}`))
	f.Add([]byte(`{"rope_scaling":{"type":"longrope","long_factor":[1,"x"]},"eos_token_ids":[-1]}`))
	f.Add([]byte(`{"quantization":{"bits":"4"},"quantization_config":{"quant_method":"awq"}}`))
	for _, c := range tiny.Dense() {
		data, err := json.Marshal(c.Config)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := artifact.ParseConfig("config.json", data)
		if err != nil {
			return
		}
		known := []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedModel}
		for _, stated := range []*artifact.Config{nil, &parsed} { // of a config.json, and of a GGUF
			c, err := ReadConfig(parsed, stated)
			if err != nil {
				require.Contains(t, known, contract.KindOf(err), "%v", err)
			} else if c.Layers < 1000 {
				require.NotEmpty(t, c.Params())
				require.Len(t, c.Caches(), c.Layers)
			}
		}
		if _, err := weights.ReadQuantization(parsed); err != nil {
			require.Contains(t, known, contract.KindOf(err), "%v", err)
		}
	})
}
