#include "experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "linear.h"
#include "panels.h"
#include "pool.h"

namespace clade {

namespace {

// What one row asks of one expert.
struct Pick {
  int expert = 0, row = 0;
  float score = 0;
};

void round_to(DType dtype, float* v, size_t n) {
  if (dtype == DType::f32) return;
  std::vector<uint16_t> h(n);
  level().narrow(dtype, v, n, h.data());
  level().widen(dtype, h.data(), n, v);
}

// The top_k likeliest experts of a row, in ascending order of (probability, number): of equals those with the higher number win, as
// in MLX's argpartition. Probabilities are rounded to dtype before they are compared, as a graph of ops would.
void route(const ExpertsCall& c, DType dtype, float* p, int row, Pick* picks) {
  const int n = c.experts;
  const float top = *std::max_element(p, p + n);
  float sum = 0;
  for (int i = 0; i < n; i++) sum += p[i] = std::exp(p[i] - top);
  for (int i = 0; i < n; i++) p[i] /= sum;
  round_to(dtype, p, size_t(n));
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  auto above = [p](int a, int b) { return p[a] > p[b] || (p[a] == p[b] && a > b); };
  std::partial_sort(order.begin(), order.begin() + c.top_k, order.end(), above);
  float total = 0;
  for (int i = 0; i < c.top_k; i++) {
    picks[i] = {order[size_t(c.top_k - 1 - i)], row, p[order[size_t(c.top_k - 1 - i)]]};
    total += picks[i].score;
  }
  if (!c.normalize) return;
  round_to(dtype, &total, 1);
  for (int i = 0; i < c.top_k; i++) {
    picks[i].score /= total;
    round_to(dtype, &picks[i].score, 1);
  }
}

// Consecutive sorted picks of one expert, and panels of it.
struct Task {
  int expert, first, count, begin, end;
};

// Cuts every expert's panels into pieces for the pool; rows are cut so that they stay in the second-level cache.
std::vector<Task> tasks_of(const std::vector<int>& starts, int panels, int columns) {
  constexpr int kBlockFloats = 192 * 1024;
  const int block = std::max(48, kBlockFloats / columns), experts = int(starts.size()) - 1;
  int busy = 0;
  for (int e = 0; e < experts; e++) busy += starts[size_t(e) + 1] > starts[size_t(e)];
  const int piece = std::min(panels, piece_of(panels * std::max(busy, 1), 4));
  std::vector<Task> out;
  for (int e = 0; e < experts; e++)
    for (int first = starts[size_t(e)]; first < starts[size_t(e) + 1]; first += block)
      for (int b = 0; b < panels; b += piece)
        out.push_back({e, first, std::min(block, starts[size_t(e) + 1] - first), b, std::min(panels, b + piece)});
  return out;
}

}  // namespace

void ExpertsCall::run(DType dtype, const void* x, const void* logits, int rows, const void* residual, void* out) const {
  if (rows == 0) return;
  const Level& l = level();
  const size_t size = dtype == DType::f32 ? 4 : 2, k = size_t(this->k()), w = size_t(width());
  const size_t n = size_t(rows) * size_t(top_k);
  std::vector<Pick> picks(n);
  std::vector<float> p(static_cast<size_t>(experts));
  for (int r = 0; r < rows; r++) {
    l.widen(dtype, static_cast<const uint8_t*>(logits) + size_t(r) * size_t(experts) * size, size_t(experts), p.data());
    route(*this, dtype, p.data(), r, picks.data() + size_t(r) * size_t(top_k));
  }
  // places[i] is where pick i stands among those sorted by expert.
  std::vector<int> starts(size_t(experts) + 1, 0), places(n), next;
  for (const Pick& pick : picks) starts[size_t(pick.expert) + 1]++;
  for (int e = 0; e < experts; e++) starts[size_t(e) + 1] += starts[size_t(e)];
  next.assign(starts.begin(), starts.end() - 1);
  float* gathered = scratch(kRows, n * k);
  for (size_t i = 0; i < n; i++) {
    places[i] = next[size_t(picks[i].expert)]++;
    l.widen(dtype, static_cast<const uint8_t*>(x) + size_t(picks[i].row) * k * size, k, gathered + size_t(places[i]) * k);
  }

  const std::vector<QuantRows> exact;
  float* hidden = scratch(kHidden, n * w);  // silu(gate) * up, rounded to dtype below
  const int wide_panels = int(w) / kLanes, out_panels = int(k) / kLanes;
  const std::vector<Task> up_tasks = tasks_of(starts, wide_panels, int(k)), down_tasks = tasks_of(starts, out_panels, int(w));
  std::vector<uint16_t> narrow(dtype == DType::f32 ? 0 : n * w);
  uint8_t* act = dtype == DType::f32 ? reinterpret_cast<uint8_t*>(hidden) : reinterpret_cast<uint8_t*>(narrow.data());
  const Sink act_sink{dtype, Gate::silu, nullptr, act, w};
  Pool::get().run(int(up_tasks.size()), [&](int i) {
    const Task& t = up_tasks[size_t(i)];
    const int base = t.expert * wide_panels;
    gated_panels(*gate, *up, base + t.begin, base + t.end, {gathered, &exact, t.first, t.count}, -base * kLanes, act_sink);
  });
  if (dtype != DType::f32) l.widen(dtype, act, n * w, hidden);
  float* products = gathered;  // no longer needed
  const Sink down_sink{DType::f32, Gate::none, nullptr, reinterpret_cast<uint8_t*>(products), k};
  Pool::get().run(int(down_tasks.size()), [&](int i) {
    const Task& t = down_tasks[size_t(i)];
    const int base = t.expert * out_panels;
    plain_panels(*down, base + t.begin, base + t.end, {hidden, &exact, t.first, t.count}, -base * kLanes, down_sink);
  });

  const int piece = piece_of(rows, 1);
  Pool::get().run((rows + piece - 1) / piece, [&](int i) {
    std::vector<float> sum(k), more(residual ? k : 0);
    for (int r = i * piece; r < std::min(rows, (i + 1) * piece); r++) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int j = 0; j < top_k; j++) {
        const size_t at = size_t(r) * size_t(top_k) + size_t(j);
        const float score = picks[at].score;
        const float* v = products + size_t(places[at]) * k;
        for (size_t c = 0; c < k; c++) sum[c] += v[c] * score;
      }
      const size_t row = size_t(r) * k * size;
      if (residual) {
        round_to(dtype, sum.data(), k);
        l.widen(dtype, static_cast<const uint8_t*>(residual) + row, k, more.data());
        for (size_t c = 0; c < k; c++) sum[c] += more[c];
      }
      l.narrow(dtype, sum.data(), k, static_cast<uint8_t*>(out) + row);
    }
  });
}

void MixtureCall::run(DType dtype, const void* h, int rows, const void* norm, void* out) const {
  const Level& l = level();
  const size_t k = size_t(experts.k()), line = k * (dtype == DType::f32 ? 4 : 2);
  std::vector<uint8_t> x(size_t(rows) * line), logits(size_t(rows) * size_t(experts.experts) * (dtype == DType::f32 ? 4 : 2));
  std::vector<float> weight(k);
  l.widen(dtype, norm, k, weight.data());
  const int piece = rows < 8 ? rows : piece_of(rows, 1);
  Pool::get().run((rows + piece - 1) / std::max(1, piece), [&](int i) {
    std::vector<float> row(k);
    for (int r = i * piece; r < std::min(rows, (i + 1) * piece); r++) {
      l.widen(dtype, static_cast<const uint8_t*>(h) + size_t(r) * line, k, row.data());
      norm_row(dtype, row.data(), weight.data(), router.norm_eps, int(k), row.data());
      l.narrow(dtype, row.data(), k, x.data() + size_t(r) * line);
    }
  });
  router.run(dtype, x.data(), rows, nullptr, nullptr, logits.data());
  experts.run(dtype, x.data(), logits.data(), rows, h, out);
}

}  // namespace clade
