// Products of rows rounded to 8 bits with quantized panels.
//
// Invariant: an output element is, for every block in order, fma(scale of x * exact sum of codes, scale of w, acc), and behind a
// group's blocks fma(bias of w, sum of x, acc). Sums of codes are integers, so that every instruction set gives the same bits.

// 64 bytes: four codes in each of the sixteen lanes.
#if defined(__AVX512F__)
struct codes16 {
  __m512i v;
};
inline codes16 load_codes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline codes16 low_nibbles(codes16 c) { return {_mm512_and_si512(c.v, _mm512_set1_epi8(15))}; }
inline codes16 high_nibbles(codes16 c) {
  return {_mm512_and_si512(_mm512_srli_epi32(c.v, 4), _mm512_set1_epi8(15))};
}
#elif defined(__AVX2__)
struct codes16 {
  __m256i a, b;
};
inline codes16 load_codes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline codes16 low_nibbles(codes16 c) {
  const __m256i m = _mm256_set1_epi8(15);
  return {_mm256_and_si256(c.a, m), _mm256_and_si256(c.b, m)};
}
inline codes16 high_nibbles(codes16 c) {
  return low_nibbles({_mm256_srli_epi32(c.a, 4), _mm256_srli_epi32(c.b, 4)});
}
#elif defined(__ARM_NEON)
struct codes16 {
  uint8x16_t q[4];
};
inline codes16 load_codes(const uint8_t* p) { return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}}; }
inline codes16 low_nibbles(codes16 c) {
  for (auto& q : c.q) q = vandq_u8(q, vdupq_n_u8(15));
  return c;
}
inline codes16 high_nibbles(codes16 c) {
  for (auto& q : c.q) q = vshrq_n_u8(q, 4);
  return c;
}
#else
struct codes16 {
  uint8_t b[64];
};
inline codes16 load_codes(const uint8_t* p) {
  codes16 c;
  std::memcpy(c.b, p, 64);
  return c;
}
inline codes16 low_nibbles(codes16 c) {
  for (auto& b : c.b) b &= 15;
  return c;
}
inline codes16 high_nibbles(codes16 c) {
  for (auto& b : c.b) b >>= 4;
  return c;
}
#endif

inline int32_t four_codes(const int8_t* x) {
  int32_t v;
  std::memcpy(&v, x, 4);
  return v;
}

