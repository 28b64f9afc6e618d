// The inner loops, compiled once a dispatch level with CLADE_LEVEL naming it.
//
// Invariant: the value of an output element is fma(x[k], w[k], acc) for k = 0, 1, ... in order, whatever the number of
// rows or panels in a tile, the level, or the thread.
#include <algorithm>

#include "level.h"
#include "simd.h"

namespace clade {
namespace {

#if defined(__AVX512F__)
constexpr int kMaxRows = 12, kMaxDirectRows = 8, kTilePanels = 2;
#elif defined(__AVX2__)
constexpr int kMaxRows = 6, kMaxDirectRows = 4, kTilePanels = 1;
#elif defined(__ARM_NEON)
constexpr int kMaxRows = 5, kMaxDirectRows = 4, kTilePanels = 1;
#else
constexpr int kMaxRows = 4, kMaxDirectRows = 4, kTilePanels = 1;
#endif

struct ScaleF32 {
  static constexpr int bytes = 64;
  static f32x16 load(const uint8_t* p) { return load16(reinterpret_cast<const float*>(p)); }
};
struct ScaleBF16 {
  static constexpr int bytes = 32;
  static f32x16 load(const uint8_t* p) { return load_bf16(reinterpret_cast<const uint16_t*>(p)); }
};
struct ScaleF16 {
  static constexpr int bytes = 32;
  static f32x16 load(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }
};

struct DenseF32 {
  static constexpr int bytes = 64;
  static f32x16 load(const uint8_t* p) { return load16(reinterpret_cast<const float*>(p)); }
};
struct DenseBF16 {
  static constexpr int bytes = 32;
  static f32x16 load(const uint8_t* p) { return load_bf16(reinterpret_cast<const uint16_t*>(p)); }
};
struct DenseF16 {
  static constexpr int bytes = 32;
  static f32x16 load(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }
};

template <class D>
inline float load_one(const uint8_t* p);
template <>
inline float load_one<DenseF32>(const uint8_t* p) {
  float f;
  std::memcpy(&f, p, 4);
  return f;
}
template <>
inline float load_one<DenseBF16>(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return bf16_to_f32(h);
}
template <>
inline float load_one<DenseF16>(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return f16_to_f32(h);
}

#if defined(__AVX512F__)
// 16 x 16 transpose in registers: pairs, quads, then 128-bit lanes twice.
inline void transpose_block(const __m512 (&r)[16], float* out) {
  __m512 t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 2]);
    __m512d c = _mm512_castps_pd(t[4 * i + 1]), d = _mm512_castps_pd(t[4 * i + 3]);
    u[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
    u[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    u[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
    u[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    __m512 a = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88), b = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
    __m512 c = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd), d = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    _mm512_storeu_ps(out + size_t(i) * 16, _mm512_shuffle_f32x4(a, b, 0x88));
    _mm512_storeu_ps(out + size_t(i + 8) * 16, _mm512_shuffle_f32x4(a, b, 0xdd));
    _mm512_storeu_ps(out + size_t(i + 4) * 16, _mm512_shuffle_f32x4(c, d, 0x88));
    _mm512_storeu_ps(out + size_t(i + 12) * 16, _mm512_shuffle_f32x4(c, d, 0xdd));
  }
}
#endif

template <int MR, int NP>
struct Accumulators {
  f32x16 a[MR][NP];
  inline void clear() {
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
      for (int p = 0; p < NP; p++) a[m][p] = zero16();
  }
  inline void step(const float* x, size_t ldx, const f32x16 (&w)[NP]) {
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++) {
      f32x16 xv = set16(x[size_t(m) * ldx]);
#pragma GCC unroll 4
      for (int p = 0; p < NP; p++) a[m][p] = fma16(xv, w[p], a[m][p]);
    }
  }
  inline void store(float* out, size_t ldo) const {
#pragma GCC unroll 12
    for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
      for (int p = 0; p < NP; p++) store16(out + size_t(m) * ldo + p * kLanes, a[m][p]);
  }
};

