// Products with trellis-coded panels (trellis.h). Columns are decoded into the first-level cache a few at a time, inside the product;
// the loops over lanes are plain, for the compiler to vectorize: integers and fma are the same everywhere.

constexpr int kTrellisColumns = 32;  // decoded at once

// Columns [first, first + count) of a panel, as [count][16]; of axis 1 within one block.
inline void trellis_along_rows(const PanelShape& s, const uint8_t* panel, int first, int count, float* out) {
  const int ring = trellis_ring(s), b = first / s.group;
  const uint8_t* block = panel + size_t(b) * (64 + size_t(ring) * 64);
  const float* scale = reinterpret_cast<const float*>(block);
  const uint32_t* words = reinterpret_cast<const uint32_t*>(block + 64);
  const uint32_t mask = trellis_mask(s.state);
  for (int c = 0; c < count; c++, out += kLanes) {
    const int at = (s.group - 1 - (first + c - b * s.group)) * s.bits, i = at >> 5, shift = at & 31;
    const uint32_t *low = words + i * kLanes, *high = words + (i + 1 == ring ? 0 : i + 1) * kLanes;
    if (shift + s.state <= 32) {
      for (int l = 0; l < kLanes; l++) out[l] = trellis_value(low[l] >> shift & mask) * scale[l];
    } else {
      for (int l = 0; l < kLanes; l++) out[l] = trellis_value((low[l] >> shift | high[l] << (32 - shift)) & mask) * scale[l];
    }
  }
}

inline void trellis_along_columns(const PanelShape& s, const uint8_t* panel, int first, int count, float* out) {
  const int window = trellis_window(s);
  const uint32_t* words = reinterpret_cast<const uint32_t*>(panel) + size_t(first) * size_t(window + 1);
  const uint32_t mask = trellis_mask(s.state);
  int index[kLanes];
  uint32_t shift[kLanes];
  for (int l = 0; l < kLanes; l++) index[l] = (15 - l) * s.bits >> 5, shift[l] = uint32_t((15 - l) * s.bits & 31);
  for (int c = 0; c < count; c++, out += kLanes, words += window + 1) {
    float scale;
    std::memcpy(&scale, words + window, 4);
    uint32_t low[kLanes], high[kLanes];
    for (int l = 0; l < kLanes; l++) low[l] = words[index[l]], high[l] = words[index[l] + 1];  // the last of them is the scale: masked
    for (int l = 0; l < kLanes; l++) {
      // Two shifts, as one by 32 is none.
      const uint32_t state = (low[l] >> shift[l] | high[l] << 1 << (31 - shift[l])) & mask;
      out[l] = trellis_value(state) * scale;
    }
  }
}

inline void decode_trellis(const PanelShape& s, const uint8_t* panel, int first, int count, float* out) {
  (s.axis ? trellis_along_rows : trellis_along_columns)(s, panel, first, count, out);
}

void decode_trellis(const PanelShape& s, const uint8_t* panel, float* out) {
  const int step = s.axis ? std::min(kTrellisColumns, s.group) : kTrellisColumns;
  for (int i = 0; i < s.k;) {
    const int n = std::min(s.axis ? std::min(step, s.group - i % s.group) : step, s.k - i);
    decode_trellis(s, panel, i, n, out + size_t(i) * kLanes);
    i += n;
  }
}

template <int MR, int NP>
void tile_trellis(const PanelShape& s, const uint8_t* const* panel, const float* x, size_t ldx, float* out, size_t ldo) {
  Accumulators<MR, NP> acc;
  acc.clear();
  alignas(64) float decoded[NP][kTrellisColumns * kLanes];
  for (int i = 0; i < s.k;) {
    int n = std::min(kTrellisColumns, s.k - i);
    if (s.axis) n = std::min(n, s.group - i % s.group);
    for (int j = 0; j < NP; j++) decode_trellis(s, panel[j], i, n, decoded[j]);
    for (int c = 0; c < n; c++) {
      f32x16 w[NP];
#pragma GCC unroll 4
      for (int j = 0; j < NP; j++) w[j] = load16(decoded[j] + c * kLanes);
      acc.step(x + i + c, ldx, w);
    }
    i += n;
  }
  acc.store(out, ldo);
}
