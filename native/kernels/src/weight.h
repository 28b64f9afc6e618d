// A weight in panels: 16 output rows wide, k-major, 64-byte aligned, owned by the kernels.
#pragma once
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "level.h"

namespace clade {

struct Weight {
  int n = 0, k = 0;
  PanelShape shape{};
  int bits = 0;  // of the stored codes as they were given; 0 dense
  bool int8 = false;  // products round x to 8 bits; of a weight of affine codes only
  size_t panel_bytes = 0;
  size_t bytes = 0;
  uint8_t* data = nullptr;
  std::vector<float> bias;  // empty, or padded to whole panels

  Weight(int n, int k, PanelShape shape, int bits);
  ~Weight();
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  // Bytes that a weight of this shape holds.
  static size_t size(int n, const PanelShape&);
  int panels() const { return (n + 15) / 16; }
  const uint8_t* panel(int i) const { return data + size_t(i) * panel_bytes; }

  void set_dense(int row, int count, const void* rows);
  void set_affine(int row, int count, const uint32_t* codes, const void* scales, const void* biases);
  // Row r as k floats.
  void row(int r, float* out) const;
};

// The panel shape of a weight; throws std::invalid_argument naming what is wrong.
PanelShape dense_shape(int n, int k, int dtype);
PanelShape affine_shape(int n, int k, int bits, int group, int scale);
size_t panel_bytes(const PanelShape&);

// Bytes held by all live weights.
std::atomic<size_t>& live_weight_bytes();

inline size_t scale_bytes(Scale s) { return s == Scale::f32 ? 64 : 32; }

}  // namespace clade