template <class D, int MR, int NP>
void tile_dense(const PanelShape& s, const uint8_t* const* panel, const float* x, size_t ldx, float* out, size_t ldo) {
  Accumulators<MR, NP> acc;
  acc.clear();
  const uint8_t* p[NP];
  for (int j = 0; j < NP; j++) p[j] = panel[j];
  for (int i = 0; i < s.k; i++) {
    f32x16 w[NP];
#pragma GCC unroll 4
    for (int j = 0; j < NP; j++) w[j] = D::load(p[j] + size_t(i) * s.stride);
    acc.step(x + i, ldx, w);
  }
  acc.store(out, ldo);
}

template <int I, int MR, int NP>
inline void nibble_step(Accumulators<MR, NP>& acc, const nibbles16 (&n)[NP], const f32x16 (&s)[NP],
                        const f32x16 (&b)[NP], const float* x, size_t ldx) {
  f32x16 w[NP];
#pragma GCC unroll 4
  for (int j = 0; j < NP; j++) w[j] = fma16(n[j].template nibble<I>(), s[j], b[j]);
  acc.step(x + I, ldx, w);
}

template <class S, int MR, int NP>
void tile_q4(int k, int group, const uint8_t* const* panel, const float* x, size_t ldx, float* out, size_t ldo) {
  Accumulators<MR, NP> acc;
  acc.clear();
  const size_t block = 2 * S::bytes + size_t(group) * 8;
  const uint8_t* p[NP];
  for (int j = 0; j < NP; j++) p[j] = panel[j];
  for (int g = 0; g < k; g += group) {
    f32x16 s[NP], b[NP];
#pragma GCC unroll 4
    for (int j = 0; j < NP; j++) {
      s[j] = S::load(p[j]);
      b[j] = S::load(p[j] + S::bytes);
      for (size_t o = 0; o < block; o += 64) __builtin_prefetch(p[j] + 4 * block + o);
    }
    for (int i = 0; i < group; i += 8) {
      nibbles16 n[NP];
#pragma GCC unroll 4
      for (int j = 0; j < NP; j++)
        n[j] = load_nibbles(reinterpret_cast<const uint32_t*>(p[j] + 2 * S::bytes + size_t(i) * 8));
      const float* xi = x + g + i;
      nibble_step<0>(acc, n, s, b, xi, ldx);
      nibble_step<1>(acc, n, s, b, xi, ldx);
      nibble_step<2>(acc, n, s, b, xi, ldx);
      nibble_step<3>(acc, n, s, b, xi, ldx);
      nibble_step<4>(acc, n, s, b, xi, ldx);
      nibble_step<5>(acc, n, s, b, xi, ldx);
      nibble_step<6>(acc, n, s, b, xi, ldx);
      nibble_step<7>(acc, n, s, b, xi, ldx);
    }
#pragma GCC unroll 4
    for (int j = 0; j < NP; j++) p[j] += block;
  }
  acc.store(out, ldo);
}

template <class S, int MR, int NP>
void tile_q8(int k, int group, const uint8_t* const* panel, const float* x, size_t ldx, float* out, size_t ldo) {
  Accumulators<MR, NP> acc;
  acc.clear();
  const size_t block = 2 * S::bytes + size_t(group) * kLanes;
  const uint8_t* p[NP];
  for (int j = 0; j < NP; j++) p[j] = panel[j];
  for (int g = 0; g < k; g += group) {
    f32x16 s[NP], b[NP];
#pragma GCC unroll 4
    for (int j = 0; j < NP; j++) {
      s[j] = S::load(p[j]);
      b[j] = S::load(p[j] + S::bytes);
    }
    for (int i = 0; i < group; i++) {
      f32x16 w[NP];
#pragma GCC unroll 4
      for (int j = 0; j < NP; j++)
        w[j] = fma16(load_u8(p[j] + 2 * S::bytes + size_t(i) * kLanes), s[j], b[j]);
      acc.step(x + g + i, ldx, w);
    }
#pragma GCC unroll 4
    for (int j = 0; j < NP; j++) p[j] += block;
  }
  acc.store(out, ldo);
}

