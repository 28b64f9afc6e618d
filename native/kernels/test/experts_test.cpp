// Mixtures of experts: against their definition in float64, at every level and any number of threads, and whatever other rows there are.
#include "experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "everywhere.h"

namespace clade {
namespace {

// A matrix in the kernels' layout, and its values.
struct Matrix {
  std::shared_ptr<Weight> packed;
  std::vector<float> values;
};

Matrix matrix(int n, int k, int bits) {
  Matrix m;
  if (!bits) {
    m.values = normals(size_t(n) * size_t(k), 0.1f);
    m.packed = std::make_shared<Weight>(n, k, dense_shape(n, k, CLADE_F32), 0);
    m.packed->set_dense(0, n, m.values.data());
    return m;
  }
  const int group = 32;
  m.packed = std::make_shared<Weight>(n, k, affine_shape(n, k, bits, group, CLADE_F32), bits);
  std::vector<uint32_t> words(size_t(n) * size_t(k) * size_t(bits) / 32);
  for (auto& w : words) w = rng();
  const auto scales = normals(size_t(n * k / group), 0.01f), biases = normals(size_t(n * k / group), 0.1f);
  m.packed->set_affine(0, n, words.data(), scales.data(), biases.data());
  m.values.resize(size_t(n) * size_t(k));
  for (int i = 0; i < n; i++) m.packed->row(i, m.values.data() + size_t(i) * size_t(k));
  return m;
}

struct Mixture {
  ExpertsCall call;
  Matrix gate, up, down;
};

Mixture mixture(int experts, int top_k, int k, int width, int bits, bool normalize) {
  Mixture m{{}, matrix(experts * width, k, bits), matrix(experts * width, k, bits), matrix(experts * k, width, bits)};
  m.call = {m.gate.packed, m.up.packed, m.down.packed, experts, top_k, normalize};
  return m;
}

double dot(const float* a, const double* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += double(a[i]) * b[i];
  return sum;
}

// One row in float64.
std::vector<double> definition(const Mixture& m, const float* x, const float* logits, const float* residual) {
  const int n = m.call.experts, k = m.call.k(), width = m.call.width();
  std::vector<double> p(logits, logits + n), in(x, x + k), out(residual, residual + k), h(static_cast<size_t>(width));
  double sum = 0, picked = 0;
  for (double& v : p) sum += v = std::exp(v);
  for (double& v : p) v /= sum;
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a > b); });
  order.resize(size_t(m.call.top_k));
  for (int e : order) picked += p[size_t(e)];
  for (int e : order) {
    for (int w = 0; w < width; w++) {
      const size_t row = size_t(e * width + w) * size_t(k);
      const double g = dot(m.gate.values.data() + row, in.data(), k);
      h[size_t(w)] = g / (1 + std::exp(-g)) * dot(m.up.values.data() + row, in.data(), k);
    }
    for (int c = 0; c < k; c++)
      out[size_t(c)] += dot(m.down.values.data() + size_t(e * k + c) * size_t(width), h.data(), width) * p[size_t(e)] / (m.call.normalize ? picked : 1);
  }
  return out;
}

// A mixture with its norm and router: the bits of the three, at every level, whatever other rows there are.
void whole_mixtures() {
  constexpr int k = 64, n = 8;
  for (DType t : {DType::f32, DType::bf16})
    for (int rows : {1, 9}) {
      const Mixture m = mixture(n, 2, k, 32, 4, true);
      MixtureCall call{{{matrix(n, k, 8).packed}}, m.call};
      call.router.norm_eps = 1e-6f;
      auto stored = [&](const std::vector<float>& v) {
        std::vector<uint8_t> out(v.size() * (t == DType::f32 ? 4 : 2));
        level().narrow(t, v.data(), v.size(), out.data());
        return out;
      };
      const auto h = stored(normals(size_t(rows * k))), norm = stored(normals(k));
      auto run = [&] {
        std::vector<uint8_t> out(h.size());
        call.run(t, h.data(), rows, norm.data(), out.data());
        return out;
      };
      auto apart = [&] {
        std::vector<float> x(static_cast<size_t>(k)), w(static_cast<size_t>(k));
        std::vector<uint8_t> normed(h.size()), logits(h.size() / k * n), out(h.size());
        const size_t line = h.size() / size_t(rows);
        level().widen(t, norm.data(), k, w.data());
        for (int r = 0; r < rows; r++) {
          level().widen(t, h.data() + size_t(r) * line, k, x.data());
          norm_row(t, x.data(), w.data(), 1e-6f, k, x.data());
          level().narrow(t, x.data(), k, normed.data() + size_t(r) * line);
        }
        call.router.run(t, normed.data(), rows, nullptr, nullptr, logits.data());
        call.experts.run(t, normed.data(), logits.data(), rows, h.data(), out.data());
        return out;
      };
      const std::string what = "a mixture of " + std::to_string(rows) + " rows with its router";
      clade_kernels_set_level("");
      expect(run() == apart(), what + ": other bits than the operations");
      everywhere(what, run);
    }
}

}  // namespace

void experts() {
  whole_mixtures();
  for (int bits : {0, 4, 8})
    for (auto [n, top_k, rows] : {std::array{4, 1, 3}, {8, 2, 40}, {16, 16, 9}}) {
      const int k = 64, width = 32;
      const Mixture m = mixture(n, top_k, k, width, bits, top_k > 1);
      auto x = normals(size_t(rows * k)), logits = normals(size_t(rows * n)), residual = normals(size_t(rows * k));
      std::fill(logits.begin() + n, logits.begin() + 2 * n, 0.5f);  // the second row likes all of them alike
      auto run = [&](DType t, int first, int count) {
        const size_t size = t == DType::f32 ? 4 : 2;
        auto some = [&](const std::vector<float>& v, int ld) {
          std::vector<uint8_t> out(size_t(count * ld) * size);
          level().narrow(t, v.data() + first * ld, size_t(count * ld), out.data());
          return out;
        };
        std::vector<uint8_t> out(size_t(count * k) * size);
        m.call.run(t, some(x, k).data(), some(logits, n).data(), count, some(residual, k).data(), out.data());
        return out;
      };
      const std::string what = std::to_string(top_k) + " of " + std::to_string(n) + " experts, bits " + std::to_string(bits);
      clade_kernels_set_level("");
      const auto whole = run(DType::f32, 0, rows);
      double top = 0, apart = 0;
      for (int r = 0; r < rows; r++) {
        const auto want = definition(m, x.data() + r * k, logits.data() + r * n, residual.data() + r * k);
        for (int c = 0; c < k; c++) {
          top = std::max(top, std::fabs(want[size_t(c)]));
          apart = std::max(apart, std::fabs(want[size_t(c)] - double(reinterpret_cast<const float*>(whole.data())[r * k + c])));
        }
      }
      expect(apart <= 1e-5 * top, what + ": off by " + std::to_string(apart));
      for (DType t : {DType::f32, DType::bf16, DType::f16}) {
        std::vector<uint8_t> single;
        for (int r = 0; r < rows; r++) {
          const auto one = run(t, r, 1);
          single.insert(single.end(), one.begin(), one.end());
        }
        expect(single == run(t, 0, rows), what + " row by row");
        everywhere(what, [&] { return run(t, 0, rows); });
      }
    }
}

}  // namespace clade
