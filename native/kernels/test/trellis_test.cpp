// Trellis-coded weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "everywhere.h"
#include "linear.h"
#include "trellis.h"
#include "weight.h"

namespace clade {

namespace {

std::vector<float> product(const std::shared_ptr<Weight>& w, const std::vector<float>& x, int rows) {
  LinearCall c;
  c.weights = {w};
  std::vector<float> out(size_t(rows) * size_t(w->n));
  c.run(DType::f32, x.data(), rows, nullptr, nullptr, out.data());
  return out;
}

// The value of a state as the code defines it, by a division.
float value(uint32_t state) {
  const uint32_t x = state * 34038481u + 76625530u;
  const int sum = int((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24));
  return float(sum - 510) / 147.800537109375f;
}

// Element t of a ring, bit by bit.
float element(const uint32_t* ring, int bits, int block, int state, int t) {
  uint32_t s = 0;
  for (int i = 0; i < state; i++) {
    const int at = ((block - 1 - t) * bits + i) % (block * bits);
    s |= (ring[at / 32] >> (at % 32) & 1) << i;
  }
  return value(s);
}

std::shared_ptr<Weight> trellis(int n, int k, int bits, int block, int state, int axis) {
  auto w = std::make_shared<Weight>(n, k, trellis_shape(n, k, bits, block, state, axis), bits);
  const int ring = block * bits / 32;
  std::vector<uint32_t> words(size_t(n) * size_t(k) / size_t(block) * size_t(ring));
  for (auto& word : words) word = rng();
  const auto scales = normals(size_t(n) * size_t(k) / size_t(block), 0.1f);
  set_trellis(*w, 0, n, words.data(), scales.data());
  std::vector<float> row(static_cast<size_t>(k));
  bool same = true;
  for (int r = 0; r < n; r++) {
    w->row(r, row.data());
    for (int c = 0; c < k; c++) {
      const int b = axis ? r * (k / block) + c / block : r / block * k + c;
      same = same && row[size_t(c)] == element(&words[size_t(b * ring)], bits, block, state, axis ? c % block : r % block) * scales[size_t(b)];
    }
  }
  expect(same, "trellis: " + std::to_string(bits) + " bits, axis " + std::to_string(axis) + ", blocks of " + std::to_string(block));
  return w;
}

}  // namespace

void trellises() {
  bool same = true;
  for (uint32_t s = 0; s < 1 << 16; s++) same = same && trellis_value(s) == value(s);
  for (int i = 0; i < 1 << 16; i++) {
    const uint32_t s = rng();
    same = same && trellis_value(s) == value(s);
  }
  expect(same, "a trellis' value is the nearest float of the quotient");
  struct Case {
    int bits, block, state;
  };
  for (const Case& c : {Case{1, 32, 20}, Case{2, 16, 16}, Case{2, 64, 12}, Case{3, 32, 16}, Case{4, 16, 8}, Case{4, 256, 16}, Case{5, 32, 32}, Case{8, 16, 9}})
    for (int axis : {0, 1}) {
      const auto w = axis ? trellis(33, 2 * c.block, c.bits, c.block, c.state, 1) : trellis(2 * c.block, 40, c.bits, c.block, c.state, 0);
      for (int rows : {1, 3, 11}) {
        const auto x = normals(size_t(rows * w->k));
        const std::string what = "trellis of " + std::to_string(c.bits) + " bits, axis " + std::to_string(axis) + ", " + std::to_string(rows) + " rows";
        everywhere(what, [&] { return product(w, x, rows); });
        // Columns are added in order, each product fused.
        std::vector<float> weights(static_cast<size_t>(w->k));
        const auto got = product(w, x, rows);
        bool equal = true;
        for (int n = 0; n < w->n; n++) {
          w->row(n, weights.data());
          for (int r = 0; r < rows; r++) {
            float acc = 0;
            for (int i = 0; i < w->k; i++) acc = std::fma(x[size_t(r * w->k + i)], weights[size_t(i)], acc);
            equal = equal && got[size_t(r * w->n + n)] == acc;
          }
        }
        expect(equal, what + ": the sum in order");
      }
    }
}

}  // namespace clade
