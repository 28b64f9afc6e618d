package engine

import (
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// Layout is what the engine must know of a model.
type Layout struct {
	Vocab int
	// Caches has one entry for each layer that keeps keys and values, in the order the graph numbers them.
	Caches []kv.Spec
}

// kernelsFit reports whether the attention kernel takes every cache's heads.
func (l Layout) kernelsFit() bool {
	for _, c := range l.Caches {
		if c.Source == 0 && c.HeadDim%16 != 0 { // a source's are MLX's to attend to
			return false
		}
	}
	return true
}

// Model is a decoder graph, whose Layout its Blueprint states. Its methods run on the worker's thread and report errors through the scope.
type Model interface {
	// Forward maps token ids [1, T] (int32) to hidden states [1, T, hidden]; it calls pass.Attend once for each cache. The T
	// tokens are those of the pass's segments, of several sequences: nothing but Attend may mix or order them.
	Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array
	// Unembed maps hidden states [.., hidden] to logits [.., Vocab].
	Unembed(s *mlx.Scope, hidden *mlx.Array) *mlx.Array
	// Close frees the parameters, on the worker's thread.
	Close()
}