// Sums of one block: add takes four codes of each lane, at most 15, and four of x; a block has eight calls at most, which is
// what sixteen bits hold. value is the sums as floats, which hold them exactly.
#if defined(__AVX512VNNI__)
struct DotSums {
  __m512i s = _mm512_setzero_si512();
  inline void add(codes16 w, const int8_t* x) { s = _mm512_dpbusd_epi32(s, w.v, _mm512_set1_epi32(four_codes(x))); }
  inline f32x16 value() const { return {_mm512_cvtepi32_ps(s)}; }
};
using WideDotSums = DotSums;  // codes up to 255
#elif defined(__AVXVNNI__)
struct DotSums {
  __m256i a = _mm256_setzero_si256(), b = _mm256_setzero_si256();
  inline void add(codes16 w, const int8_t* x) {
    const __m256i v = _mm256_set1_epi32(four_codes(x));
    a = _mm256_dpbusd_avx_epi32(a, w.a, v);
    b = _mm256_dpbusd_avx_epi32(b, w.b, v);
  }
  inline f32x16 value() const { return {_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)}; }
};
using WideDotSums = DotSums;
#else
#if defined(__AVX512F__)
struct i32x16 {
  __m512i v;
};
struct DotSums {
  __m512i s = _mm512_setzero_si512();  // of two products, in 16 bits
  inline void add(codes16 w, const int8_t* x) {
    s = _mm512_add_epi16(s, _mm512_maddubs_epi16(w.v, _mm512_set1_epi32(four_codes(x))));
  }
  inline i32x16 total() const { return {_mm512_madd_epi16(s, _mm512_set1_epi16(1))}; }
};
inline f32x16 float_sum(i32x16 low, i32x16 high) {
  return {_mm512_cvtepi32_ps(_mm512_add_epi32(low.v, _mm512_slli_epi32(high.v, 4)))};
}
#elif defined(__AVX2__)
struct i32x16 {
  __m256i a, b;
};
struct DotSums {
  __m256i a = _mm256_setzero_si256(), b = _mm256_setzero_si256();
  inline void add(codes16 w, const int8_t* x) {
    const __m256i v = _mm256_set1_epi32(four_codes(x));
    a = _mm256_add_epi16(a, _mm256_maddubs_epi16(w.a, v));
    b = _mm256_add_epi16(b, _mm256_maddubs_epi16(w.b, v));
  }
  inline i32x16 total() const {
    const __m256i one = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one)};
  }
};
inline f32x16 float_sum(i32x16 low, i32x16 high) {
  return {_mm256_cvtepi32_ps(_mm256_add_epi32(low.a, _mm256_slli_epi32(high.a, 4))),
          _mm256_cvtepi32_ps(_mm256_add_epi32(low.b, _mm256_slli_epi32(high.b, 4)))};
}
#elif defined(__ARM_NEON)
struct i32x16 {
  int32x4_t q[4];
};
#if defined(__ARM_FEATURE_DOTPROD)
struct DotSums {
  int32x4_t s[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
  inline void add(codes16 w, const int8_t* x) {
    const int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32(four_codes(x)));
    for (int i = 0; i < 4; i++) s[i] = vdotq_s32(s[i], vreinterpretq_s8_u8(w.q[i]), v);
  }
  inline i32x16 total() const { return {{s[0], s[1], s[2], s[3]}}; }
};
#else
struct DotSums {
  int16x8_t s[4] = {vdupq_n_s16(0), vdupq_n_s16(0), vdupq_n_s16(0), vdupq_n_s16(0)};
  inline void add(codes16 w, const int8_t* x) {
    const int8x8_t v = vreinterpret_s8_s32(vdup_n_s32(four_codes(x)));
    for (int i = 0; i < 4; i++) {
      const int8x16_t c = vreinterpretq_s8_u8(w.q[i]);
      s[i] = vaddq_s16(s[i], vpaddq_s16(vmull_s8(vget_low_s8(c), v), vmull_s8(vget_high_s8(c), v)));
    }
  }
  inline i32x16 total() const { return {{vpaddlq_s16(s[0]), vpaddlq_s16(s[1]), vpaddlq_s16(s[2]), vpaddlq_s16(s[3])}}; }
};
#endif
inline f32x16 float_sum(i32x16 low, i32x16 high) {
  f32x16 r;
  for (int i = 0; i < 4; i++) r.q[i] = vcvtq_f32_s32(vaddq_s32(low.q[i], vshlq_n_s32(high.q[i], 4)));
  return r;
}
#else
struct i32x16 {
  int32_t v[16];
};
struct DotSums {
  int32_t s[16] = {};
  inline void add(const codes16& w, const int8_t* x) {
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 4; j++) s[i] += int(w.b[4 * i + j]) * x[j];
  }
  inline i32x16 total() const {
    i32x16 r;
    std::memcpy(r.v, s, sizeof s);
    return r;
  }
};
inline f32x16 float_sum(const i32x16& low, const i32x16& high) {
  f32x16 r;
  for (int i = 0; i < 16; i++) r.f[i] = float(low.v[i] + high.v[i] * 16);
  return r;
}
#endif
// Without an instruction for unsigned bytes, a code of eight bits is two of four.
struct WideDotSums {
  DotSums low, high;
  inline void add(codes16 w, const int8_t* x) {
    low.add(low_nibbles(w), x);
    high.add(high_nibbles(w), x);
  }
  inline f32x16 value() const { return float_sum(low.total(), high.total()); }
};
struct NarrowDotSums : DotSums {
  inline f32x16 value() const { return float_sum(total(), DotSums().total()); }
};
#define CLADE_NARROW NarrowDotSums
#endif
#ifndef CLADE_NARROW
#define CLADE_NARROW DotSums
#endif

inline f32x16 load_scales(Scale s, const uint8_t* p) {
  switch (s) {
    case Scale::bf16:
      return BF16::load(p);
    case Scale::f16:
      return F16::load(p);
    default:
      return F32::load(p);
  }
}