template <int MR, int NP>
void tile_any(const PanelShape& s, const uint8_t* const* panel, const float* x, size_t ldx, float* out, size_t ldo) {
  switch (s.format) {
    case Format::f32:
      return tile_dense<DenseF32, MR, NP>(s, panel, x, ldx, out, ldo);
    case Format::bf16:
      return tile_dense<DenseBF16, MR, NP>(s, panel, x, ldx, out, ldo);
    case Format::f16:
      return tile_dense<DenseF16, MR, NP>(s, panel, x, ldx, out, ldo);
    default:
      break;
  }
  // More rows than this are decoded first, and come here as floats.
  if constexpr (MR <= kMaxDirectRows) {
    const bool four = s.format == Format::q4;
    switch (s.scale) {
      case Scale::f32:
        return four ? tile_q4<ScaleF32, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo)
                    : tile_q8<ScaleF32, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo);
      case Scale::bf16:
        return four ? tile_q4<ScaleBF16, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo)
                    : tile_q8<ScaleBF16, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo);
      case Scale::f16:
        return four ? tile_q4<ScaleF16, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo)
                    : tile_q8<ScaleF16, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo);
    }
  }
}

// Rows that one instantiation covers with NP panels, so that the accumulators stay in registers.
template <int NP>
constexpr int rows_for() {
  return std::max(1, std::min(kMaxRows, kMaxRows * kTilePanels / NP));
}

bool quantized(const PanelShape& s) { return s.group != 0; }

template <int NP, int MR>
void tile_rows(const PanelShape& s, const uint8_t* const* panel, const float* x, size_t ldx, int rows, float* out,
               size_t ldo) {
  if constexpr (MR > 0) {
    if (rows == MR) return tile_any<MR, NP>(s, panel, x, ldx, out, ldo);
    tile_rows<NP, MR - 1>(s, panel, x, ldx, rows, out, ldo);
  }
}

template <int NP>
void tile_panels(const PanelShape& s, const uint8_t* const* panel, const float* x, size_t ldx, int rows, float* out,
                 size_t ldo) {
  constexpr int kRows = rows_for<NP>();
  const int step = quantized(s) ? std::min(kRows, kMaxDirectRows) : kRows;
  for (int r = 0; r < rows; r += step) {
    int n = std::min(step, rows - r);
    tile_rows<NP, kRows>(s, panel, x + size_t(r) * ldx, ldx, n, out + size_t(r) * ldo, ldo);
  }
}

void tile(const PanelShape& s, const uint8_t* const* panel, int panels, const float* x, size_t ldx, int rows,
          float* out, size_t ldo) {
  switch (panels) {
    case 1:
      return tile_panels<1>(s, panel, x, ldx, rows, out, ldo);
    case 2:
      return tile_panels<2>(s, panel, x, ldx, rows, out, ldo);
    case 4:
      return tile_panels<4>(s, panel, x, ldx, rows, out, ldo);
  }
}

template <class S>
void decode_q(const PanelShape& sh, const uint8_t* p, float* out) {
  const bool four = sh.format == Format::q4;
  for (int g = 0; g < sh.k; g += sh.group) {
    f32x16 s = S::load(p), b = S::load(p + S::bytes);
    p += 2 * S::bytes;
    if (four) {
      for (int i = 0; i < sh.group; i += 8, p += 64, out += 8 * kLanes) {
        nibbles16 n = load_nibbles(reinterpret_cast<const uint32_t*>(p));
        store16(out, fma16(n.nibble<0>(), s, b));
        store16(out + 16, fma16(n.nibble<1>(), s, b));
        store16(out + 32, fma16(n.nibble<2>(), s, b));
        store16(out + 48, fma16(n.nibble<3>(), s, b));
        store16(out + 64, fma16(n.nibble<4>(), s, b));
        store16(out + 80, fma16(n.nibble<5>(), s, b));
        store16(out + 96, fma16(n.nibble<6>(), s, b));
        store16(out + 112, fma16(n.nibble<7>(), s, b));
      }
    } else {
      for (int i = 0; i < sh.group; i++, p += kLanes, out += kLanes) store16(out, fma16(load_u8(p), s, b));
    }
  }
}

