#include "linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "panels.h"
#include "pool.h"

namespace clade {

namespace {

// Floats of x that one pass over the panels keeps in the second-level cache.
constexpr size_t kRowBlockFloats = 192 * 1024;

struct Buffer {
  float* p = nullptr;
  size_t n = 0;
  ~Buffer() { std::free(p); }
};

void add_bias(const Weight& w, int panel, float* v) {
  if (w.bias.empty()) return;
  const float* b = w.bias.data() + size_t(panel) * kLanes;
  for (int i = 0; i < kLanes; i++) v[i] += b[i];
}

bool same_shape(const PanelShape& a, const PanelShape& b) {
  return a.format == b.format && a.scale == b.scale && a.group == b.group && a.bits == b.bits && a.state == b.state && a.axis == b.axis;
}

// A panel, and the rows of x that its products round; null for exact ones.
struct Operand {
  PanelShape shape;
  const uint8_t* panel;
  const QuantRows* rounded;
};

// The next panel in its place is `step` behind it.
Operand operand(const Weight& w, int panel, int step, const Rows& rows) {
  Operand o{w.shape, w.panel(panel), rows.rounded_for(w)};
  o.shape.skip = size_t(step - 1) * w.panel_bytes;
  return o;
}

// Multiplies rows of x with `count` panels (1, 2, 4) into out [rows][count * 16].
void multiply(const Operand* operands, int count, const Rows& r, float* out) {
  const Level& l = level();
  const size_t ldo = size_t(count) * kLanes;
  bool same = true, exact = true;
  PanelShape shapes[4];
  const uint8_t* panels[4];
  for (int i = 0; i < count; i++) {
    same = same && same_shape(operands[0].shape, operands[i].shape) && operands[0].rounded == operands[i].rounded;
    exact = exact && !operands[i].rounded;
    shapes[i] = operands[i].shape;
    panels[i] = operands[i].panel;
  }
  if (!same && !exact) {
    for (int i = 0; i < count; i++) {
      float* part = scratch(kPart, size_t(r.count) * kLanes);
      multiply(operands + i, 1, r, part);
      for (int m = 0; m < r.count; m++) std::memcpy(out + size_t(m) * ldo + i * kLanes, part + m * kLanes, kLanes * 4);
    }
    return;
  }
  if (!exact) return l.dot(shapes[0], panels, count, *operands[0].rounded, r.first, r.count, out, ldo);
  const int rows = r.count;
  const size_t ldx = size_t(shapes[0].k);
  const float* x = r.x + size_t(r.first) * ldx;
  if (rows <= l.max_direct_rows && same) return l.tile(shapes[0], panels, count, x, ldx, rows, out, ldo);
  if (rows <= l.max_direct_rows) {
    for (int i = 0; i < count; i++) l.tile(shapes[i], panels + i, 1, x, ldx, rows, out + i * kLanes, ldo);
    return;
  }
  const int k = shapes[0].k;
  const PanelShape f{Format::f32, Scale::f32, k, 0, 64};
  float* decoded = scratch(kPanels, size_t(k) * ldo);
  const uint8_t* p[4];
  for (int i = 0; i < count; i++) {
    p[i] = reinterpret_cast<const uint8_t*>(decoded + size_t(i) * size_t(k) * kLanes);
    l.decode(shapes[i], panels[i], decoded + size_t(i) * size_t(k) * kLanes);
  }
  l.tile(f, p, count, x, ldx, rows, out, ldo);
}

}  // namespace

void plain_panels(const Weight& w, int begin, int end, const Rows& r, int col, const Sink& sink) {
  const int rows = r.count, step = rows <= level().max_direct_rows ? direct_panels(rows) : 2;
  for (int p = begin; p < end;) {
    int count = std::min(step, end - p);
    if (count == 3) count = 2;
    Operand operands[4];
    for (int i = 0; i < count; i++) operands[i] = operand(w, p + i, count, r);
    float* t = scratch(kTile, size_t(rows) * size_t(count) * kLanes);
    multiply(operands, count, r, t);
    for (int m = 0; m < rows; m++)
      for (int i = 0; i < count; i++) {
        float* v = t + (size_t(m) * size_t(count) + size_t(i)) * kLanes;
        add_bias(w, p + i, v);
        sink.put(v, r.first + m, col + (p + i) * kLanes, std::min(kLanes, w.n - (p + i) * kLanes));
      }
    p += count;
  }
}

void gated_panels(const Weight& gate, const Weight& up, int begin, int end, const Rows& r, int col, const Sink& sink) {
  const Level& l = level();
  const int rows = r.count, step = rows <= l.max_direct_rows ? direct_panels(rows) / 2 : 1;
  for (int p = begin; p < end;) {
    int pairs = std::min(step, end - p);
    Operand operands[4];
    for (int i = 0; i < pairs; i++) {
      operands[2 * i] = operand(gate, p + i, pairs, r);
      operands[2 * i + 1] = operand(up, p + i, pairs, r);
    }
    float* t = scratch(kTile, size_t(rows) * size_t(pairs) * 2 * kLanes);
    multiply(operands, 2 * pairs, r, t);
    for (int m = 0; m < rows; m++)
      for (int i = 0; i < pairs; i++) {
        float* g = t + (size_t(m) * size_t(pairs) + size_t(i)) * 2 * kLanes;
        float* u = g + kLanes;
        add_bias(gate, p + i, g);
        add_bias(up, p + i, u);
        sink.round(g);
        sink.round(u);
        (sink.gate == Gate::silu ? l.silu_mul : l.gelu_tanh_mul)(g, u, kLanes, g);
        sink.put(g, r.first + m, col + (p + i) * kLanes, std::min(kLanes, gate.n - (p + i) * kLanes));
      }
    p += pairs;
  }
}

float* scratch(int slot, size_t n) {
  static thread_local Buffer buffers[kSlots];
  Buffer& b = buffers[slot];
  if (b.n < n) {
    std::free(b.p);
    b.n = 0;
    size_t bytes = (n * 4 + 63) / 64 * 64;
    b.p = static_cast<float*>(std::aligned_alloc(64, bytes));
    if (!b.p) throw std::bad_alloc();
    b.n = bytes / 4;
  }
  return b.p;
}

void norm_row(DType dtype, const float* x, const float* norm, float eps, int k, float* out) {
  const Level& l = level();
  const float inv = 1.0f / std::sqrt(l.sum_squares(x, k) / float(k) + eps);
  if (dtype == DType::f32) return l.scale_mul(x, inv, norm, k, out);
  uint16_t h[256];
  l.scale_mul(x, inv, nullptr, k, out);
  for (int i = 0; i < k; i += 256) {
    size_t n = size_t(std::min(256, k - i));
    l.narrow(dtype, out + i, n, h);
    l.widen(dtype, h, n, out + i);
    l.scale_mul(out + i, 1.0f, norm + i, int(n), out + i);
    l.narrow(dtype, out + i, n, h);
    l.widen(dtype, h, n, out + i);
  }
}

int LinearCall::width() const {
  if (gate != Gate::none) return weights[0]->n;
  int n = 0;
  for (const auto& w : weights) n += w->n;
  return n;
}

// Widths of groups that the weights want x rounded for, with room for the results.
std::vector<QuantRows> LinearCall::rounded(int rows) const {
  std::vector<QuantRows> out;
  size_t bytes = 0;
  auto size = [&](const QuantRows& q) { return size_t(rows) * (size_t(q.k) + 4 * size_t(q.k / q.block + q.k / q.group)); };
  for (const auto& w : weights) {
    const int g = w->shape.group;
    if (!w->int8 || std::any_of(out.begin(), out.end(), [&](const QuantRows& q) { return q.group == g; })) continue;
    out.push_back({k(), dot_block(g), g, nullptr, nullptr, nullptr});
    bytes += size(out.back());
  }
  // Codes are whole groups of eight: everything stays aligned.
  uint8_t* at = reinterpret_cast<uint8_t*>(bytes ? scratch(kRounded, bytes / 4) : nullptr);
  for (QuantRows& q : out) {
    q.codes = reinterpret_cast<const int8_t*>(at);
    q.scales = reinterpret_cast<const float*>(at + size_t(rows) * size_t(q.k));
    q.sums = q.scales + size_t(rows) * size_t(q.k / q.block);
    at += size(q);
  }
  return out;
}

// x as floats, with the norm, and rounded where a weight wants it. The floats are x itself where nothing changes them.
const float* LinearCall::prepare(DType dtype, const void* x, int rows, const void* norm,
                                 const std::vector<QuantRows>& rounded) const {
  const Level& l = level();
  const int k = this->k();
  const bool widens = dtype != DType::f32 || norm;
  const float* xs = static_cast<const float*>(x);
  if (!widens && rounded.empty()) return xs;
  float* dst = widens ? scratch(kRows, size_t(rows) * size_t(k)) : nullptr;
  float* nw = norm ? scratch(kNorm, size_t(k)) : nullptr;
  if (nw) l.widen(dtype, norm, size_t(k), nw);
  const size_t size = dtype == DType::f32 ? 4 : 2;
  auto one = [&](int r) {
    const size_t at = size_t(r) * size_t(k);
    if (widens) l.widen(dtype, static_cast<const uint8_t*>(x) + at * size, size_t(k), dst + at);
    if (nw) norm_row(dtype, dst + at, nw, norm_eps, k, dst + at);
    for (const QuantRows& q : rounded)
      l.quantize((widens ? dst : xs) + at, k, q.block, q.group, const_cast<int8_t*>(q.codes) + at,
                 const_cast<float*>(q.scales) + at / size_t(q.block), const_cast<float*>(q.sums) + at / size_t(q.group));
  };
  if (rows < 8) {
    for (int r = 0; r < rows; r++) one(r);
  } else {
    const int piece = piece_of(rows, 1);
    Pool::get().run((rows + piece - 1) / piece, [&](int i) {
      for (int r = i * piece; r < std::min(rows, (i + 1) * piece); r++) one(r);
    });
  }
  return widens ? dst : xs;
}

namespace {

// Every product of the weights with the rows xs, where the sink wants them; from column `column` of it on.
void products(const std::vector<std::shared_ptr<const Weight>>& weights, const float* xs, const std::vector<QuantRows>& codes, int rows,
              const Sink& sink, int column = 0) {
  const int block = int(std::max<size_t>(48, kRowBlockFloats / size_t(weights[0]->k)));
  int total = 0;
  for (const auto& w : weights) total += w->panels();
  if (sink.gate != Gate::none) total = weights[0]->panels();

  // A piece is whole tiles; one that decodes its panels first does it for all rows of a block.
  const int piece = piece_of(total, 2);
  Pool::get().run((total + piece - 1) / piece, [&](int i) {
    const int b = i * piece, e = std::min(total, b + piece);
    for (int first_row = 0; first_row < rows; first_row += block) {
      const Rows r{xs, &codes, first_row, std::min(block, rows - first_row)};
      if (sink.gate != Gate::none) {
        gated_panels(*weights[0], *weights[1], b, e, r, 0, sink);
        continue;
      }
      int first = 0, col = column;
      for (const auto& w : weights) {
        int wb = std::clamp(b - first, 0, w->panels()), we = std::clamp(e - first, 0, w->panels());
        if (wb < we) plain_panels(*w, wb, we, r, col, sink);
        first += w->panels();
        col += w->n;
      }
    }
  });
}

}  // namespace

void LinearCall::run(DType dtype, const void* x, int rows, const void* norm, const void* residual, void* out) const {
  if (rows == 0) return;
  const std::vector<QuantRows> codes = rounded(rows);
  const float* xs = prepare(dtype, x, rows, norm, codes);
  if (!updates.empty()) return run_updated(dtype, xs, codes, rows, residual, out);
  products(weights, xs, codes, rows, {dtype, gate, static_cast<const uint8_t*>(residual), static_cast<uint8_t*>(out), size_t(width())});
}

// The products as floats side by side, the updates added to them row by row in their order, and then what a sink does to each value.
void LinearCall::run_updated(DType dtype, const float* xs, const std::vector<QuantRows>& codes, int rows, const void* residual,
                             void* out) const {
  std::vector<int> column{0};
  for (const auto& w : weights) column.push_back(column.back() + w->n);
  const size_t wide = size_t(column.back());
  float* sums = scratch(kWide, size_t(rows) * wide);
  products(weights, xs, codes, rows, {DType::f32, Gate::none, nullptr, reinterpret_cast<uint8_t*>(sums), wide});
  const std::vector<QuantRows> exact;
  for (const Update& u : updates) {
    float* low = scratch(kLow, size_t(u.rows) * size_t(u.a->n));
    products({u.a}, xs + size_t(u.first) * size_t(k()), exact, u.rows, {DType::f32, Gate::none, nullptr, reinterpret_cast<uint8_t*>(low), size_t(u.a->n)});
    for (size_t i = 0; i < size_t(u.rows) * size_t(u.a->n); i++) low[i] *= u.scale;
    uint8_t* at = reinterpret_cast<uint8_t*>(sums + size_t(u.first) * wide);
    products({u.b}, low, exact, u.rows, {DType::f32, Gate::none, at, at, wide}, column[size_t(u.part)]);
  }
  const Level& l = level();
  const Sink sink{dtype, gate, static_cast<const uint8_t*>(residual), static_cast<uint8_t*>(out), size_t(width())};
  auto one = [&](int r) {
    const float* row = sums + size_t(r) * wide;
    for (int col = 0; col < width(); col += kLanes) {
      const int n = std::min(kLanes, width() - col);
      float v[kLanes] = {}, up[kLanes] = {};
      std::memcpy(v, row + col, size_t(n) * 4);
      if (gate != Gate::none) {
        std::memcpy(up, row + column[1] + col, size_t(n) * 4);
        sink.round(v);
        sink.round(up);
        (gate == Gate::silu ? l.silu_mul : l.gelu_tanh_mul)(v, up, kLanes, v);
      }
      sink.put(v, r, col, n);
    }
  };
  const int piece = piece_of(rows, 1);
  Pool::get().run((rows + piece - 1) / piece, [&](int i) {
    for (int r = i * piece; r < std::min(rows, (i + 1) * piece); r++) one(r);
  });
}

}  // namespace clade
