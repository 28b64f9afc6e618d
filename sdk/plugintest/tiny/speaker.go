package tiny

import (
	"fmt"
	"maps"
	"slices"
)

// Speaker is a llama of one layer that says what it is told: behind a token that next has, that token's follower, whatever stood before.
// At most 64 tokens can be followers or have one.
func Speaker(name string, vocab int, next map[int]int) Checkpoint {
	const hidden, inter = 64, 32
	config := map[string]any{
		"model_type": "llama", "hidden_size": hidden, "intermediate_size": inter, "num_hidden_layers": 1, "num_attention_heads": 4,
		"num_key_value_heads": 2, "head_dim": 16, "vocab_size": vocab, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
		"tie_word_embeddings": false, "torch_dtype": "float32",
	}
	embed, head := make([]float32, vocab*hidden), make([]float32, vocab*hidden)
	for axis, token := range slices.Sorted(maps.Keys(next)) {
		embed[token*hidden+axis] = 1
		head[next[token]*hidden+axis] += 1
	}
	zeros := func(name string, shape ...int) Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return Tensor{name, shape, make([]float32, n)}
	}
	ones := func(name string) Tensor { return Tensor{name, []int{hidden}, slices.Repeat([]float32{1}, hidden)} }
	layer := func(name string) string { return fmt.Sprintf("model.layers.0.%s.weight", name) }
	return Checkpoint{Name: name, Config: config, store: safetensors("F32"), Tensors: []Tensor{
		{"model.embed_tokens.weight", []int{vocab, hidden}, embed},
		{"lm_head.weight", []int{vocab, hidden}, head},
		ones("model.norm.weight"),
		ones(layer("input_layernorm")), ones(layer("post_attention_layernorm")),
		zeros(layer("self_attn.q_proj"), hidden, hidden), zeros(layer("self_attn.k_proj"), hidden/2, hidden), zeros(layer("self_attn.v_proj"), hidden/2, hidden),
		zeros(layer("self_attn.o_proj"), hidden, hidden), zeros(layer("mlp.gate_proj"), inter, hidden), zeros(layer("mlp.up_proj"), inter, hidden),
		zeros(layer("mlp.down_proj"), hidden, inter),
	}}
}
