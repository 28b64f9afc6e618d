// A decoder's step: against the operations that it stands for, bit for bit, at every level, for any number of threads and rows.
#include "decoder.h"

#include <cstring>

#include "everywhere.h"

namespace clade {
namespace {

constexpr int kHeads = 4, kKVHeads = 2, kDim = 32, kHidden = 96, kInter = 160, kCapacity = 512;

std::shared_ptr<Weight> random_weight(int n, int k, int bits, bool int8) {
  if (!bits) {
    auto w = std::make_shared<Weight>(n, k, dense_shape(n, k, CLADE_F32), 0);
    w->set_dense(0, n, normals(size_t(n) * size_t(k), 0.1f).data());
    return w;
  }
  const int group = 32;
  auto w = std::make_shared<Weight>(n, k, affine_shape(n, k, bits, group, CLADE_F32), bits);
  std::vector<uint32_t> words(size_t(n) * size_t(k) * size_t(bits) / 32);
  for (auto& x : words) x = rng();
  w->set_affine(0, n, words.data(), normals(size_t(n * k / group), 0.01f).data(), normals(size_t(n * k / group), 0.05f).data());
  w->int8 = int8;
  return w;
}

std::vector<uint8_t> stored(DType dtype, const std::vector<float>& v) {
  std::vector<uint8_t> out(v.size() * (dtype == DType::f32 ? 4 : 2));
  level().narrow(dtype, v.data(), v.size(), out.data());
  return out;
}

Decoder random_decoder(DType dtype, int layers, int bits, bool int8, bool head_norms, bool mixes) {
  Decoder d{dtype, {}};
  for (int i = 0; i < layers; i++) {
    auto call = [&](std::initializer_list<int> rows, int k) {
      LinearCall c;
      for (int n : rows) c.weights.push_back(random_weight(n, k, bits, int8));
      c.norm_eps = 1e-5f;
      return c;
    };
    DecoderLayer l{call({kHeads * kDim, kKVHeads * kDim, kKVHeads * kDim}, kHidden), call({kHidden}, kHeads * kDim),
                   call({kInter, kInter}, kHidden), call({kHidden}, kInter), {}, stored(dtype, normals(kHidden)), stored(dtype, normals(kHidden)), {}, {}};
    l.mlp.gate = Gate::silu;
    if (mixes && i % 2 == 1) {
      constexpr int n = 4;
      l.mixture = {call({n}, kHidden), {random_weight(n * kInter, kHidden, bits, false), random_weight(n * kInter, kHidden, bits, false),
                                        random_weight(n * kHidden, kInter, bits, false), n, 2, true}};
    }
    if (head_norms) l.q_norm = stored(dtype, normals(kDim)), l.k_norm = stored(dtype, normals(kDim));
    d.layers.push_back(std::move(l));
  }
  return d;
}

// Of each sequence how many positions it holds, and its rows.
using Positions = std::vector<std::pair<int, int>>;

// Caches of sequences that hold so many positions, filled with what is always the same.
struct Caches {
  std::vector<std::vector<uint8_t>> memory;
  std::vector<std::vector<AttentionSegment>> segments;  // of each layer

