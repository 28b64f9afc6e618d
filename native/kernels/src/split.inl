// Products of rows split into three planes of 8 bits with quantized panels: x is scale * (65536 high + 256 middle + low), 24 bits of
// the largest value of its block, so that float32's own error is not exceeded, and the dot instructions do the work.
//
// Invariant: an output element is, for every block in order, fma(scale of x * (sum of codes as floats), scale of w, acc), and behind a
// group's blocks fma(bias of w, sum of x, acc). Sums of a plane are integers below 2^24; the planes are joined by two fma.

template <bool Four, int MR, int NP>
void split_rows(const PanelShape& sh, const uint8_t* const* panel, const QuantRows& x, int row, float* out, size_t ldo) {
  using Sums = std::conditional_t<Four, CLADE_NARROW, WideDotSums>;
  constexpr size_t kColumn = Four ? 8 : 16;  // bytes of a panel's column
  const size_t sb = sh.scale == Scale::f32 ? 64 : 32, size = 2 * sb + size_t(sh.group) * kColumn;
  const size_t blocks = size_t(x.k / x.block), groups = size_t(x.k / x.group), k = size_t(x.k);
  f32x16 acc[MR][NP];
  for (auto& a : acc)
    for (auto& v : a) v = zero16();
  const uint8_t* p[NP];
  for (int j = 0; j < NP; j++) p[j] = panel[j];
  for (int g = 0; g < sh.k; g += sh.group) {
    for (int j = 0; j < NP; j++)
      for (size_t o = 0; o < size; o += 64) __builtin_prefetch(p[j] + 4 * size + o);
    for (int b = 0; b < sh.group; b += x.block) {
      Sums high[MR][NP], middle[MR][NP], low[MR][NP];
      size_t at = size_t(row) * k + size_t(g + b);
      for (int i = 0; i < x.block; i += 8, at += 8) {
#pragma GCC unroll 4
        for (int j = 0; j < NP; j++) {
          const uint8_t* w = p[j] + 2 * sb + size_t(b + i) * kColumn;
          const codes16 c = load_codes(w), even = Four ? low_nibbles(c) : c, odd = Four ? high_nibbles(c) : load_codes(w + 64 * !Four);
#pragma GCC unroll 8
          for (int m = 0; m < MR; m++) {
            const size_t r = at + size_t(m) * k;
            high[m][j].add(even, x.codes + r), high[m][j].add(odd, x.codes + r + 4);
            middle[m][j].add(even, x.middle + r), middle[m][j].add(odd, x.middle + r + 4);
            low[m][j].add(even, x.low + r), low[m][j].add(odd, x.low + r + 4);
          }
        }
      }
      const f32x16 byte = set16(256), two = set16(65536);
      for (int j = 0; j < NP; j++) {
        const f32x16 s = load_scales(sh.scale, p[j]);
#pragma GCC unroll 8
        for (int m = 0; m < MR; m++) {
          const f32x16 by = set16(x.scales[size_t(row + m) * blocks + size_t((g + b) / x.block)]);
          const f32x16 sum = fma16(high[m][j].value(), two, fma16(middle[m][j].value(), byte, low[m][j].value()));
          acc[m][j] = fma16(mul16(sum, by), s, acc[m][j]);
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
constexpr int kSplitRows = 4;  // times panels: what the registers hold
#elif defined(__AVX2__)
constexpr int kSplitRows = 1;
#else
constexpr int kSplitRows = 2;
#endif

template <int NP, int MR>
void split_some(const PanelShape& s, const uint8_t* const* panel, const QuantRows& x, int row, int rows, float* out, size_t ldo) {
  if constexpr (MR > 0) {
    if (rows != MR) return split_some<NP, MR - 1>(s, panel, x, row, rows, out, ldo);
    return s.format == Format::q4 ? split_rows<true, MR, NP>(s, panel, x, row, out, ldo)
                                  : split_rows<false, MR, NP>(s, panel, x, row, out, ldo);
  }
}

template <int NP>
void split_panels(const PanelShape& s, const uint8_t* const* panel, const QuantRows& x, int row, int rows, float* out, size_t ldo) {
  constexpr int step = std::max(1, kSplitRows / NP);
  for (int r = 0; r < rows; r += step)
    split_some<NP, step>(s, panel, x, row + r, std::min(step, rows - r), out + size_t(r) * ldo, ldo);
}
