// A gated delta network: a short causal convolution, then a recurrence over a matrix for each value head.
#pragma once
#include <vector>

#include "level.h"

namespace clade {

// What is left of a sequence behind its first `row` rows: the last taps - 1 inputs of the convolution, and the matrices.
struct DeltaAfter {
  int row;
  void* history;  // [taps - 1, channels] of the call's dtype
  float* state;   // [value_heads, key_dim, value_dim]
};

// The rows of one sequence among those of a call, with what was left before them. The last of `after` is behind all rows and may be
// the same memory as `state`; the others are behind fewer, ascending, at least one.
struct DeltaSegment {
  int rows;
  const void* history;
  const float* state;
  std::vector<DeltaAfter> after;
};

struct DeltaCall {
  int key_heads, value_heads;  // value head h has the queries and keys of key head h / (value_heads / key_heads)
  int key_dim, value_dim;
  int taps;           // of the convolution, the row's own included
  float norm_eps;     // of the norm of the result
  float length_eps;   // beside the squared length of a query or key

  int group() const { return value_heads / key_heads; }
  int values() const { return value_heads * value_dim; }
  int channels() const { return 2 * key_heads * key_dim + values(); }
  int width() const { return channels() + values() + 2 * value_heads; }
  // x [rows, width]: queries, keys and values; z; b; a; the rows of all segments in order. conv [taps, channels] and norm [value_dim]
  // of dtype, a_log and dt_bias [value_heads]; out [rows, values]. A row's bits depend on the rows before it alone, not on how they were
  // cut into calls.
  void run(DType dtype, const void* x, const std::vector<DeltaSegment>& segments, const void* conv, const float* a_log,
           const float* dt_bias, const void* norm, void* out) const;
};

}  // namespace clade
