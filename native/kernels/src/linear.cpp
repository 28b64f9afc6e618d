#include "linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "pool.h"

namespace clade {

namespace {

constexpr int kLanes = 16;
// Floats of x that one pass over the panels keeps in the second-level cache.
constexpr size_t kRowBlockFloats = 192 * 1024;

enum Slot { kRows = 0, kNorm, kPanels, kTile, kSlots };

struct Buffer {
  float* p = nullptr;
  size_t n = 0;
  ~Buffer() { std::free(p); }
};

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

void add_bias(const Weight& w, int panel, float* v) {
  if (w.bias.empty()) return;
  const float* b = w.bias.data() + size_t(panel) * kLanes;
  for (int i = 0; i < kLanes; i++) v[i] += b[i];
}

bool same_shape(const PanelShape& a, const PanelShape& b) {
  return a.format == b.format && a.scale == b.scale && a.group == b.group;
}

// Panels that one tile call takes straight from storage for so few rows.
int direct_panels(int rows) { return rows <= 2 ? 4 : 2; }

// Multiplies rows of x with `count` panels (1, 2, 4) into out [rows][count * 16].
void multiply(const PanelShape* shapes, const uint8_t* const* panels, int count, const float* x, size_t ldx, int rows,
              float* out) {
  const Level& l = level();
  const size_t ldo = size_t(count) * kLanes;
  bool same = true;
  for (int i = 1; i < count; i++) same = same && same_shape(shapes[0], shapes[i]);
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

// Panels [begin, end) of one weight over a block of rows; col is the weight's first column in out.
void plain_panels(const Weight& w, int begin, int end, const float* x, int row0, int rows, int col, const Sink& sink) {
  const int step = rows <= level().max_direct_rows ? direct_panels(rows) : 2;
  for (int p = begin; p < end;) {
    int count = std::min(step, end - p);
    if (count == 3) count = 2;
    PanelShape shapes[4];
    const uint8_t* panels[4];
    for (int i = 0; i < count; i++) {
      shapes[i] = w.shape;
      panels[i] = w.panel(p + i);
    }
    float* t = scratch(kTile, size_t(rows) * size_t(count) * kLanes);
    multiply(shapes, panels, count, x + size_t(row0) * size_t(w.k), size_t(w.k), rows, t);
    for (int r = 0; r < rows; r++)
      for (int i = 0; i < count; i++) {
        float* v = t + (size_t(r) * size_t(count) + size_t(i)) * kLanes;
        add_bias(w, p + i, v);
        sink.put(v, row0 + r, col + (p + i) * kLanes, std::min(kLanes, w.n - (p + i) * kLanes));
      }
    p += count;
  }
}

// Panels [begin, end) of gate and up together.
void gated_panels(const Weight& gate, const Weight& up, int begin, int end, const float* x, int row0, int rows,
                  const Sink& sink) {
  const Level& l = level();
  const int step = rows <= l.max_direct_rows ? direct_panels(rows) / 2 : 1;
  for (int p = begin; p < end;) {
    int pairs = std::min(step, end - p);
    PanelShape shapes[4];
    const uint8_t* panels[4];
    for (int i = 0; i < pairs; i++) {
      shapes[2 * i] = gate.shape;
      shapes[2 * i + 1] = up.shape;
      panels[2 * i] = gate.panel(p + i);
      panels[2 * i + 1] = up.panel(p + i);
    }
    float* t = scratch(kTile, size_t(rows) * size_t(pairs) * 2 * kLanes);
    multiply(shapes, panels, 2 * pairs, x + size_t(row0) * size_t(gate.k), size_t(gate.k), rows, t);
    for (int r = 0; r < rows; r++)
      for (int i = 0; i < pairs; i++) {
        float* g = t + (size_t(r) * size_t(pairs) + size_t(i)) * 2 * kLanes;
        float* u = g + kLanes;
        add_bias(gate, p + i, g);
        add_bias(up, p + i, u);
        sink.round(g);
        sink.round(u);
        (sink.gate == Gate::silu ? l.silu_mul : l.gelu_tanh_mul)(g, u, kLanes, g);
        sink.put(g, row0 + r, (p + i) * kLanes, std::min(kLanes, gate.n - (p + i) * kLanes));
      }
    p += pairs;
  }
}

}  // namespace

float* scratch(int slot, size_t n) {
  static thread_local Buffer buffers[8];
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

void LinearCall::run(DType dtype, const void* x, int rows, const void* norm, const void* residual, void* out) const {
  if (rows == 0) return;
  const Level& l = level();
  const int k = this->k();
  const float* xs = static_cast<const float*>(x);
  if (dtype != DType::f32 || norm) {
    float* dst = scratch(kRows, size_t(rows) * size_t(k));
    float* nw = nullptr;
    if (norm) {
      nw = scratch(kNorm, size_t(k));
      l.widen(dtype, norm, size_t(k), nw);
    }
    const size_t size = dtype == DType::f32 ? 4 : 2;
    auto prepare = [&](int r) {
      float* d = dst + size_t(r) * size_t(k);
      l.widen(dtype, static_cast<const uint8_t*>(x) + size_t(r) * size_t(k) * size, size_t(k), d);
      if (nw) norm_row(dtype, d, nw, norm_eps, k, d);
    };
    if (rows < 8) {
      for (int r = 0; r < rows; r++) prepare(r);
    } else {
      const int piece = piece_of(rows, 1);
      Pool::get().run((rows + piece - 1) / piece, [&](int i) {
        for (int r = i * piece; r < std::min(rows, (i + 1) * piece); r++) prepare(r);
      });
    }
    xs = dst;
  }

  const Sink sink{dtype, gate, static_cast<const uint8_t*>(residual), static_cast<uint8_t*>(out), size_t(width())};
  const int block = int(std::max<size_t>(48, kRowBlockFloats / size_t(k)));
  int total = 0;
  for (const auto& w : weights) total += w->panels();
  if (gate != Gate::none) total = weights[0]->panels();

  // A piece is whole tiles; one that decodes its panels first does it for all rows of a block.
  const int piece = piece_of(total, rows <= l.max_direct_rows ? direct_panels(rows) : 2);
  Pool::get().run((total + piece - 1) / piece, [&](int i) {
    const int b = i * piece, e = std::min(total, b + piece);
    for (int r = 0; r < rows; r += block) {
      const int count = std::min(block, rows - r);
      if (gate != Gate::none) {
        gated_panels(*weights[0], *weights[1], b, e, xs, r, count, sink);
        continue;
      }
      int first = 0, col = 0;
      for (const auto& w : weights) {
        int wb = std::clamp(b - first, 0, w->panels()), we = std::clamp(e - first, 0, w->panels());
        if (wb < we) plain_panels(*w, wb, we, xs, r, count, col, sink);
        first += w->panels();
        col += w->n;
      }
    }
  });
}

}  // namespace clade
