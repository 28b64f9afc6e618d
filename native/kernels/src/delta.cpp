#include "delta.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "linear.h"
#include "noise.h"
#include "panels.h"
#include "pool.h"

namespace clade {

namespace {

// Tokens that are prepared at a time, and the columns of a state that stay in the first-level cache meanwhile.
constexpr int kTokens = 32, kColumns = 64;

constexpr size_t padded(size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// What the rows of all segments share.
struct Shared {
  const DeltaCall& call;
  DType dtype;
  const uint8_t *conv, *norm;
  std::vector<float> rate, bias;  // of the decay's exponent: exp(a_log), dt_bias

  size_t size() const { return dtype == DType::f32 ? 4 : 2; }
};

// Some value heads of one key head, through the rows of one segment.
class Task {
 public:
  Task(const Shared& s, const DeltaSegment& segment, const uint8_t* x, uint8_t* out, int key_head, int first, int count)
      : s_(s), call_(s.call), segment_(segment), x_(x), out_(out), first_(key_head * call_.group() + first), count_(count) {
    const size_t keys = size_t(call_.key_heads) * size_t(call_.key_dim), k = size_t(call_.key_dim), v = size_t(call_.value_dim);
    slices_ = {{size_t(key_head) * k, 0, k, first == 0}, {keys + size_t(key_head) * k, padded(k), k, first == 0}};
    for (int h = 0; h < count; h++) slices_.push_back({2 * keys + size_t(first_ + h) * v, 2 * padded(k) + size_t(h) * padded(v), v, true});
    ld_ = 2 * padded(k) + size_t(count) * padded(v);
    cut_ = segment.rows > 1 || v % kLanes;
  }

  void run() {
    divide_scratch();
    const size_t before = size_t(call_.taps - 1);
    for (const Slice& c : slices_) {
      for (size_t j = 0; j < before; j++) widen(segment_.history, j, size_t(call_.channels()), c, window_ + j * ld_);
      for (size_t j = 0; j <= before; j++) widen(s_.conv, j, size_t(call_.channels()), c, taps_ + j * ld_);
    }
    widen(s_.norm, size_t(call_.value_dim), norm_);
    if (cut_) load(segment_.state);
    int row = 0;
    for (const DeltaAfter& after : segment_.after) {
      while (row < after.row) {
        const int n = std::min(kTokens, after.row - row);
        block(row, n);
        row += n;
      }
      leave(after);
    }
  }

 private:
  // Columns of a row that the task reads, where they lie in its own rows, and whether the task leaves their history.
  struct Slice {
    size_t from, to, n;
    bool own;
  };

  void divide_scratch() {
    const size_t k = size_t(call_.key_dim), v = padded(size_t(call_.value_dim)), taps = size_t(call_.taps);
    const size_t state = cut_ ? size_t(count_) * k * v : 0, tokens = size_t(std::clamp(segment_.rows, 1, kTokens));
    const size_t steps = padded(tokens);  // exponentials come sixteen at a time
    float* at = scratch(kDelta, ld_ * (2 * taps - 1 + 2 * tokens) + state + tokens * v + 4 * steps + 3 * v);
    auto take = [&](size_t n) {
      float* p = at;
      at += n;
      return p;
    };
    state_ = take(state);
    taps_ = take(taps * ld_);
    window_ = take((taps - 1 + tokens) * ld_);
    mixed_ = take(tokens * ld_);
    y_ = take(tokens * v);
    norm_ = take(v);
    gate_ = take(v);
    result_ = take(v);
    decay_ = take(steps);
    rate_ = take(steps);
    exps_ = take(steps);
    steps_ = take(steps);
    if (k % kLanes || size_t(call_.value_dim) % kLanes) std::fill(taps_, y_, 0.0f);  // what lies between the slices is never written
  }

  void widen(const void* x, size_t n, float* out) const { level().widen(s_.dtype, x, n, out); }

  // The slice of a row of `width` columns.
  void widen(const void* rows, size_t row, size_t width, const Slice& c, float* out) const {
    widen(static_cast<const uint8_t*>(rows) + (row * width + c.from) * s_.size(), c.n, out + c.to);
  }

  // The state's columns in pieces that lie in one place each: [piece][key_dim][columns].
  template <class F>
  void pieces(int head, const F& f) const {
    const int v = int(padded(size_t(call_.value_dim)));
    float* at = state_ + size_t(head) * size_t(call_.key_dim) * size_t(v);
    for (int c = 0; c < v; c += kColumns) {
      const int n = std::min(kColumns, v - c);
      f(c, n, at);
      at += size_t(call_.key_dim) * size_t(n);
    }
  }

  size_t state_at(int head) const { return size_t(first_ + head) * size_t(call_.key_dim) * size_t(call_.value_dim); }

  void load(const float* state) const {
    for (int h = 0; h < count_; h++)
      pieces(h, [&](int c, int n, float* to) {
        const int some = std::min(n, call_.value_dim - c);
        for (int i = 0; i < call_.key_dim; i++) {
          std::fill(to + some, to + n, 0.0f);
          std::memcpy(to, state + state_at(h) + size_t(i) * size_t(call_.value_dim) + c, size_t(some) * 4);
          to += n;
        }
      });
  }

  // Leaves what comes behind the rows of `after`.
  void leave(const DeltaAfter& after) const {
    const size_t before = size_t(call_.taps - 1), channels = size_t(call_.channels());
    for (size_t j = 0; j < before; j++) {
      const size_t row = size_t(after.row) + j;  // of the history and x
      const uint8_t* from = row < before ? static_cast<const uint8_t*>(segment_.history) + row * channels * s_.size()
                                         : x_ + (row - before) * size_t(call_.width()) * s_.size();
      for (const Slice& c : slices_)
        if (c.own)
          std::memcpy(static_cast<uint8_t*>(after.history) + (j * channels + c.from) * s_.size(), from + c.from * s_.size(), c.n * s_.size());
    }
    if (!cut_) {
      if (after.row == 0 && after.state != segment_.state)
        std::memcpy(after.state + state_at(0), segment_.state + state_at(0), size_t(count_) * size_t(call_.key_dim * call_.value_dim) * 4);
      return;
    }
    for (int h = 0; h < count_; h++)
      pieces(h, [&](int c, int n, const float* from) {
        const int some = std::min(n, call_.value_dim - c);
        for (int i = 0; i < call_.key_dim; i++, from += n)
          std::memcpy(after.state + state_at(h) + size_t(i) * size_t(call_.value_dim) + c, from, size_t(some) * 4);
      });
  }

  // Rows [row, row + n) of the segment.
  void block(int row, int n) const {
    const Level& l = level();
    const size_t before = size_t(call_.taps - 1), width = size_t(call_.width());
    for (int t = 0; t < n; t++)
      for (const Slice& c : slices_) widen(x_, size_t(row + t), width, c, window_ + (before + size_t(t)) * ld_);
    l.convolve_silu(window_, ld_, taps_, call_.taps, n, int(ld_), mixed_);
    std::memmove(window_, window_ + size_t(n) * ld_, before * ld_ * 4);
    const float root = 1 / std::sqrt(float(call_.key_dim));
    for (int t = 0; t < n; t++) {
      unit(mixed_ + size_t(t) * ld_, root * root);
      unit(mixed_ + size_t(t) * ld_ + padded(size_t(call_.key_dim)), root);
    }
    for (int h = 0; h < count_; h++) head(row, n, h);
  }

  // v / its root mean square * scale.
  void unit(float* v, float scale) const {
    const float mean = level().sum_squares(v, call_.key_dim) / float(call_.key_dim) + call_.length_eps / float(call_.key_dim);
    level().scale_mul(v, scale / std::sqrt(mean), nullptr, call_.key_dim, v);
  }

  // Value head h of the task, whose queries, keys and values are prepared.
  void head(int row, int n, int h) const {
    const Level& l = level();
    const size_t k = padded(size_t(call_.key_dim)), v = padded(size_t(call_.value_dim)), width = size_t(call_.width());
    rates(row, n, h);
    DeltaBlock d{nullptr, nullptr, 0, 0, call_.key_dim, 0, n, mixed_, mixed_ + k, nullptr, ld_, decay_, rate_, nullptr, v};
    const float* values = mixed_ + 2 * k + size_t(h) * v;
    if (!cut_) {
      d.from = segment_.state + state_at(h);
      d.to = segment_.after.back().state + state_at(h);
      d.ldf = d.ldt = v;
      d.columns = int(v);
      d.values = values;
      d.out = y_;
      l.delta_steps(d);
    } else {
      pieces(h, [&](int c, int columns, float* state) {
        d.from = d.to = state;
        d.ldf = d.ldt = size_t(columns);
        d.columns = columns;
        d.values = values + c;
        d.out = y_ + c;
        l.delta_steps(d);
      });
    }
    const size_t n_values = size_t(call_.values()), at = size_t(first_ + h) * size_t(call_.value_dim);
    for (int t = 0; t < n; t++) {
      const float* y = y_ + size_t(t) * v;
      const float mean = l.sum_squares(y, call_.value_dim) / float(call_.value_dim) + call_.norm_eps;
      l.scale_mul(y, 1 / std::sqrt(mean), norm_, call_.value_dim, result_);
      widen(x_ + (size_t(row + t) * width + size_t(call_.channels()) + at) * s_.size(), size_t(call_.value_dim), gate_);
      l.silu_mul(gate_, result_, call_.value_dim, result_);
      l.narrow(s_.dtype, result_, size_t(call_.value_dim), out_ + (size_t(row + t) * n_values + at) * s_.size());
    }
  }

  // sigmoid(b), and exp(-exp(a_log) softplus(a + dt_bias)).
  void rates(int row, int n, int h) const {
    const Level& l = level();
    const size_t width = size_t(call_.width()), head = size_t(first_ + h), b = size_t(call_.channels() + call_.values()) + head;
    float *e = exps_, *a = steps_;
    for (int t = 0; t < n; t++) {
      const uint8_t* x = x_ + (size_t(row + t) * width + b) * s_.size();
      float v;
      widen(x, 1, &v);
      e[t] = -v;
      widen(x + size_t(call_.value_heads) * s_.size(), 1, &v);
      a[t] = v + s_.bias[head];
    }
    l.exp_sum(e, 0, n, e);
    for (int t = 0; t < n; t++) {
      rate_[t] = 1 / (1 + e[t]);
      e[t] = -std::fabs(a[t]);
    }
    l.exp_sum(e, 0, n, e);
    for (int t = 0; t < n; t++) e[t] = -s_.rate[head] * float(std::max(a[t], 0.0f) + log_of(1.0 + double(e[t])));
    l.exp_sum(e, 0, n, decay_);
  }

  const Shared& s_;
  const DeltaCall& call_;
  const DeltaSegment& segment_;
  const uint8_t* x_;
  uint8_t* out_;
  int first_, count_;
  std::vector<Slice> slices_;
  size_t ld_;
  bool cut_;  // the state is taken into scratch, in pieces; else it is read and written where it lies
  float *state_, *taps_, *window_, *mixed_, *y_, *norm_, *gate_, *result_, *decay_, *rate_, *exps_, *steps_;
};

}  // namespace

void DeltaCall::run(DType dtype, const void* x, const std::vector<DeltaSegment>& segments, const void* conv, const float* a_log,
                    const float* dt_bias, const void* norm, void* out) const {
  Shared s{*this, dtype, static_cast<const uint8_t*>(conv), static_cast<const uint8_t*>(norm), {}, {}};
  s.rate.assign(padded(size_t(value_heads)), 0.0f);
  std::copy(a_log, a_log + value_heads, s.rate.begin());
  level().exp_sum(s.rate.data(), 0, value_heads, s.rate.data());
  s.bias.assign(dt_bias, dt_bias + value_heads);

  // Value heads of one key head go together while there is enough for every thread: its queries and keys are prepared once.
  const int together = int(segments.size()) * key_heads >= 2 * Pool::get().threads() ? group() : 1;
  std::vector<Task> tasks;
  size_t row = 0;
  std::vector<std::pair<const DeltaSegment*, size_t>> order;
  for (const DeltaSegment& g : segments) {
    order.emplace_back(&g, row);
    row += size_t(g.rows);
  }
  std::stable_sort(order.begin(), order.end(), [](auto& a, auto& b) { return a.first->rows > b.first->rows; });
  for (const auto& [g, first] : order)
    for (int k = 0; k < key_heads; k++)
      for (int h = 0; h < group(); h += together)
        tasks.emplace_back(s, *g, static_cast<const uint8_t*>(x) + first * size_t(width()) * s.size(),
                           static_cast<uint8_t*>(out) + first * size_t(values()) * s.size(), k, h, together);
  Pool::get().run(int(tasks.size()), [&](int i) { tasks[size_t(i)].run(); });
}

}  // namespace clade
