// Attention over a plain cache: per-head norms, rotary embedding, the cache write, softmax and the weighted sum.
#pragma once
#include <vector>

#include "level.h"

namespace clade {

// Keys are reduced in ascending absolute position, in tiles cut at multiples of this; a tile is reduced on its own and then
// merged, so that a row's bits do not depend on how the work was divided.
constexpr int kAttentionTile = 256;

// The rows of one sequence among those of a call, and its cache: keys and values [kv_heads, capacity, head_dim].
struct AttentionSegment {
  int offset, rows;  // absolute position of the first row
  void *keys, *values;
  int capacity;
};

struct AttentionCall {
  int heads, kv_heads, head_dim;
  int rope_dims;
  bool rope_traditional;
  float rope_scale;
  float rope_mscale;
  float scale;
  int window;
  float norm_eps;

  // qkv [rows, (heads + 2 kv_heads) head_dim], the rows of all segments in order; out [rows, heads head_dim]; inv_freq
  // [rope_dims/2]; q_norm, k_norm [head_dim] or null. No two segments share a cache.
  void run(DType dtype, const void* qkv, const std::vector<AttentionSegment>& segments, const float* inv_freq, const void* q_norm,
           const void* k_norm, void* out) const;
};

}  // namespace clade
