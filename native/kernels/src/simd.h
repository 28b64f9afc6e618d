// Sixteen float lanes, the width of a weight panel, on every instruction set.
//
// Every operation here is element-wise with one rounding, so a kernel written on it gives the same bits at every
// dispatch level: fma is fused everywhere, and nothing reduces across lanes except the two named reductions, which walk
// the lanes in one fixed tree.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace clade {

// The functions below have one name and a meaning for each instruction set: a namespace a set keeps the linker from taking one
// set's copy for another's.
#if defined(__AVX512F__)
inline namespace avx512 {
#elif defined(__AVX2__)
inline namespace avx2 {
#elif defined(__ARM_NEON)
inline namespace neon {
#else
inline namespace generic {
#endif

constexpr int kLanes = 16;

inline float bf16_to_f32(uint16_t h) {
  uint32_t u = uint32_t(h) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

inline float f16_to_f32(uint16_t h) {
  int e = (h >> 10) & 31, m = h & 1023;
  float v = e == 0 ? std::ldexp(float(m), -24) : e == 31 ? (m ? NAN : INFINITY) : std::ldexp(float(m | 1024), e - 25);
  return h & 0x8000 ? -v : v;
}
// Both round to nearest even; NaN stays NaN.
inline uint16_t f32_to_bf16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  uint32_t rounded = u + 0x7fff + (u >> 16 & 1), nan = u | 0x400000;  // selected without a branch: loops vectorize
  return uint16_t(((u & 0x7fffffff) > 0x7f800000 ? nan : rounded) >> 16);
}
inline uint16_t f32_to_f16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  uint16_t sign = uint16_t(u >> 16 & 0x8000);
  u &= 0x7fffffff;
  if (u > 0x7f800000) return sign | 0x7e00;
  if (u >= 0x477ff000) return sign | 0x7c00;  // 65520 and up round to infinity
  if (u < 0x38800000) {                       // below 2^-14: multiples of 2^-24
    float a;
    std::memcpy(&a, &u, 4);
    return sign | uint16_t(std::nearbyint(std::ldexp(a, 24)));
  }
  uint32_t r = u + 0xfff + (u >> 13 & 1);
  return sign | uint16_t((r - 0x38000000) >> 13);
}

#if defined(__AVX512F__)

struct f32x16 {
  __m512 v;
};
inline f32x16 zero16() { return {_mm512_setzero_ps()}; }
inline f32x16 set16(float x) { return {_mm512_set1_ps(x)}; }
inline f32x16 load16(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store16(float* p, f32x16 a) { _mm512_storeu_ps(p, a.v); }
inline f32x16 fma16(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline f32x16 add16(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline f32x16 sub16(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline f32x16 mul16(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline f32x16 div16(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline f32x16 max16(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline f32x16 min16(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline f32x16 round16(f32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// x * 2^n for integral n in [-126, 127].
inline f32x16 scale2_16(f32x16 x, f32x16 n) {
  __m512i e = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23);
  return {_mm512_mul_ps(x.v, _mm512_castsi512_ps(e))};
}
// v where x >= lo, else 0.
inline f32x16 zero_below16(f32x16 v, f32x16 x, f32x16 lo) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, lo.v, _CMP_GE_OQ), v.v)};
}
inline f32x16 load_bf16(const uint16_t* p) {
  __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(u, 16))};
}
inline f32x16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store_f16(uint16_t* p, f32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void store_bf16(uint16_t* p, f32x16 a) {
  const __m512i u = _mm512_castps_si512(a.v);
  const __m512i even = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
  const __m512i nan = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  const __m512i r = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), nan);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}
// Sixteen words of eight nibbles each; nibble(i) gives nibble i of every word as a float.
struct nibbles16 {
  __m512i w;
  template <int I>
  inline f32x16 nibble() const {
    const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return {_mm512_permutexvar_ps(_mm512_srli_epi32(w, 4 * I), table)};
  }
};
inline nibbles16 load_nibbles(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
// Sixteen words of four bytes each, in the same way.
struct bytes16 {
  __m512i w;
  template <int I>
  inline f32x16 byte() const {
    return {_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(w, 8 * I), _mm512_set1_epi32(255)))};
  }
};
inline bytes16 load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
// Sixteen small integers, from as many bytes or nibbles (the low one first).
struct small16 {
  __m512i v;
};
inline small16 load_codes8(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline small16 load_codes4(const uint8_t* p) {
  const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), m = _mm_set1_epi8(15);
  return {_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(_mm_and_si128(x, m), _mm_and_si128(_mm_srli_epi16(x, 4), m)))};
}
inline f32x16 to_f32(small16 c) { return {_mm512_cvtepi32_ps(c.v)}; }
// table[code] of a table of 2^Bits floats.
template <int Bits>
inline f32x16 lookup16(const float* table, small16 c) {
  if constexpr (Bits == 4) return {_mm512_permutexvar_ps(c.v, _mm512_loadu_ps(table))};
  if constexpr (Bits < 4) {
    const __mmask16 m = __mmask16((1u << (1 << Bits)) - 1);
    return {_mm512_permutexvar_ps(c.v, _mm512_maskz_loadu_ps(m, table))};
  }
  if constexpr (Bits == 5) return {_mm512_permutex2var_ps(_mm512_loadu_ps(table), c.v, _mm512_loadu_ps(table + 16))};
  return {_mm512_i32gather_ps(c.v, table, 4)};
}

#elif defined(__AVX2__)

struct f32x16 {
  __m256 a, b;
};
inline f32x16 zero16() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline f32x16 set16(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline f32x16 load16(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store16(float* p, f32x16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline f32x16 fma16(f32x16 x, f32x16 y, f32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline f32x16 add16(f32x16 x, f32x16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline f32x16 sub16(f32x16 x, f32x16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline f32x16 mul16(f32x16 x, f32x16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline f32x16 div16(f32x16 x, f32x16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline f32x16 max16(f32x16 x, f32x16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline f32x16 min16(f32x16 x, f32x16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline f32x16 round16(f32x16 x) {
  constexpr int m = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, m), _mm256_round_ps(x.b, m)};
}
inline __m256 scale2_8(__m256 x, __m256 n) {
  __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(x, _mm256_castsi256_ps(e));
}
inline f32x16 scale2_16(f32x16 x, f32x16 n) { return {scale2_8(x.a, n.a), scale2_8(x.b, n.b)}; }
inline f32x16 zero_below16(f32x16 v, f32x16 x, f32x16 lo) {
  return {_mm256_and_ps(v.a, _mm256_cmp_ps(x.a, lo.a, _CMP_GE_OQ)),
          _mm256_and_ps(v.b, _mm256_cmp_ps(x.b, lo.b, _CMP_GE_OQ))};
}
inline __m256 load_bf16_8(const uint16_t* p) {
  __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}
inline f32x16 load_bf16(const uint16_t* p) { return {load_bf16_8(p), load_bf16_8(p + 8)}; }
inline f32x16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void store_f16(uint16_t* p, f32x16 x) {
  constexpr int m = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, m));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, m));
}
struct nibbles16 {
  __m256i a, b;
  template <int I>
  inline f32x16 nibble() const {
    const __m256i m = _mm256_set1_epi32(15);
    return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(a, 4 * I), m)),
            _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(b, 4 * I), m))};
  }
};
inline nibbles16 load_nibbles(const uint32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
struct bytes16 {
  __m256i a, b;
  template <int I>
  inline f32x16 byte() const {
    const __m256i m = _mm256_set1_epi32(255);
    return {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(a, 8 * I), m)),
            _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(b, 8 * I), m))};
  }
};
inline bytes16 load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
struct small16 {
  __m256i a, b;
};
inline small16 widen_codes(__m128i x) { return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))}; }
inline small16 load_codes8(const uint8_t* p) { return widen_codes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline small16 load_codes4(const uint8_t* p) {
  const __m128i x = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), m = _mm_set1_epi8(15);
  return widen_codes(_mm_unpacklo_epi8(_mm_and_si128(x, m), _mm_and_si128(_mm_srli_epi16(x, 4), m)));
}
inline f32x16 to_f32(small16 c) { return {_mm256_cvtepi32_ps(c.a), _mm256_cvtepi32_ps(c.b)}; }
template <int Bits>
inline f32x16 lookup16(const float* table, small16 c) {
  if constexpr (Bits == 3) {
    const __m256 t = _mm256_loadu_ps(table);
    return {_mm256_permutevar8x32_ps(t, c.a), _mm256_permutevar8x32_ps(t, c.b)};
  }
  return {_mm256_i32gather_ps(table, c.a, 4), _mm256_i32gather_ps(table, c.b, 4)};
}

