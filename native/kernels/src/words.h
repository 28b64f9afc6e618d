// Sixteen 32-bit words on every instruction set, for counters and random bits, and masks of lanes: every level agrees by nature.
#pragma once
#include "simd.h"

namespace clade {

// As in simd.h: a namespace a set.
#if defined(__AVX512F__)
inline namespace avx512 {

// A bit for each lane where a >= b; none where either is NaN.
inline uint32_t mask_ge16(f32x16 a, f32x16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
struct u32x16 {
  __m512i v;
};
inline u32x16 set16u(uint32_t x) { return {_mm512_set1_epi32(int(x))}; }
inline u32x16 load16u(const void* p) { return {_mm512_loadu_si512(p)}; }
inline void store16u(uint32_t* p, u32x16 a) { _mm512_storeu_si512(p, a.v); }
inline u32x16 add16u(u32x16 a, u32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline u32x16 xor16u(u32x16 a, u32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
// The halves of a * m.
inline void mul16u(u32x16 a, uint32_t m, u32x16* high, u32x16* low) {
  const __m512i k = _mm512_set1_epi32(int(m)), even = _mm512_mul_epu32(a.v, k), odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), k);
  *high = {_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd)};
  *low = {_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32))};
}
// a / 2 as floats.
inline f32x16 halves16(u32x16 a) { return {_mm512_cvtepi32_ps(_mm512_srli_epi32(a.v, 1))}; }

#elif defined(__AVX2__)
inline namespace avx2 {

inline uint32_t mask_ge16(f32x16 x, f32x16 y) {
  return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ))) |
         uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ))) << 8;
}
struct u32x16 {
  __m256i a, b;
};
inline u32x16 set16u(uint32_t x) { return {_mm256_set1_epi32(int(x)), _mm256_set1_epi32(int(x))}; }
inline u32x16 load16u(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void store16u(uint32_t* p, u32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}
inline u32x16 add16u(u32x16 x, u32x16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline u32x16 xor16u(u32x16 x, u32x16 y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
inline void mul8u(__m256i x, __m256i k, __m256i* high, __m256i* low) {
  const __m256i even = _mm256_mul_epu32(x, k), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), k);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
inline void mul16u(u32x16 x, uint32_t m, u32x16* high, u32x16* low) {
  const __m256i k = _mm256_set1_epi32(int(m));
  mul8u(x.a, k, &high->a, &low->a);
  mul8u(x.b, k, &high->b, &low->b);
}
inline f32x16 halves16(u32x16 x) { return {_mm256_cvtepi32_ps(_mm256_srli_epi32(x.a, 1)), _mm256_cvtepi32_ps(_mm256_srli_epi32(x.b, 1))}; }

#elif defined(__ARM_NEON)
inline namespace neon {

inline uint32_t mask_ge16(f32x16 a, f32x16 b) {
  static const uint32_t bits[4] = {1, 2, 4, 8};
  const uint32x4_t each = vld1q_u32(bits);
  uint32_t m = 0;
  for (int i = 0; i < 4; i++) m |= vaddvq_u32(vandq_u32(vcgeq_f32(a.q[i], b.q[i]), each)) << (4 * i);
  return m;
}
struct u32x16 {
  uint32x4_t q[4];
};
#define CLADE_MAPU(expr) \
  u32x16 r;             \
  for (int i = 0; i < 4; i++) r.q[i] = (expr); \
  return r
inline u32x16 set16u(uint32_t x) { CLADE_MAPU(vdupq_n_u32(x)); }
inline u32x16 load16u(const void* p) { CLADE_MAPU(vld1q_u32(static_cast<const uint32_t*>(p) + 4 * i)); }
inline void store16u(uint32_t* p, u32x16 a) {
  for (int i = 0; i < 4; i++) vst1q_u32(p + 4 * i, a.q[i]);
}
inline u32x16 add16u(u32x16 a, u32x16 b) { CLADE_MAPU(vaddq_u32(a.q[i], b.q[i])); }
inline u32x16 xor16u(u32x16 a, u32x16 b) { CLADE_MAPU(veorq_u32(a.q[i], b.q[i])); }
inline void mul16u(u32x16 a, uint32_t m, u32x16* high, u32x16* low) {
  for (int i = 0; i < 4; i++) {
    const uint32x4_t x = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(a.q[i]), m));
    const uint32x4_t y = vreinterpretq_u32_u64(vmull_n_u32(vget_high_u32(a.q[i]), m));
    high->q[i] = vuzp2q_u32(x, y);
    low->q[i] = vuzp1q_u32(x, y);
  }
}
inline f32x16 halves16(u32x16 a) {
  f32x16 r;
  for (int i = 0; i < 4; i++) r.q[i] = vcvtq_f32_s32(vreinterpretq_s32_u32(vshrq_n_u32(a.q[i], 1)));
  return r;
}
#undef CLADE_MAPU

#else
inline namespace generic {

inline uint32_t mask_ge16(f32x16 a, f32x16 b) {
  uint32_t m = 0;
  for (int i = 0; i < 16; i++) m |= uint32_t(a.f[i] >= b.f[i]) << i;
  return m;
}
struct u32x16 {
  uint32_t u[16];
};
#define CLADE_MAPU(expr)                        \
  u32x16 r;                                     \
  for (int i = 0; i < 16; i++) r.u[i] = (expr); \
  return r
inline u32x16 set16u(uint32_t x) { CLADE_MAPU(x); }
inline u32x16 load16u(const void* p) {
  u32x16 r;
  std::memcpy(r.u, p, sizeof r.u);
  return r;
}
inline void store16u(uint32_t* p, u32x16 a) { std::memcpy(p, a.u, sizeof a.u); }
inline u32x16 add16u(u32x16 a, u32x16 b) { CLADE_MAPU(a.u[i] + b.u[i]); }
inline u32x16 xor16u(u32x16 a, u32x16 b) { CLADE_MAPU(a.u[i] ^ b.u[i]); }
inline void mul16u(u32x16 a, uint32_t m, u32x16* high, u32x16* low) {
  for (int i = 0; i < 16; i++) {
    const uint64_t p = uint64_t(a.u[i]) * m;
    high->u[i] = uint32_t(p >> 32);
    low->u[i] = uint32_t(p);
  }
}
inline f32x16 halves16(u32x16 a) {
  f32x16 r;
  for (int i = 0; i < 16; i++) r.f[i] = float(int32_t(a.u[i] >> 1));
  return r;
}
#undef CLADE_MAPU

#endif

}  // inline namespace
}  // namespace clade
