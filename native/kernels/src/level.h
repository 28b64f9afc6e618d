// The table of inner loops that each dispatch level fills in; everything above it is compiled once.
#pragma once
#include <cstddef>
#include <cstdint>

#include "noise.h"

namespace clade {

// How a weight's elements are stored in its panels. A panel is 16 rows of the [n, k] matrix, laid out k-major.
enum class Format : int {
  f32 = 0,   // [k][16] float
  bf16 = 1,  // [k][16] bfloat16
  f16 = 2,   // [k][16] float16
  q4 = 3,    // per group: scales[16], biases[16], [group/8][16] words of eight codes of 4 bits
  q8 = 4,    // per group: scales[16], biases[16], [group/8][2][16] words of four codes: of even columns, then of odd ones
  trellis = 5,  // trellis.h
};

// How the scales and biases of a quantized weight are stored.
enum class Scale : int { f32 = 0, bf16 = 1, f16 = 2 };

// The geometry that an inner loop needs of one weight.
struct PanelShape {
  Format format;
  Scale scale;
  int k;       // columns
  int group;   // columns that share a scale; 0 for dense formats; the block of a trellis
  int stride;  // bytes from one column to the next in a dense panel
  int bits = 0, state = 0, axis = 0;  // of a trellis
  // Bytes from the end of a quantized panel to the one that its caller takes next in its place, which is asked for early.
  size_t skip = 0;
};

// Rows of activations rounded to 8 bits for a weight whose groups are `group` wide. A block of `block` columns, which divides
// the group, shares a scale: x is about scale * code.
struct QuantRows {
  int k, block, group;
  const int8_t* codes;  // [rows][k]; of eight columns first the four even ones, then the odd ones: as the weights' words
  const float* scales;  // [rows][k/block]
  const float* sums;    // [rows][k/group], of scale * code
};

// The block of a group: small enough for exact sums in 16 bits, and for a scale that fits its values.
constexpr int kMaxDotBlock = 32;
inline int dot_block(int group) { return group % 32 == 0 ? 32 : group % 16 == 0 ? 16 : 8; }

// Activation and cache dtypes.
enum class DType : int { f32 = 0, bf16 = 1, f16 = 2 };

struct RowCode;  // cache.h

// Consecutive tokens through the state of one value head, [key_dim][columns]: for each token, with the state decayed by its g,
//   change = (value - k S) * rate, S = S + k change, out = q S.
// The first token reads the state at `from`, every one writes it at `to`, which may be `from`. Columns are a multiple of 16.
struct DeltaBlock {
  const float* from;
  float* to;
  size_t ldf, ldt;
  int key_dim, columns, tokens;
  const float *queries, *keys, *values;  // of a token, ld apart
  size_t ld;
  const float *decay, *rate;
  float* out;
  size_t ldo;
};

// The token with the highest score, of equal ones the lowest id.
struct Best {
  float score;
  int32_t id;
  void consider(float s, int32_t i);  // not inline: one copy, for every level
};

using DotTile = void(const PanelShape&, const uint8_t* const* panel, int panels, const QuantRows& x, int row, int rows,
                     float* out, size_t ldo);

// One dispatch level. Buffers of n values may be read and written in whole vectors only where a comment says so.
struct Level {
  const char* name;
  int max_direct_rows;  // up to this many rows a tile straight from stored panels beats decoding them first
  // tile multiplies `rows` rows of x (ldx apart) with `panels` (1, 2 or 4) panels; out[r*ldo + p*16 + lane] is the sum over
  // k in order.
  void (*tile)(const PanelShape&, const uint8_t* const* panel, int panels, const float* x, size_t ldx, int rows,
               float* out, size_t ldo);
  // decode writes one panel as [k][16] float.
  void (*decode)(const PanelShape&, const uint8_t* panel, float* out);
  // Sum of squares, lane-strided then in the fixed tree.
  float (*sum_squares)(const float* x, int n);
  // out = x * s, times w where w is not null.
  void (*scale_mul)(const float* x, float s, const float* w, int n, float* out);
  void (*silu_mul)(const float* gate, const float* up, int n, float* out);
  void (*gelu_tanh_mul)(const float* gate, const float* up, int n, float* out);
  // p[i] = exp(s[i] - m) for i < n, zero up to the next multiple of 16 (s and p reach there); returns the sum.
  float (*exp_sum)(const float* s, float m, int n, float* p);
  float (*max_of)(const float* s, int n);
  // acc = acc * a + x * b.
  void (*scale_add)(float* acc, float a, const float* x, float b, int n);
  // Rounds one row of k values; block and group are those of QuantRows. A block with a value that is not finite has scale NaN.
  void (*quantize)(const float* x, int k, int block, int group, int8_t* codes, float* scales, float* sums);
  // dot is tile for a quantized weight and rows [row, row + rows) of x: sums of codes are exact, blocks are added in order.
  DotTile* dot;
  // Widening from and rounding to (nearest even) the storage dtype.
  void (*widen)(DType, const void* x, size_t n, float* out);
  void (*narrow)(DType, const float* x, size_t n, void* out);
  // `rows` (at most 16) rows of d values, ld apart, to one panel [d][16]; missing rows are zero.
  void (*transpose)(DType, const void* src, size_t ld, int rows, int d, float* out);
  // `rows` coded rows of a cache, ld bytes apart, as d floats each; of a turbo code in the rotated space.
  void (*unpack)(const RowCode&, const uint8_t* row, size_t ld, int rows, int d, float* out);
  // Of n scores, those that are at least lo: how many; the first one, n if there is none; and their values and ids, counted from
  // first.
  int (*count_at_least)(const float* x, int n, float lo);
  int (*find_at_least)(const float* x, int n, float lo);
  int (*take_at_least)(const float* x, int n, float lo, int32_t first, float* value, int32_t* id);
  // Sum of weight * (from - x).
  float (*weigh)(const float* weight, const float* x, float from, int n);
  // Updates best with x / temperature + noise of n tokens: ids, which reach to the next multiple of 16, or first and up where ids is
  // null. best is a token of the row already.
  void (*noisy_best)(const float* x, const int32_t* ids, int32_t first, int n, float temperature, const Noise&, Best* best);
  // s = cap * tanh(s / cap); s reaches to the next multiple of 16.
  void (*bend)(float* s, float cap, int n);
  void (*delta_steps)(const DeltaBlock&);
  // out[r] = silu(sum over j of taps[j] * x[r + j]), columns a multiple of 16, all rows ld apart.
  void (*convolve_silu)(const float* x, size_t ld, const float* taps, int n, int rows, int columns, float* out);
};

extern const Level* const kLevelGeneric;
#if defined(__x86_64__)
extern const Level* const kLevelAVX2;
extern const Level* const kLevelAVX512;
// The levels of the same name without its dot instructions, with them.
extern DotTile* const kDotAVXVNNI;
extern DotTile* const kDotAVX512VNNI;
#endif
#if defined(__aarch64__)
extern const Level* const kLevelNEON;
extern DotTile* const kDotNEON;
#endif

// The level in use: the best this machine has, unless forced down.
const Level& level();

}  // namespace clade
