// What products over panels share: rows of x, panels of weights, and where the results go.
#pragma once
#include <cstdint>
#include <vector>

#include "level.h"
#include "linear.h"
#include "weight.h"

namespace clade {

constexpr int kLanes = 16;

// Scratch slots of a thread.
enum Slot { kRows = 0, kNorm, kPanels, kTile, kRounded = 8, kPart, kWide, kLow, kHidden, kDelta, kSlots };

// Where a tile's products go.
struct Sink {
  DType dtype;
  Gate gate;
  const uint8_t* residual;
  uint8_t* out;
  size_t ld;  // columns of out

  void round(float* v) const {
    if (dtype == DType::f32) return;
    uint16_t h[kLanes];
    level().narrow(dtype, v, kLanes, h);
    level().widen(dtype, h, kLanes, v);
  }

  // n <= 16 finished values of one row starting at column col.
  void put(float* v, int row, int col, int n) const {
    const size_t size = dtype == DType::f32 ? 4 : 2, at = (size_t(row) * ld + size_t(col)) * size;
    if (residual) {
      float r[kLanes] = {};
      round(v);
      level().widen(dtype, residual + at, size_t(n), r);
      for (int i = 0; i < kLanes; i++) v[i] += r[i];
    }
    level().narrow(dtype, v, size_t(n), out + at);
  }
};

// A block of rows of x: as floats, and rounded to 8 bits for each width of group that is multiplied so.
struct Rows {
  const float* x;
  const std::vector<QuantRows>* rounded;
  int first, count;

  const QuantRows* rounded_for(const Weight& w) const {
    if (w.int8)
      for (const QuantRows& q : *rounded)
        if (q.group == w.shape.group) return &q;
    return nullptr;
  }
};

// Panels that one tile call takes straight from storage for so few rows.
inline int direct_panels(int rows) { return rows <= 2 ? 4 : 2; }

// Panels [begin, end) of one weight over a block of rows; col is what its first column is called in the sink.
void plain_panels(const Weight& w, int begin, int end, const Rows& r, int col, const Sink& sink);

// Panels [begin, end) of gate and up together.
void gated_panels(const Weight& gate, const Weight& up, int begin, int end, const Rows& r, int col, const Sink& sink);

}  // namespace clade
