// Package lora reads low-rank adapters from their headers, as mlx-lm and PEFT write them.
//
// An adapter is a folder: adapter_config.json, and adapters.safetensors (mlx-lm) or adapter_model.safetensors (PEFT). Open says
// which modules of a model it changes: y = W x + Scale B(A x) for each, with A [rank, in] and B [out, rank] whatever way round they
// are stored.
//
// Invariants: an adapter is taken whole or refused, naming what stands in its way; a tensor that is no half of a pair, a rank that
// differs from the config's, or a method that this form does not express (DoRA, biases, whole layers, adapted base weights) is never left
// out. No payload byte is read before Read and Digest.
// Not for: whether a model has such modules (sdk/engine/adapters), pickled files.
package lora