template <class D>
void decode_dense(int k, const uint8_t* p, float* out) {
  for (int i = 0; i < k; i++) store16(out + size_t(i) * kLanes, D::load(p + size_t(i) * D::bytes));
}

void decode(const PanelShape& s, const uint8_t* panel, float* out) {
  switch (s.format) {
    case Format::f32:
      return decode_dense<DenseF32>(s.k, panel, out);
    case Format::bf16:
      return decode_dense<DenseBF16>(s.k, panel, out);
    case Format::f16:
      return decode_dense<DenseF16>(s.k, panel, out);
    default:
      break;
  }
  switch (s.scale) {
    case Scale::f32:
      return decode_q<ScaleF32>(s, panel, out);
    case Scale::bf16:
      return decode_q<ScaleBF16>(s, panel, out);
    case Scale::f16:
      return decode_q<ScaleF16>(s, panel, out);
  }
}

// exp(x) for x <= 0 and moderate positive x: Cephes' expf reduction (Cody-Waite in two parts, degree 5), 1 ulp.
// Below -87.3 it is 0 (no denormals), above 88 it saturates to exp(88).
inline f32x16 exp16(f32x16 x) {
  const f32x16 lo = set16(-87.33654f), hi = set16(88.0f);
  f32x16 c = min16(max16(x, lo), hi);
  f32x16 n = round16(mul16(c, set16(1.44269504088896341f)));
  f32x16 r = fma16(n, set16(-0.693359375f), c);
  r = fma16(n, set16(2.12194440e-4f), r);
  f32x16 p = set16(1.9875691500e-4f);
  p = fma16(p, r, set16(1.3981999507e-3f));
  p = fma16(p, r, set16(8.3334519073e-3f));
  p = fma16(p, r, set16(4.1665795894e-2f));
  p = fma16(p, r, set16(1.6666665459e-1f));
  p = fma16(p, r, set16(5.0000001201e-1f));
  p = fma16(p, mul16(r, r), add16(r, set16(1.0f)));
  return zero_below16(scale2_16(p, n), x, lo);
}

inline f32x16 load_tail(const float* p, int n, float fill) {
  if (n >= kLanes) return load16(p);
  float t[kLanes];
  for (int i = 0; i < kLanes; i++) t[i] = i < n ? p[i] : fill;
  return load16(t);
}
inline void store_tail(float* p, int n, f32x16 v) {
  if (n >= kLanes) return store16(p, v);
  float t[kLanes];
  store16(t, v);
  std::memcpy(p, t, size_t(n) * 4);
}

float sum_squares(const float* x, int n) {
  f32x16 acc = zero16();
  for (int i = 0; i < n; i += kLanes) {
    f32x16 v = load_tail(x + i, n - i, 0);
    acc = fma16(v, v, acc);
  }
  return sum_lanes(acc);
}

void scale_mul(const float* x, float s, const float* w, int n, float* out) {
  f32x16 sv = set16(s);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 v = mul16(load_tail(x + i, n - i, 0), sv);
    if (w) v = mul16(v, load_tail(w + i, n - i, 0));
    store_tail(out + i, n - i, v);
  }
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
  const f32x16 one = set16(1.0f);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 g = load_tail(gate + i, n - i, 0);
    f32x16 sig = div16(one, add16(one, exp16(sub16(zero16(), g))));
    store_tail(out + i, n - i, mul16(mul16(g, sig), load_tail(up + i, n - i, 0)));
  }
}

// tanh(x) = 1 - 2 / (exp(2x) + 1), saturating.
void gelu_tanh_mul(const float* gate, const float* up, int n, float* out) {
  const f32x16 one = set16(1.0f), half = set16(0.5f), two = set16(2.0f);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 g = load_tail(gate + i, n - i, 0);
    f32x16 inner = mul16(set16(0.7978845608028654f), fma16(mul16(set16(0.044715f), mul16(g, g)), g, g));
    f32x16 e = exp16(mul16(two, inner));
    f32x16 t = sub16(one, div16(two, add16(e, one)));
    store_tail(out + i, n - i, mul16(mul16(mul16(half, g), add16(one, t)), load_tail(up + i, n - i, 0)));
  }
}

