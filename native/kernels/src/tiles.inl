// Products of rows with panels, and the decoding of panels.
//
// Invariant: the value of an output element is fma(x[k], w[k], acc) for k = 0, 1, ... in order, whatever the number of
// rows or panels in a tile.

#if defined(__AVX512F__)
constexpr int kMaxRows = 12, kMaxDirectRows = 8, kTilePanels = 2;
#elif defined(__AVX2__)
constexpr int kMaxRows = 6, kMaxDirectRows = 4, kTilePanels = 1;
#elif defined(__ARM_NEON)
constexpr int kMaxRows = 5, kMaxDirectRows = 4, kTilePanels = 1;
#else
constexpr int kMaxRows = 4, kMaxDirectRows = 4, kTilePanels = 1;
#endif

// How many groups early a quantized panel's bytes are asked for.
constexpr int kAhead = 4;

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
void tile_q4(const PanelShape& sh, const uint8_t* const* panel, const float* x, size_t ldx, float* out, size_t ldo) {
  const int k = sh.k, group = sh.group;
  Accumulators<MR, NP> acc;
  acc.clear();
  const size_t block = 2 * S::bytes + size_t(group) * 8;
  const uint8_t* p[NP];
  for (int j = 0; j < NP; j++) p[j] = panel[j];
  for (int g = 0; g < k; g += group) {
    const size_t ahead = kAhead * block + (g + kAhead * group < k ? 0 : sh.skip);
    f32x16 s[NP], b[NP];
#pragma GCC unroll 4
    for (int j = 0; j < NP; j++) {
      s[j] = S::load(p[j]);
      b[j] = S::load(p[j] + S::bytes);
      for (size_t o = 0; o < block; o += 64) __builtin_prefetch(p[j] + ahead + o);
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

template <int I, int MR, int NP>
inline void byte_step(Accumulators<MR, NP>& acc, const bytes16 (&n)[NP], const f32x16 (&s)[NP], const f32x16 (&b)[NP],
                      const float* x, size_t ldx) {
  f32x16 w[NP];
#pragma GCC unroll 4
  for (int j = 0; j < NP; j++) w[j] = fma16(n[j].template byte<I>(), s[j], b[j]);
  acc.step(x, ldx, w);
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
    for (int i = 0; i < group; i += 8) {
      bytes16 even[NP], odd[NP];
#pragma GCC unroll 4
      for (int j = 0; j < NP; j++) {
        const uint8_t* words = p[j] + 2 * S::bytes + size_t(i) * kLanes;
        even[j] = load_bytes(words);
        odd[j] = load_bytes(words + 64);
      }
      const float* xi = x + g + i;
      byte_step<0>(acc, even, s, b, xi, ldx);
      byte_step<0>(acc, odd, s, b, xi + 1, ldx);
      byte_step<1>(acc, even, s, b, xi + 2, ldx);
      byte_step<1>(acc, odd, s, b, xi + 3, ldx);
      byte_step<2>(acc, even, s, b, xi + 4, ldx);
      byte_step<2>(acc, odd, s, b, xi + 5, ldx);
      byte_step<3>(acc, even, s, b, xi + 6, ldx);
      byte_step<3>(acc, odd, s, b, xi + 7, ldx);
    }
#pragma GCC unroll 4
    for (int j = 0; j < NP; j++) p[j] += block;
  }
  acc.store(out, ldo);
}

#include "trellis.inl"

template <int MR, int NP>
void tile_any(const PanelShape& s, const uint8_t* const* panel, const float* x, size_t ldx, float* out, size_t ldo) {
  switch (s.format) {
    case Format::f32:
      return tile_dense<F32, MR, NP>(s, panel, x, ldx, out, ldo);
    case Format::bf16:
      return tile_dense<BF16, MR, NP>(s, panel, x, ldx, out, ldo);
    case Format::f16:
      return tile_dense<F16, MR, NP>(s, panel, x, ldx, out, ldo);
    default:
      break;
  }
  // More rows than this are decoded first, and come here as floats.
  if constexpr (MR <= kMaxDirectRows) {
    if (s.format == Format::trellis) return tile_trellis<MR, NP>(s, panel, x, ldx, out, ldo);
    const bool four = s.format == Format::q4;
    switch (s.scale) {
      case Scale::f32:
        return four ? tile_q4<F32, MR, NP>(s, panel, x, ldx, out, ldo)
                    : tile_q8<F32, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo);
      case Scale::bf16:
        return four ? tile_q4<BF16, MR, NP>(s, panel, x, ldx, out, ldo)
                    : tile_q8<BF16, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo);
      case Scale::f16:
        return four ? tile_q4<F16, MR, NP>(s, panel, x, ldx, out, ldo)
                    : tile_q8<F16, MR, NP>(s.k, s.group, panel, x, ldx, out, ldo);
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
      for (int i = 0; i < sh.group; i += 8, p += 128, out += 8 * kLanes) {
        const bytes16 even = load_bytes(p), odd = load_bytes(p + 64);
        store16(out, fma16(even.byte<0>(), s, b));
        store16(out + 16, fma16(odd.byte<0>(), s, b));
        store16(out + 32, fma16(even.byte<1>(), s, b));
        store16(out + 48, fma16(odd.byte<1>(), s, b));
        store16(out + 64, fma16(even.byte<2>(), s, b));
        store16(out + 80, fma16(odd.byte<2>(), s, b));
        store16(out + 96, fma16(even.byte<3>(), s, b));
        store16(out + 112, fma16(odd.byte<3>(), s, b));
      }
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
      return decode_dense<F32>(s.k, panel, out);
    case Format::bf16:
      return decode_dense<BF16>(s.k, panel, out);
    case Format::f16:
      return decode_dense<F16>(s.k, panel, out);
    case Format::trellis:
      return decode_trellis(s, panel, out);
    default:
      break;
  }
  switch (s.scale) {
    case Scale::f32:
      return decode_q<F32>(s, panel, out);
    case Scale::bf16:
      return decode_q<BF16>(s, panel, out);
    case Scale::f16:
      return decode_q<F16>(s, panel, out);
  }
}
