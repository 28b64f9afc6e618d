// Holds the kernels to their invariant without MLX: every level, any number of threads and any cut of the rows give the bits
// of the plain C++ level on one thread. Built with sanitizers by native/kernels/check, which also says what it covers.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "attention.h"
#include "clade_kernels.h"
#include "everywhere.h"
#include "linear.h"
#include "pool.h"
#include "trellis.h"
#include "weight.h"

using namespace clade;

namespace {

std::vector<uint8_t> stored(DType t, const std::vector<float>& v) {
  std::vector<uint8_t> out(v.size() * (t == DType::f32 ? 4 : 2));
  level().narrow(t, v.data(), v.size(), out.data());
  return out;
}

std::shared_ptr<Weight> dense(int n, int k, int dtype) {
  auto w = std::make_shared<Weight>(n, k, dense_shape(n, k, dtype), 0);
  auto bytes = stored(DType(dtype), normals(size_t(n) * size_t(k), 0.1f));
  w->set_dense(0, n, bytes.data());
  return w;
}

std::shared_ptr<Weight> affine(int n, int k, int bits, int group, int scale) {
  auto w = std::make_shared<Weight>(n, k, affine_shape(n, k, bits, group, scale), bits);
  std::vector<uint32_t> codes(size_t(n) * size_t(k) * size_t(bits) / 32);
  for (auto& c : codes) c = rng();
  const size_t groups = size_t(n) * size_t(k / group);
  auto s = stored(DType(scale == 0 ? 0 : scale), normals(groups, 0.01f)), b = stored(DType(scale), normals(groups, 0.1f));
  w->set_affine(0, n, codes.data(), s.data(), b.data());
  w->bias = normals(size_t(w->panels()) * 16);
  return w;
}

void linear() {
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (int n : {1, 33})
      for (int k : {8, 128})
        for (int kind = 0; kind < 10; kind++) {
          std::shared_ptr<Weight> a, b;
          const bool int8 = kind >= 8;
          if (kind < 3) {
            a = dense(n, k, kind), b = dense(n, k, kind);
          } else {
            const int bits[] = {2, 3, 4, 6, 8, 4, 8}, group = k % 64 ? 8 : kind % 2 ? 64 : 32;
            if (k * bits[kind - 3] % 32) continue;
            a = affine(n, k, bits[kind - 3], group, kind % 3), b = affine(n, k, bits[kind - 3], group, kind % 3);
            a->int8 = b->int8 = int8;
          }
          for (int rows : {0, 1, 3, 9, 26}) {
            // One value in front: nothing may assume that x is aligned to more than its elements.
            auto x = stored(t, normals(size_t(rows * k + 1))), norm = stored(t, normals(size_t(k)));
            auto residual = stored(t, normals(size_t(rows * n)));
            const size_t size = t == DType::f32 ? 4 : 2;
            const std::string what = "linear dtype " + std::to_string(int(t)) + " kind " + std::to_string(kind) + " " +
                                     std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(n);
            auto call = [&](Gate gate) {
              LinearCall c;
              c.weights = {a, b};
              c.gate = gate;
              c.norm_eps = 1e-5f;
              std::vector<uint8_t> out(size_t(rows) * size_t(c.width()) * size);
              c.run(t, x.data() + size, rows, norm.data(), gate == Gate::none ? nullptr : residual.data(), out.data());
              return out;
            };
            if (rows < 9) everywhere(what, [&] { return call(Gate::none); }, int8);
            everywhere(what + " silu", [&] { return call(Gate::silu); }, int8);
            if (rows == 3) everywhere(what + " gelu", [&] { return call(Gate::gelu_tanh); });
            // The first row is what it is alone.
            if (rows > 1) {
              auto all = call(Gate::silu);
              const int kept = rows;
              rows = 1;
              auto one = call(Gate::silu);
              rows = kept;
              expect(std::memcmp(all.data(), one.data(), one.size()) == 0, what + ": first row");
            }
          }
        }
}

// Weights of one product may be dense, exact and rounded, in groups of different widths: each column is what it is alone.
void mixed() {
  const int k = 128;
  std::vector<std::shared_ptr<Weight>> all = {dense(20, k, 1), affine(17, k, 4, 32, 1), affine(40, k, 8, 64, 0), affine(5, k, 4, 16, 2)};
  all[1]->int8 = all[2]->int8 = true;
  for (int rows : {1, 2, 11}) {
    auto x = stored(DType::f32, normals(size_t(rows * k)));
    auto call = [&](std::vector<std::shared_ptr<const Weight>> weights) {
      LinearCall c;
      c.weights = std::move(weights);
      std::vector<float> out(size_t(rows) * size_t(c.width()));
      c.run(DType::f32, x.data(), rows, nullptr, nullptr, out.data());
      return out;
    };
    everywhere("mixed", [&] { return call({all.begin(), all.end()}); }, true);
    const auto together = call({all.begin(), all.end()});
    size_t column = 0;
    for (const auto& w : all) {
      const auto alone = call({w});
      bool same = true;
      for (int r = 0; r < rows; r++)
        same = same && !std::memcmp(&together[size_t(r) * 82 + column], &alone[size_t(r * w->n)], size_t(w->n) * 4);
      expect(same, "mixed: " + std::to_string(rows) + " rows, column " + std::to_string(column));
      column += size_t(w->n);
    }
    // A gate of weights that are rounded differently.
    all[3]->int8 = false;
    auto gate = affine(5, k, 4, 32, 0);
    gate->int8 = true;
    everywhere("mixed gate", [&] {
      LinearCall c;
      c.weights = {gate, all[3]};
      c.gate = Gate::silu;
      std::vector<float> out(size_t(rows) * 5);
      c.run(DType::f32, x.data(), rows, nullptr, nullptr, out.data());
      return out;
    }, true);
  }
}

// Values that rounding to 8 bits could trip over: nothing, the smallest numbers, the largest, and what is no number.
void rounding() {
  const int k = 64;
  auto w = affine(16, k, 4, 32, 0);
  w->int8 = true;
  for (float v : {0.0f, 1e-45f, 1e-39f, 1e-30f, 3e38f, INFINITY, NAN}) {
    std::vector<float> x(k, v / 2), out(16);
    x[7] = v;
    auto run = [&] {
      LinearCall c;
      c.weights = {w};
      c.run(DType::f32, x.data(), 1, nullptr, nullptr, out.data());
      for (float& o : out)
        if (std::isnan(o)) o = 12345;  // NaNs have many bits
      return out;
    };
    everywhere("rounding " + std::to_string(v), run, true);
    run();
    if (!std::isfinite(v)) expect(out[3] == 12345, "a value that is no number shows");
  }
}

// A segment over one piece of keys and values, position by position.
AttentionSegment plain(DType t, int dim, int offset, int rows, std::vector<uint8_t>& keys, std::vector<uint8_t>& values, int capacity) {
  const RowCode code{Code::dense, t, 0, 0};
  AttentionSegment s{offset, rows, code, code, {}};
  for (int i = 0; i < offset + rows; i += kAttentionTile)
    s.tiles.push_back({keys.data() + size_t(i) * code.bytes(dim), values.data() + size_t(i) * code.bytes(dim), capacity});
  return s;
}

// Coded caches in blocks that lie in any order: the same bits everywhere, in any cut, and those of a dense cache of what the codes
// stand for, but for the order of turbo's rotation.
void coded() {
  const int heads = 2, kv = 1, total = 270, tiles = 3;
  struct Case {
    RowCode keys, values;
    int dim, window, keep;
  };
  std::vector<Case> cases;
  for (int bits : {2, 3, 4, 5, 6, 8}) cases.push_back({{Code::affine, DType::f32, bits, 32}, {Code::affine, DType::f32, bits, 32}, 32 * bits % 96 + 32, 0, 0});
  for (int bits : {2, 3, 4, 5, 8}) cases.push_back({{Code::turbo, DType::f32, bits, 0}, {Code::turbo, DType::f32, 8, 0}, bits == 3 ? 48 : 64, 0, 0});
  cases.push_back({{Code::dense, DType::bf16, 0, 0}, {Code::affine, DType::f32, 8, 64}, 64, 100, 0});
  cases.push_back({{Code::affine, DType::f32, 4, 64}, {Code::dense, DType::f16, 0, 0}, 64, 100, 7});
  cases.push_back({{Code::dense, DType::f32, 0, 0}, {Code::dense, DType::f32, 0, 0}, 32, 3, 256});
  for (const Case& c : cases) {
    check_code(c.keys, c.dim);
    check_code(c.values, c.dim);
    const size_t width = size_t(heads + 2 * kv) * size_t(c.dim), line = size_t(heads) * size_t(c.dim);
    const auto qkv = normals(size_t(total) * width), freq = normals(size_t(c.dim / 2), 0.1f);
    const AttentionCall a{heads, kv, c.dim, c.dim, false, 1.0f, 1.0f, 0.3f, c.window, c.keep, 1e-6f};
    std::vector<uint8_t> rows;  // of the last run's keys
    auto run = [&](std::vector<int> cuts) {
      const size_t kb = c.keys.bytes(c.dim) * kAttentionTile * kv, vb = c.values.bytes(c.dim) * kAttentionTile * kv;
      std::vector<uint8_t> keys(kb * tiles, 0xff), values(vb * tiles, 0xff);
      std::vector<float> out(size_t(total) * line);
      for (int offset = 0, i = 0; offset < total; i++) {
        const int n = std::min(cuts[size_t(i) % cuts.size()], total - offset);
        AttentionSegment s{offset, n, c.keys, c.values, {}};
        for (int t = 0; t * kAttentionTile < offset + n; t++) {
          const size_t at = size_t((t * 2 + 1) % tiles);  // 1, 0, 2
          s.tiles.push_back({keys.data() + at * kb, values.data() + at * vb, kAttentionTile});
        }
        a.run(DType::f32, qkv.data() + size_t(offset) * width, {s}, freq.data(), nullptr, nullptr, out.data() + size_t(offset) * line);
        offset += n;
      }
      rows = keys;
      return out;
    };
    const std::string what = "coded " + std::to_string(int(c.keys.code)) + " " + std::to_string(c.keys.bits) + " bits, dim " +
                             std::to_string(c.dim) + ", window " + std::to_string(c.window) + ", keep " + std::to_string(c.keep);
    everywhere(what, [&] { return run({total}); });
    clade_kernels_set_level("");
    const auto whole = run({total});
    const auto stored = rows;
    expect(run({256, 3, 7, 1}) == whole && rows == stored, what + " in pieces");
    expect(run({1}) == whole && rows == stored, what + " token by token");
    for (float v : whole)
      if (!std::isfinite(v)) {
        expect(false, what + " is finite");
        break;
      }
  }
  // What is not a number is coded to something, and nothing else is touched.
  for (const Case& c : cases) {
    if (c.keys.code == Code::dense) continue;
    std::vector<float> x = normals(size_t(c.dim));
    x[3] = NAN, x[5] = INFINITY, x[6] = -INFINITY;
    std::vector<uint8_t> row(c.keys.bytes(c.dim) + 4, 0x55);
    pack_row(c.keys, x.data(), c.dim, row.data());
    expect(row[row.size() - 1] == 0x55 && row[row.size() - 4] == 0x55, "a row ends where it should");
  }
  for (const RowCode& bad : {RowCode{Code::affine, DType::f32, 7, 32}, {Code::affine, DType::f32, 4, 48}, {Code::turbo, DType::f32, 6, 0}, {Code(9), DType::f32, 4, 32}}) {
    bool refused = false;
    try {
      check_code(bad, 64);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    expect(refused, "a code that does not fit is refused");
  }
}

void attention() {
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (int dim : {16, 48})
      for (int heads : {1, 6})
        for (int window : {0, 37})
          {
            const float softcap = window == 37 || heads == 1 ? 0 : 0.7f;
            const bool traditional = dim == 48;
            const int kv = heads == 6 ? 2 : 1, total = 270, capacity = 300;
            const size_t size = t == DType::f32 ? 4 : 2, width = size_t(heads + 2 * kv) * size_t(dim);
            auto qkv = stored(t, normals(size_t(total) * width)), norm = stored(t, normals(size_t(dim)));
            auto freq = normals(size_t(dim / 2), 0.1f);
            auto run = [&](std::vector<int> cuts) {
              // What lies beyond the written positions must not matter.
              std::vector<uint8_t> keys(size_t(kv) * capacity * size_t(dim) * size, 0xff), values(keys), out(size_t(total) * size_t(heads * dim) * size);
              for (int offset = 0, i = 0; offset < total; i++) {
                const int rows = std::min(cuts[size_t(i) % cuts.size()], total - offset);
                AttentionCall a{heads, kv, dim, dim, traditional, 1.0f, 1.1f, 0.3f, window, 0, 1e-6f, softcap};
                a.run(t, qkv.data() + size_t(offset) * width * size, {plain(t, dim, offset, rows, keys, values, capacity)}, freq.data(),
                      norm.data(), nullptr, out.data() + size_t(offset) * size_t(heads * dim) * size);
                offset += rows;
              }
              return out;
            };
            const std::string what = "attention dtype " + std::to_string(int(t)) + " dim " + std::to_string(dim) + " heads " +
                                     std::to_string(heads) + " window " + std::to_string(window) + " softcap " + std::to_string(softcap);
            everywhere(what, [&] { return run({total}); });
            clade_kernels_set_level("");
            const auto whole = run({total});
            expect(run({256, 3, 7, 1}) == whole, what + " in pieces");
            expect(run({1}) == whole, what + " token by token");
            // Three sequences of one call, at different places, have what each has alone.
            auto together = [&] {
              std::vector<std::vector<uint8_t>> caches(6, std::vector<uint8_t>(size_t(kv) * capacity * size_t(dim) * size, 0xff));
              std::vector<uint8_t> out(size_t(total) * size_t(heads * dim) * size), all;
              AttentionCall a{heads, kv, dim, dim, traditional, 1.0f, 1.1f, 0.3f, window, 0, 1e-6f, softcap};
              int done[3] = {0, 0, 0};
              for (const auto& step : {std::vector<int>{258, 3, 9}, {1, 1, 0}, {1, 2, 1}}) {
                std::vector<uint8_t> in;
                std::vector<AttentionSegment> segments;
                for (size_t i = 0; i < 3; i++) {
                  auto at = qkv.begin() + long(size_t(done[i]) * width * size);
                  in.insert(in.end(), at, at + long(size_t(step[i]) * width * size));
                  segments.push_back(plain(t, dim, done[i], step[i], caches[2 * i], caches[2 * i + 1], capacity));
                  done[i] += step[i];
                }
                a.run(t, in.data(), segments, freq.data(), norm.data(), nullptr, out.data());
                const size_t made = in.size() / width * size_t(heads * dim);
                all.insert(all.end(), out.begin(), out.begin() + long(made));
              }
              return all;
            };
            std::vector<uint8_t> want;
            auto take = [&](int from, int n) {
              auto at = whole.begin() + long(size_t(from) * size_t(heads * dim) * size);
              want.insert(want.end(), at, at + long(size_t(n) * size_t(heads * dim) * size));
            };
            for (auto [from, n] : {std::pair{0, 258}, {0, 3}, {0, 9}, {258, 1}, {3, 1}, {259, 1}, {4, 2}, {9, 1}}) take(from, n);
            expect(together() == want, what + " of three sequences");
            Pool::get().set_threads(1);
            expect(together() == want, what + " of three sequences on one thread");
          }
}

// Bent scores are tanh's to two ulps, of small ones too, and saturate.
void bending() {
  std::vector<float> scores = {0, -0.0f, 1e-30f, -1e-8f, 0.4374f, -0.4375f, 0.4376f, 7, -70, 1e30f, -INFINITY, INFINITY};
  for (float v : normals(4084, 3)) scores.push_back(v);
  for (float cap : {0.7f, 50.0f})
    everywhere("bending", [&] {
      auto s = scores;
      level().bend(s.data(), cap, int(s.size()));
      bool near = true;
      for (size_t i = 0; i < s.size(); i++) {
        const double want = double(cap) * std::tanh(double(scores[i]) / double(cap));
        near = near && std::abs(double(s[i]) - want) <= 3.5e-7 * std::abs(want);  // 3.1e-7 just above 0.625 cap, over three million draws
      }
      expect(near, "bending is tanh's with cap " + std::to_string(cap));
      return s;
    });
}

// Rows beyond a block of the second-level cache, columns beyond 16 bits, one weight of one row.
void large() {
  for (auto [rows, k, n] : {std::array{2, 69632, 17}, {700, 576, 33}, {5000, 64, 1}}) {
    std::vector<std::shared_ptr<const Weight>> all = {dense(n, k, 1), affine(n, k, 4, 64, 1), affine(n, k, 8, 32, 2)};
    auto rounded = affine(n, k, 4, 64, 0);
    rounded->int8 = true;
    all.push_back(rounded);
    auto x = stored(DType::f32, normals(size_t(rows) * size_t(k)));
    auto call = [&](int first, int count) {
      LinearCall c;
      c.weights = all;
      std::vector<float> out(size_t(count) * size_t(c.width()));
      c.run(DType::f32, x.data() + size_t(first) * size_t(k) * 4, count, nullptr, nullptr, out.data());
      return out;
    };
    const std::string what = "large " + std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(n);
    Pool::get().set_threads(3);
    clade_kernels_set_level("");
    const auto whole = call(0, rows), last = call(rows - 1, 1);
    expect(std::equal(last.begin(), last.end(), whole.end() - long(last.size())), what + ": the last row alone");
    for (const auto& l : levels()) {
      if (l == "generic" && rows > 2) continue;
      clade_kernels_set_level(l.c_str());
      expect(call(0, rows) == whole, what + " at " + l);
    }
    clade_kernels_set_level("");
  }
}

// A row with updates has the bits that it has alone, one without those of a call without any, at every level and with any threads.
void updates() {
  const int k = 64, rows = 9;
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (Gate gate : {Gate::none, Gate::silu}) {
      LinearCall plain;
      plain.weights = {affine(40, k, 4, 32, 0), affine(40, k, 8, 64, 1)};
      plain.gate = gate;
      LinearCall call = plain;
      auto a = dense(5, k, 0), b = dense(40, 5, 0), a2 = dense(16, k, 1), b2 = dense(40, 16, 1);
      call.updates = {{a, b, 0, 1, 1, 2.0f}, {a2, b2, 1, 4, 3, 0.5f}, {a, b, 1, 4, 3, -1.0f}};
      const size_t size = dtype == DType::f32 ? 4 : 2;
      const auto x = stored(dtype, normals(size_t(rows * k))), residual = stored(dtype, normals(size_t(rows * call.width())));
      auto run = [&](const LinearCall& c, int first, int n) {
        std::vector<uint8_t> out(size_t(n) * size_t(c.width()) * size);
        c.run(dtype, x.data() + size_t(first * k) * size, n, nullptr, residual.data() + size_t(first) * size_t(c.width()) * size, out.data());
        return out;
      };
      const auto whole = run(call, 0, rows), without = run(plain, 0, rows);
      const size_t width = size_t(call.width()) * size;
      for (int r = 0; r < rows; r++) {
        LinearCall alone = plain;
        for (Update u : call.updates)
          if (u.first <= r && r < u.first + u.rows) {
            u.first = 0, u.rows = 1;
            alone.updates.push_back(u);
          }
        const auto one = run(alone, r, 1);
        const bool same = std::equal(one.begin(), one.end(), whole.begin() + long(size_t(r) * width));
        expect(same, "updates of row " + std::to_string(r) + " alone");
        const bool touched = !std::equal(one.begin(), one.end(), without.begin() + long(size_t(r) * width));
        expect(touched == !alone.updates.empty(), "updates touch row " + std::to_string(r));
      }
      everywhere("updates", [&] { return run(call, 0, rows); });
      clade_kernels_set_level("");
    }
  }
}

// Threads come and go and move while products run: a host tunes a model that is generating.
void tuning() {
  const int k = 128, rows = 9;
  LinearCall c;
  c.weights = {affine(200, k, 4, 32, 0)};
  auto x = stored(DType::f32, normals(size_t(rows * k)));
  auto call = [&] {
    std::vector<float> out(size_t(rows) * size_t(c.width()));
    c.run(DType::f32, x.data(), rows, nullptr, nullptr, out.data());
    return out;
  };
  const auto want = call();
  std::atomic<bool> done{false};
  std::thread tuner([&] {
    const int first = 0;
    for (int i = 0; !done; i++) {
      clade_kernels_set_threads(1 + i % 4);
      clade_kernels_pin(&first, i % 2);
    }
    clade_kernels_pin(nullptr, 0);
  });
  bool same = true;
  for (int i = 0; i < 300; i++) {
    Pool::get().evaluating();
    same = same && call() == want;
  }
  done = true;
  tuner.join();
  Pool::get().evaluating();
  expect(same, "products while threads are tuned");
}

void refusals() {
  auto refused = [](auto f) {
    try {
      f();
    } catch (const std::exception&) {
      return true;
    }
    return false;
  };
  expect(refused([] { dense_shape(0, 4, 0); }), "an empty weight");
  expect(refused([] { dense_shape(1 << 30, 1 << 30, 0); }), "a weight beyond all memory");
  expect(refused([] { dense_shape(4, 4, 3); }), "an unknown dtype");
  expect(refused([] { affine_shape(4, 64, 7, 32, 0); }), "seven bits");
  expect(refused([] { affine_shape(4, 64, 4, 48, 0); }), "a group that does not divide");
  expect(refused([] { trellis_shape(4, 64, 2, 128, 16, 1); }), "a trellis' blocks that do not divide");
  expect(refused([] { trellis_shape(4, 64, 3, 16, 16, 1); }), "a trellis' ring of part of a word");
  expect(refused([] { trellis_shape(4, 64, 2, 16, 33, 1); }), "a trellis' state of more than a word");
  expect(clade_kernels_set_threads(0) != 0, "no threads");
  expect(clade_kernels_set_level("mmx") != 0, "an unknown level");
}

}  // namespace

// All of them, or those that are named.
int main(int argc, char** argv) {
  const std::pair<const char*, void (*)()> parts[] = {
      {"linear", linear}, {"mixed", mixed},     {"rounding", rounding}, {"attention", attention}, {"bending", bending}, {"coded", coded},
      {"large", large},   {"updates", updates}, {"tuning", tuning},     {"delta", delta},         {"experts", experts}, {"memory", memory},
      {"decoder", decoder}, {"sampling", sampling}, {"trellis", trellises}, {"refusals", refusals}};
  for (const auto& [name, test] : parts)
    if (argc == 1 || std::find(argv + 1, argv + argc, std::string(name)) != argv + argc) test();
  std::printf("levels here: ");
  for (const auto& l : levels()) std::printf("%s ", l.c_str());
  std::printf("\n%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
