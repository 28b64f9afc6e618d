// How a row of a cache, one token's keys or values of one head, lies in memory: as floats of a dtype, or coded.
//
// A coded row is 32-bit words: heads, then the codes as a stream of bits, code i at bits [i * bits, (i + 1) * bits), lowest first.
//   affine: a head for each group of columns, float16 scale and float16 bias; a column is scale * code + bias.
//   turbo:  a head for each block of columns, a float32 scale; a column of the rotated row is scale * level[code].
// docs/kv.md defines both exactly; sdk/kv/testdata/reference.py computes the same bits in numpy.
#pragma once
#include <cstddef>
#include <cstdint>

#include "level.h"

namespace clade {

enum class Code : int { dense = 0, affine = 1, turbo = 2 };

struct RowCode {
  Code code;
  DType dtype;      // of a dense row
  int bits, group;  // of a coded one

  // Bytes of a row of d columns.
  size_t bytes(int d) const;
  bool rotated() const { return code == Code::turbo; }
};

// The columns that share a head: a group, or for turbo the largest power of two that divides d.
int code_block(const RowCode&, int d);

// Throws std::invalid_argument naming what is wrong with a code for heads of d columns.
void check_code(const RowCode&, int d);

// Writes a row of d floats. Every operation is one rounding of IEEE float32, in a stated order.
void pack_row(const RowCode&, const float* x, int d, void* row);

// To the space that turbo rows are coded in, and back; in place.
void rotate(float* x, int d);
void unrotate(float* x, int d);

// The levels of a turbo code, lowest first, and the 2^bits - 1 thresholds between them (turbo.cpp).
const float* turbo_levels(int bits);
const float* turbo_thresholds(int bits);

}  // namespace clade