#elif defined(__ARM_NEON)

struct f32x16 {
  float32x4_t q[4];
};
#define CLADE_MAP(expr) \
  f32x16 r;             \
  for (int i = 0; i < 4; i++) r.q[i] = (expr); \
  return r
inline f32x16 set16(float x) { CLADE_MAP(vdupq_n_f32(x)); }
inline f32x16 zero16() { return set16(0); }
inline f32x16 load16(const float* p) { CLADE_MAP(vld1q_f32(p + 4 * i)); }
inline void store16(float* p, f32x16 a) {
  for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.q[i]);
}
inline f32x16 fma16(f32x16 a, f32x16 b, f32x16 c) { CLADE_MAP(vfmaq_f32(c.q[i], a.q[i], b.q[i])); }
inline f32x16 add16(f32x16 a, f32x16 b) { CLADE_MAP(vaddq_f32(a.q[i], b.q[i])); }
inline f32x16 sub16(f32x16 a, f32x16 b) { CLADE_MAP(vsubq_f32(a.q[i], b.q[i])); }
inline f32x16 mul16(f32x16 a, f32x16 b) { CLADE_MAP(vmulq_f32(a.q[i], b.q[i])); }
inline f32x16 div16(f32x16 a, f32x16 b) { CLADE_MAP(vdivq_f32(a.q[i], b.q[i])); }
// x86's max: the second operand when either is NaN.
inline f32x16 max16(f32x16 a, f32x16 b) { CLADE_MAP(vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i])); }
inline f32x16 min16(f32x16 a, f32x16 b) { CLADE_MAP(vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i])); }
inline f32x16 round16(f32x16 a) { CLADE_MAP(vrndnq_f32(a.q[i])); }
inline f32x16 scale2_16(f32x16 x, f32x16 n) {
  CLADE_MAP(vmulq_f32(x.q[i], vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.q[i]), vdupq_n_s32(127)), 23))));
}
inline f32x16 zero_below16(f32x16 v, f32x16 x, f32x16 lo) {
  CLADE_MAP(vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v.q[i]), vcgeq_f32(x.q[i], lo.q[i]))));
}
inline f32x16 load_bf16(const uint16_t* p) {
  CLADE_MAP(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)));
}
inline f32x16 load_f16(const uint16_t* p) { CLADE_MAP(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)))); }
inline void store_f16(uint16_t* p, f32x16 a) {
  for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.q[i])));
}
struct nibbles16 {
  uint32x4_t q[4];
  template <int I>
  inline f32x16 nibble() const {
    f32x16 r;
    for (int i = 0; i < 4; i++) {
      r.q[i] = vcvtq_f32_u32(vandq_u32(vshlq_u32(q[i], vdupq_n_s32(-4 * I)), vdupq_n_u32(15)));
    }
    return r;
  }
};
inline nibbles16 load_nibbles(const uint32_t* p) {
  nibbles16 n;
  for (int i = 0; i < 4; i++) n.q[i] = vld1q_u32(p + 4 * i);
  return n;
}
struct bytes16 {
  uint32x4_t q[4];
  template <int I>
  inline f32x16 byte() const {
    f32x16 r;
    for (int i = 0; i < 4; i++) r.q[i] = vcvtq_f32_u32(vandq_u32(vshlq_u32(q[i], vdupq_n_s32(-8 * I)), vdupq_n_u32(255)));
    return r;
  }
};
inline bytes16 load_bytes(const uint8_t* p) {
  bytes16 r;
  for (int i = 0; i < 4; i++) r.q[i] = vreinterpretq_u32_u8(vld1q_u8(p + 16 * i));
  return r;
}
struct small16 {
  uint8_t c[16];
};
inline small16 load_codes8(const uint8_t* p) {
  small16 r;
  std::memcpy(r.c, p, 16);
  return r;
}
inline small16 load_codes4(const uint8_t* p) {
  const uint8x8_t x = vld1_u8(p);
  const uint8x8x2_t z = vzip_u8(vand_u8(x, vdup_n_u8(15)), vshr_n_u8(x, 4));
  small16 r;
  vst1_u8(r.c, z.val[0]);
  vst1_u8(r.c + 8, z.val[1]);
  return r;
}
inline f32x16 to_f32(const small16& c) {
  const uint8x16_t x = vld1q_u8(c.c);
  const uint16x8_t lo = vmovl_u8(vget_low_u8(x)), hi = vmovl_u8(vget_high_u8(x));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(lo))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(lo))),
          vcvtq_f32_u32(vmovl_u16(vget_low_u16(hi))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(hi)))};
}
template <int Bits>
inline f32x16 lookup16(const float* table, const small16& c) {
  float t[16];
  for (int i = 0; i < 16; i++) t[i] = table[c.c[i]];
  return load16(t);
}
#undef CLADE_MAP