// MR rows times NP panels of four- or eight-bit codes.
template <bool Four, int MR, int NP>
void dot_rows(const PanelShape& sh, const uint8_t* const* panel, const QuantRows& x, int row, float* out, size_t ldo) {
  using Sums = std::conditional_t<Four, CLADE_NARROW, WideDotSums>;
  constexpr size_t kColumn = Four ? 8 : 16;  // bytes of a panel's column
  const size_t sb = sh.scale == Scale::f32 ? 64 : 32, size = 2 * sb + size_t(sh.group) * kColumn;
  const size_t blocks = size_t(x.k / x.block), groups = size_t(x.k / x.group);
  f32x16 acc[MR][NP];
  for (auto& a : acc)
    for (auto& v : a) v = zero16();
  const uint8_t* p[NP];
  for (int j = 0; j < NP; j++) p[j] = panel[j];
  for (int g = 0; g < sh.k; g += sh.group) {
    const size_t ahead = 4 * size + (g + 4 * sh.group < sh.k ? 0 : sh.skip);
    for (int j = 0; j < NP; j++)
      for (size_t o = 0; o < size; o += 64) __builtin_prefetch(p[j] + ahead + o);
    for (int b = 0; b < sh.group; b += x.block) {
      Sums sums[MR][NP];
      const int8_t* codes = x.codes + size_t(row) * size_t(x.k) + size_t(g + b);
      for (int i = 0; i < x.block; i += 8, codes += 8) {
        codes16 even[NP], odd[NP];
#pragma GCC unroll 4
        for (int j = 0; j < NP; j++) {
          const uint8_t* w = p[j] + 2 * sb + size_t(b + i) * kColumn;
          const codes16 c = load_codes(w);
          even[j] = Four ? low_nibbles(c) : c;
          odd[j] = Four ? high_nibbles(c) : load_codes(w + 64 * !Four);
        }
#pragma GCC unroll 8
        for (int m = 0; m < MR; m++)
#pragma GCC unroll 4
          for (int j = 0; j < NP; j++) {
            sums[m][j].add(even[j], codes + size_t(m) * size_t(x.k));
            sums[m][j].add(odd[j], codes + size_t(m) * size_t(x.k) + 4);
          }
      }
      for (int j = 0; j < NP; j++) {
        const f32x16 s = load_scales(sh.scale, p[j]);
#pragma GCC unroll 8
        for (int m = 0; m < MR; m++) {
          const f32x16 by = set16(x.scales[size_t(row + m) * blocks + size_t((g + b) / x.block)]);
          acc[m][j] = fma16(mul16(sums[m][j].value(), by), s, acc[m][j]);
        }
      }
    }
    for (int j = 0; j < NP; j++) {
      const f32x16 bias = load_scales(sh.scale, p[j] + sb);
#pragma GCC unroll 8
      for (int m = 0; m < MR; m++)
        acc[m][j] = fma16(bias, set16(x.sums[size_t(row + m) * groups + size_t(g / sh.group)]), acc[m][j]);
      p[j] += size;
    }
  }
  for (int m = 0; m < MR; m++)
    for (int j = 0; j < NP; j++) store16(out + size_t(m) * ldo + j * kLanes, acc[m][j]);
}

#if defined(__AVX512F__)
constexpr int kDotRows = 12;  // times panels: what the registers hold
#elif defined(__AVX2__)
constexpr int kDotRows = 3;
#else
constexpr int kDotRows = 4;
#endif

template <int NP, int MR>
void dot_some(const PanelShape& s, const uint8_t* const* panel, const QuantRows& x, int row, int rows, float* out, size_t ldo) {
  if constexpr (MR > 0) {
    if (rows != MR) return dot_some<NP, MR - 1>(s, panel, x, row, rows, out, ldo);
    return s.format == Format::q4 ? dot_rows<true, MR, NP>(s, panel, x, row, out, ldo)
                                  : dot_rows<false, MR, NP>(s, panel, x, row, out, ldo);
  }
}

template <int NP>
void dot_panels(const PanelShape& s, const uint8_t* const* panel, const QuantRows& x, int row, int rows, float* out, size_t ldo) {
  constexpr int step = std::max(1, kDotRows / NP);
  for (int r = 0; r < rows; r += step)
    dot_some<NP, step>(s, panel, x, row + r, std::min(step, rows - r), out + size_t(r) * ldo, ldo);
}

void dot(const PanelShape& s, const uint8_t* const* panel, int panels, const QuantRows& x, int row, int rows, float* out,
         size_t ldo) {
  switch (panels) {
    case 1:
      return dot_panels<1>(s, panel, x, row, rows, out, ldo);
    case 2:
      return dot_panels<2>(s, panel, x, row, rows, out, ldo);
    case 4:
      return dot_panels<4>(s, panel, x, row, rows, out, ldo);
  }
}
