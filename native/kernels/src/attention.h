// Attention over a cache: per-head norms, rotary embedding, the cache write, softmax and the weighted sum.
#pragma once
#include <vector>

#include "cache.h"
#include "level.h"

namespace clade {

// Keys are reduced in ascending absolute position, in tiles cut at multiples of this; a tile is reduced on its own and then
// merged, so that a row's bits do not depend on how the work was divided.
constexpr int kAttentionTile = 256;

// Where a tile's rows lie: of kv head h, the row at position tile * kAttentionTile + i is `base + (h * capacity + i) * row bytes`.
struct AttentionTile {
  uint8_t *keys, *values;
  int capacity;
};

// The rows of one sequence among those of a call, and its cache. Tiles that no row sees may be anything.
struct AttentionSegment {
  int offset, rows;  // absolute position of the first row
  RowCode keys, values;
  std::vector<AttentionTile> tiles;  // of every tile up to the last row's
};

struct AttentionCall {
  int heads, kv_heads, head_dim;
  int rope_dims;
  bool rope_traditional;
  float rope_scale;
  float rope_mscale;
  float scale;
  int window;  // keys that a query sees, itself included; 0: all
  int keep;    // first positions that every query sees beside its window
  float norm_eps;
  float softcap = 0;  // scores become softcap * tanh(score / softcap); 0: as they are
  bool latent = false;  // a row is keys and values: qkv has no values, and the caches of both are one

  // qkv [rows, (heads + 2 kv_heads) head_dim], without values (heads + kv_heads) head_dim, the rows of all segments in order; out [rows, heads head_dim]; inv_freq
  // [rope_dims/2]; q_norm, k_norm [head_dim] or null. No two segments share a cache.
  void run(DType dtype, const void* qkv, const std::vector<AttentionSegment>& segments, const float* inv_freq, const void* q_norm,
           const void* k_norm, void* out) const;
};

}  // namespace clade