float exp_sum(const float* s, float m, int n, float* p) {
  f32x16 acc = zero16();
  const f32x16 mv = set16(m);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 e = exp16(sub16(load16(s + i), mv));
    if (n - i < kLanes) {
      float t[kLanes];
      store16(t, e);
      for (int j = n - i; j < kLanes; j++) t[j] = 0;
      e = load16(t);
    }
    store16(p + i, e);
    acc = add16(acc, e);
  }
  return sum_lanes(acc);
}

float max_of(const float* s, int n) {
  f32x16 acc = set16(-INFINITY);
  for (int i = 0; i < n; i += kLanes) acc = max16(load_tail(s + i, n - i, -INFINITY), acc);
  return max_lanes(acc);
}

void scale_add(float* acc, float a, const float* x, float b, int n) {
  const f32x16 av = set16(a), bv = set16(b);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 v = mul16(load_tail(acc + i, n - i, 0), av);
    store_tail(acc + i, n - i, fma16(load_tail(x + i, n - i, 0), bv, v));
  }
}

template <class D>
void widen_half(const uint16_t* x, size_t n, float* out) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store16(out + i, D::load(reinterpret_cast<const uint8_t*>(x + i)));
  if (i < n) {
    uint16_t t[kLanes] = {};
    std::memcpy(t, x + i, (n - i) * 2);
    store_tail(out + i, int(n - i), D::load(reinterpret_cast<const uint8_t*>(t)));
  }
}

void widen(DType d, const void* x, size_t n, float* out) {
  switch (d) {
    case DType::f32:
      if (n) std::memcpy(out, x, n * 4);
      return;
    case DType::bf16:
      return widen_half<DenseBF16>(static_cast<const uint16_t*>(x), n, out);
    case DType::f16:
      return widen_half<DenseF16>(static_cast<const uint16_t*>(x), n, out);
  }
}

void narrow(DType d, const float* x, size_t n, void* out) {
  uint16_t* h = static_cast<uint16_t*>(out);
  switch (d) {
    case DType::f32:
      if (n) std::memcpy(out, x, n * 4);
      return;
    case DType::bf16:
      for (size_t i = 0; i < n; i++) h[i] = f32_to_bf16(x[i]);
      return;
    case DType::f16:
      for (; n >= kLanes; n -= kLanes, x += kLanes, h += kLanes) store_f16(h, load16(x));
      for (size_t i = 0; i < n; i++) h[i] = f32_to_f16(x[i]);
      return;
  }
}

template <class D>
inline void transpose_rows(const uint8_t* src, size_t ld, int rows, int d, float* out) {
  constexpr size_t size = D::bytes / kLanes;
  int i = 0;
#if defined(__AVX512F__)
  for (; i + kLanes <= d; i += kLanes, out += kLanes * kLanes) {
    __m512 r[kLanes];
    for (int j = 0; j < kLanes; j++)
      r[j] = j < rows ? D::load(src + (size_t(j) * ld + i) * size).v : _mm512_setzero_ps();
    transpose_block(r, out);
  }
#endif
  for (; i < d; i++, out += kLanes)
    for (int j = 0; j < kLanes; j++) out[j] = j < rows ? load_one<D>(src + (size_t(j) * ld + i) * size) : 0.0f;
}

void transpose(DType t, const void* src, size_t ld, int rows, int d, float* out) {
  const uint8_t* s = static_cast<const uint8_t*>(src);
  switch (t) {
    case DType::f32:
      return transpose_rows<DenseF32>(s, ld, rows, d, out);
    case DType::bf16:
      return transpose_rows<DenseBF16>(s, ld, rows, d, out);
    case DType::f16:
      return transpose_rows<DenseF16>(s, ld, rows, d, out);
  }
}

const Level kTable = {CLADE_LEVEL_NAME, kMaxDirectRows, tile,   decode,    sum_squares, scale_mul, silu_mul,
                      gelu_tanh_mul,    exp_sum,        max_of, scale_add, widen,       narrow,    transpose};

}  // namespace

const Level* const CLADE_LEVEL = &kTable;

}  // namespace clade
