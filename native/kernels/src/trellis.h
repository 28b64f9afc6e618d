// Weights as walks through a trellis (QTIP): a block of `block` elements is a ring of block * bits bits, and the state of element t is
// `state` bits of it from bit (block - 1 - t) * bits on. A state's value is that of the 1MAD code, times the block's scale.
//
// Panels. Axis 1, blocks along a row: per block float scales[16], then the rings' words [block * bits / 32][16]. Axis 0, blocks along
// the rows: per column the words that hold the states of the panel's 16 rows, then a float scale.
#pragma once
#include <cmath>
#include <cstdint>

#include "level.h"

namespace clade {

struct Weight;

PanelShape trellis_shape(int n, int k, int bits, int block, int state, int axis);
size_t trellis_panel_bytes(const PanelShape&);
// Rows [row, row + count), for axis 0 whole blocks of them: words [count][k / block][ring], for axis 0 [count / block][k][ring]; a
// scale a block, in the same order.
void set_trellis(Weight&, int row, int count, const uint32_t* words, const float* scales);
// Row r as k floats.
void trellis_row(const Weight&, int r, float* out);

inline int trellis_ring(const PanelShape& s) { return s.group * s.bits / 32; }
// Words that hold 16 neighbouring states, and one that is read with the last.
inline int trellis_window(const PanelShape& s) { return (15 * s.bits + s.state + 31) / 32; }

// Internal to each file that includes it: the levels are compiled with other instructions.
namespace {

// (The sum of the four bytes of a * s + c) - 510, over the code's deviation. The quotient is the nearest float, as a division gives
// it: for all 1021 numerators (test/trellis_test.cpp).
inline float trellis_value(uint32_t s) {
  constexpr float kDeviation = 147.800537109375f, kInverse = 1.0f / kDeviation;
  const uint32_t x = s * 34038481u + 76625530u, two = (x & 0x00ff00ffu) + (x >> 8 & 0x00ff00ffu);
  const float y = float(int32_t((two & 0xffffu) + (two >> 16)) - 510), q = y * kInverse;
  return std::fma(std::fma(-q, kDeviation, y), kInverse, q);
}

inline uint32_t trellis_mask(int state) { return state == 32 ? ~0u : (1u << state) - 1; }

}  // namespace
}  // namespace clade