  Caches(DType dtype, int layers, const Positions& sequences) {
    for (int i = 0; i < layers; i++) {
      segments.emplace_back();
      for (auto [offset, rows] : sequences) {
        const RowCode code{Code::dense, dtype, 0, 0};
        const size_t half = size_t(kKVHeads * kCapacity) * code.bytes(kDim);
        std::vector<float> values(size_t(2 * kKVHeads * kCapacity * kDim));
        for (size_t j = 0; j < values.size(); j++) values[j] = float(int(j * 37 % 101) - 50) / 60;
        memory.push_back(stored(dtype, values));
        uint8_t* base = memory.back().data();
        AttentionSegment s{offset, rows, code, code, {}};
        for (int t = 0; t * kAttentionTile < kCapacity; t++) {
          const size_t at = size_t(t * kAttentionTile) * code.bytes(kDim);
          s.tiles.push_back({base + at, base + half + at, kCapacity});
        }
        segments.back().push_back(std::move(s));
      }
    }
  }
};

const AttentionCall kAttention{kHeads, kKVHeads, kDim, kDim, false, 1, 1, 0.2f, 0, 0, 1e-5f, 0};

std::vector<float> frequencies() {
  std::vector<float> f(kDim / 2);
  for (size_t i = 0; i < f.size(); i++) f[i] = 1.0f / float(1 + i * i);
  return f;
}

// What the step stands for. The results, then what the caches hold.
std::vector<uint8_t> apart(const Decoder& d, const std::vector<uint8_t>& x, int rows, const Positions& at) {
  Caches c(d.dtype, int(d.layers.size()), at);
  const size_t line = size_t(rows) * (d.dtype == DType::f32 ? 4 : 2);
  const auto inv = frequencies();
  std::vector<uint8_t> h = x;
  for (size_t i = 0; i < d.layers.size(); i++) {
    const DecoderLayer& l = d.layers[i];
    std::vector<uint8_t> qkv(line * size_t(l.projections.width())), o(line * size_t(l.o.k())), act(line * size_t(l.mlp.width())), a(h.size()), b(h.size());
    l.projections.run(d.dtype, h.data(), rows, l.attention_norm.data(), nullptr, qkv.data());
    kAttention.run(d.dtype, qkv.data(), c.segments[i], inv.data(), l.q_norm.empty() ? nullptr : l.q_norm.data(),
                   l.k_norm.empty() ? nullptr : l.k_norm.data(), o.data());
    l.o.run(d.dtype, o.data(), rows, nullptr, h.data(), a.data());
    if (l.mixes()) {
      l.mixture.run(d.dtype, a.data(), rows, l.mlp_norm.data(), b.data());
      h = b;
      continue;
    }
    l.mlp.run(d.dtype, a.data(), rows, l.mlp_norm.data(), nullptr, act.data());
    l.down.run(d.dtype, act.data(), rows, nullptr, a.data(), b.data());
    h = b;
  }
  for (const auto& m : c.memory) h.insert(h.end(), m.begin(), m.end());
  return h;
}

std::vector<uint8_t> together(const Decoder& d, const std::vector<uint8_t>& x, int rows, const Positions& at) {
  Caches c(d.dtype, int(d.layers.size()), at);
  std::vector<uint8_t> out(x.size());
  d.run(kAttention, x.data(), rows, c.segments, frequencies().data(), out.data());
  for (const auto& m : c.memory) out.insert(out.end(), m.begin(), m.end());
  return out;
}

void check(const std::string& what, DType dtype, int bits, bool int8, bool head_norms, const Positions& sequences, bool mixes = false) {
  const Decoder d = random_decoder(dtype, 2, bits, int8, head_norms, mixes);
  int rows = 0;
  for (auto [offset, n] : sequences) rows += n;
  const auto x = stored(dtype, normals(size_t(rows * kHidden)));
  clade_kernels_set_level("");
  const auto want = apart(d, x, rows, sequences);
  everywhere(what, [&] {
    const auto got = together(d, x, rows, sequences);
    expect(got == want, what + ": other bits than the operations");
    return got;
  }, int8);
}

}  // namespace

void decoder() {
  check("a decoder's step of one row", DType::bf16, 4, false, true, {{5, 1}});
  check("a decoder's step in float32, behind a tile", DType::f32, 8, false, true, {{300, 1}});
  check("a decoder's step of three sequences", DType::bf16, 4, false, true, {{0, 1}, {255, 2}, {40, 1}});
  check("a decoder's step of eight rows, rounded", DType::f16, 4, true, false, {{250, 8}});
  check("a decoder's step through a mixture", DType::bf16, 4, false, true, {{30, 1}, {9, 2}}, true);
  check("a decoder's step of dense weights", DType::bf16, 0, false, false, {{7, 3}});
}

}  // namespace clade
