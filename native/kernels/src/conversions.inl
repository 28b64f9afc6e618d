// Widening, rounding and transposing of stored elements.

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
      return widen_half<BF16>(static_cast<const uint16_t*>(x), n, out);
    case DType::f16:
      return widen_half<F16>(static_cast<const uint16_t*>(x), n, out);
  }
}

void narrow(DType d, const float* x, size_t n, void* out) {
  uint16_t* h = static_cast<uint16_t*>(out);
  switch (d) {
    case DType::f32:
      if (n) std::memcpy(out, x, n * 4);
      return;
    case DType::bf16:
#if defined(__AVX512F__)
      for (; n >= kLanes; n -= kLanes, x += kLanes, h += kLanes) store_bf16(h, load16(x));
#endif
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
    for (int j = 0; j < kLanes; j++) out[j] = j < rows ? D::one(src + (size_t(j) * ld + i) * size) : 0.0f;
}

void transpose(DType t, const void* src, size_t ld, int rows, int d, float* out) {
  const uint8_t* s = static_cast<const uint8_t*>(src);
  switch (t) {
    case DType::f32:
      return transpose_rows<F32>(s, ld, rows, d, out);
    case DType::bf16:
      return transpose_rows<BF16>(s, ld, rows, d, out);
    case DType::f16:
      return transpose_rows<F16>(s, ld, rows, d, out);
  }
}
