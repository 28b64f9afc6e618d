#include "trellis.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "clade_kernels.h"
#include "error.h"
#include "weight.h"
#include "weight_handle.h"

namespace clade {

namespace {

// `state` bits of a ring from bit `at` on.
uint32_t state_at(const uint32_t* ring, int words, int stride, int at, int state) {
  const int i = at >> 5, shift = at & 31, next = i + 1 == words ? 0 : i + 1;
  uint64_t two = uint64_t(ring[next * stride]) << 32 | ring[i * stride];
  return uint32_t(two >> shift) & trellis_mask(state);
}

void set_along_rows(Weight& w, int row, int count, const uint32_t* words, const float* scales) {
  const PanelShape& s = w.shape;
  const int ring = trellis_ring(s), blocks = s.k / s.group;
  for (int r = 0; r < count; r++) {
    uint8_t* dst = w.data + size_t((row + r) / 16) * w.panel_bytes;
    const int lane = (row + r) % 16;
    for (int b = 0; b < blocks; b++, words += ring, dst += 64 + size_t(ring) * 64) {
      std::memcpy(dst + lane * 4, scales++, 4);
      for (int i = 0; i < ring; i++) std::memcpy(dst + 64 + (size_t(i) * 16 + size_t(lane)) * 4, words + i, 4);
    }
  }
}

void set_along_columns(Weight& w, int row, int count, const uint32_t* words, const float* scales) {
  const PanelShape& s = w.shape;
  const int ring = trellis_ring(s), window = trellis_window(s), bits = ring * 32;
  for (int first = 0; first < count; first += s.group)
    for (int c = 0; c < s.k; c++, words += ring, scales++)
      for (int t = 0; t < s.group; t += 16) {
        uint8_t* dst = w.data + size_t((row + first + t) / 16) * w.panel_bytes + size_t(c) * size_t(window + 1) * 4;
        const int low = (s.group - 16 - t) * s.bits;  // where the state of the panel's last row begins
        for (int i = 0; i < window; i++) {
          const uint32_t word = state_at(words, ring, 1, (low + 32 * i) % bits, 32);
          std::memcpy(dst + i * 4, &word, 4);
        }
        std::memcpy(dst + window * 4, scales, 4);
      }
}

}  // namespace

PanelShape trellis_shape(int n, int k, int bits, int block, int state, int axis) {
  auto no = [](const std::string& what) { throw std::invalid_argument("trellis weight: " + what); };
  (void)dense_shape(n, k, 0);  // checks the extent
  if (bits < 1 || bits > 8) no(std::to_string(bits) + " bits are refused");
  if (state < bits || state > 32) no("states of " + std::to_string(state) + " bits are refused");
  if (axis != 0 && axis != 1) no("axis " + std::to_string(axis) + " is refused");
  if (block < 16 || block % 16 || block > 4096 || block * bits % 32 || block * bits < state || (axis ? k : n) % block)
    no("blocks of " + std::to_string(block) + " do not divide " + std::to_string(n) + " x " + std::to_string(k) + " into whole words");
  return {Format::trellis, Scale::f32, k, block, 0, bits, state, axis};
}

size_t trellis_panel_bytes(const PanelShape& s) {
  if (s.axis == 0) return size_t(s.k) * size_t(trellis_window(s) + 1) * 4;
  return size_t(s.k / s.group) * (64 + size_t(trellis_ring(s)) * 64);
}

void set_trellis(Weight& w, int row, int count, const uint32_t* words, const float* scales) {
  (w.shape.axis ? set_along_rows : set_along_columns)(w, row, count, words, scales);
}

void trellis_row(const Weight& w, int r, float* out) {
  const PanelShape& s = w.shape;
  const uint8_t* p = w.panel(r / 16);
  const int lane = r % 16, ring = trellis_ring(s), window = trellis_window(s);
  for (int c = 0; c < s.k; c++) {
    const uint32_t* words;
    float scale;
    uint32_t state;
    if (s.axis) {
      const uint8_t* block = p + size_t(c / s.group) * (64 + size_t(ring) * 64);
      words = reinterpret_cast<const uint32_t*>(block + 64) + lane;
      std::memcpy(&scale, block + lane * 4, 4);
      state = state_at(words, ring, 16, (s.group - 1 - c % s.group) * s.bits, s.state);
    } else {
      words = reinterpret_cast<const uint32_t*>(p) + size_t(c) * size_t(window + 1);
      std::memcpy(&scale, words + window, 4);
      state = state_at(words, window, 1, (15 - lane) * s.bits, s.state);
    }
    out[c] = trellis_value(state) * scale;
  }
}

}  // namespace clade

using namespace clade;

extern "C" {

size_t clade_weight_size_trellis(int n, int k, int bits, int block, int state, int axis) {
  size_t bytes = 0;
  guard("clade_weight_size_trellis", [&] { bytes = Weight::size(n, trellis_shape(n, k, bits, block, state, axis)); });
  return bytes;
}

int clade_weight_new_trellis(clade_weight* res, int n, int k, int bits, int block, int state, int axis) {
  return guard("clade_weight_new_trellis", [&] {
    res->ctx = new std::shared_ptr<Weight>(std::make_shared<Weight>(n, k, trellis_shape(n, k, bits, block, state, axis), bits));
  });
}

int clade_weight_set_trellis(clade_weight w, int row, int count, const uint32_t* words, const float* scales) {
  return guard("clade_weight_set_trellis", [&] {
    Weight& x = *weight_of(w);
    if (x.shape.format != Format::trellis) refuse("the weight is no trellis");
    const int unit = x.shape.axis ? 1 : x.shape.group;
    if (row < 0 || count < 0 || row > x.n - count || row % unit || count % unit)
      refuse("rows " + std::to_string(row) + " to " + std::to_string(row + count) + " of " + std::to_string(x.n));
    set_trellis(x, row, count, words, scales);
  });
}

}  // extern "C"