#else

// Plain C++: correct everywhere, fast nowhere.
struct f32x16 {
  float f[16];
};
#define CLADE_MAP(expr)                         \
  f32x16 r;                                     \
  for (int i = 0; i < 16; i++) r.f[i] = (expr); \
  return r
inline f32x16 set16(float x) { CLADE_MAP(x); }
inline f32x16 zero16() { return set16(0); }
inline f32x16 load16(const float* p) { CLADE_MAP(p[i]); }
inline void store16(float* p, f32x16 a) { std::memcpy(p, a.f, sizeof a.f); }
inline f32x16 fma16(f32x16 a, f32x16 b, f32x16 c) { CLADE_MAP(std::fma(a.f[i], b.f[i], c.f[i])); }
inline f32x16 add16(f32x16 a, f32x16 b) { CLADE_MAP(a.f[i] + b.f[i]); }
inline f32x16 sub16(f32x16 a, f32x16 b) { CLADE_MAP(a.f[i] - b.f[i]); }
inline f32x16 mul16(f32x16 a, f32x16 b) { CLADE_MAP(a.f[i] * b.f[i]); }
inline f32x16 div16(f32x16 a, f32x16 b) { CLADE_MAP(a.f[i] / b.f[i]); }
inline f32x16 max16(f32x16 a, f32x16 b) { CLADE_MAP(a.f[i] > b.f[i] ? a.f[i] : b.f[i]); }
inline f32x16 min16(f32x16 a, f32x16 b) { CLADE_MAP(a.f[i] < b.f[i] ? a.f[i] : b.f[i]); }
inline f32x16 round16(f32x16 a) { CLADE_MAP(std::nearbyint(a.f[i])); }
inline f32x16 scale2_16(f32x16 x, f32x16 n) { CLADE_MAP(std::ldexp(x.f[i], int(n.f[i]))); }
inline f32x16 zero_below16(f32x16 v, f32x16 x, f32x16 lo) { CLADE_MAP(x.f[i] >= lo.f[i] ? v.f[i] : 0.0f); }
inline f32x16 load_bf16(const uint16_t* p) { CLADE_MAP(bf16_to_f32(p[i])); }
inline f32x16 load_f16(const uint16_t* p) { CLADE_MAP(f16_to_f32(p[i])); }
inline void store_f16(uint16_t* p, f32x16 a) {
  for (int i = 0; i < 16; i++) p[i] = f32_to_f16(a.f[i]);
}
struct nibbles16 {
  const uint32_t* p;
  template <int I>
  inline f32x16 nibble() const {
    CLADE_MAP(float((p[i] >> (4 * I)) & 15));
  }
};
inline nibbles16 load_nibbles(const uint32_t* p) { return {p}; }
struct bytes16 {
  const uint8_t* p;
  template <int I>
  inline f32x16 byte() const {
    CLADE_MAP(float(p[4 * i + I]));
  }
};
inline bytes16 load_bytes(const uint8_t* p) { return {p}; }
struct small16 {
  uint8_t c[16];
};
inline small16 load_codes8(const uint8_t* p) {
  small16 r;
  std::memcpy(r.c, p, 16);
  return r;
}
inline small16 load_codes4(const uint8_t* p) {
  small16 r;
  for (int i = 0; i < 16; i++) r.c[i] = p[i / 2] >> (i % 2 * 4) & 15;
  return r;
}
inline f32x16 to_f32(const small16& c) { CLADE_MAP(float(c.c[i])); }
template <int Bits>
inline f32x16 lookup16(const float* table, const small16& c) {
  CLADE_MAP(table[c.c[i]]);
}
#undef CLADE_MAP

#endif

// Reductions over the lanes in one fixed tree: halves, quarters, eighths, pairs.
inline float sum_lanes(f32x16 a) {
  float t[16];
  store16(t, a);
  for (int h = 8; h; h >>= 1)
    for (int i = 0; i < h; i++) t[i] += t[i + h];
  return t[0];
}
inline float max_lanes(f32x16 a) {
  float t[16];
  store16(t, a);
  for (int h = 8; h; h >>= 1)
    for (int i = 0; i < h; i++) t[i] = t[i] > t[i + h] ? t[i] : t[i + h];
  return t[0];
}

}  // inline namespace
}  // namespace clade
