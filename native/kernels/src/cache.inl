// Decoding of coded cache rows (cache.h).

// Sixteen codes of a stream that begins at p, as bytes. A whole number of bytes holds eight of them.
template <int Bits>
inline void expand(const uint8_t* p, uint8_t* out) {
  for (int half = 0; half < 2; half++, p += Bits, out += 8) {
    uint64_t w = 0;
    std::memcpy(&w, p, Bits);
    for (int i = 0; i < 8; i++) out[i] = uint8_t(w >> (i * Bits) & ((1u << Bits) - 1));
  }
}

template <int Bits>
inline small16 load_codes(const uint8_t* p) {
  if constexpr (Bits == 8) return load_codes8(p);
  if constexpr (Bits == 4) return load_codes4(p);
  uint8_t t[16];
  expand<Bits>(p, t);
  return load_codes8(t);
}

template <int Bits>
inline void unpack_affine(const RowCode& c, const uint8_t* row, int d, float* out) {
  const int groups = d / c.group;
  const uint8_t* codes = row + 4 * groups;
  for (int g = 0; g < groups; g++) {
    float head[kLanes];  // scale, bias of up to eight groups
    if (g % 8 == 0) {
      uint16_t h[kLanes] = {};
      std::memcpy(h, row + 4 * g, size_t(std::min(8, groups - g)) * 4);
      store16(head, load_f16(h));
    }
    const f32x16 s = set16(head[g % 8 * 2]), b = set16(head[g % 8 * 2 + 1]);
    for (int i = 0; i < c.group; i += kLanes, codes += 2 * Bits, out += kLanes)
      store16(out, fma16(to_f32(load_codes<Bits>(codes)), s, b));
  }
}

template <int Bits>
inline void unpack_turbo(const RowCode& c, const uint8_t* row, int d, float* out) {
  const int block = d & -d, blocks = d / block;
  const float* levels = turbo_levels(Bits);
  const uint8_t* codes = row + 4 * blocks;
  for (int b = 0; b < blocks; b++) {
    float scale;
    std::memcpy(&scale, row + 4 * b, 4);
    const f32x16 s = set16(scale);
    for (int i = 0; i < block; i += kLanes, codes += 2 * Bits, out += kLanes)
      store16(out, mul16(lookup16<Bits>(levels, load_codes<Bits>(codes)), s));
  }
}

// rows rows, ld bytes apart, to d floats each.
template <int Bits>
void unpack_bits(const RowCode& c, const uint8_t* row, size_t ld, int rows, int d, float* out) {
  for (int r = 0; r < rows; r++, row += ld, out += d)
    c.code == Code::affine ? unpack_affine<Bits>(c, row, d, out) : unpack_turbo<Bits>(c, row, d, out);
}

void unpack(const RowCode& c, const uint8_t* row, size_t ld, int rows, int d, float* out) {
  switch (c.bits) {
    case 2:
      return unpack_bits<2>(c, row, ld, rows, d, out);
    case 3:
      return unpack_bits<3>(c, row, ld, rows, d, out);
    case 4:
      return unpack_bits<4>(c, row, ld, rows, d, out);
    case 5:
      return unpack_bits<5>(c, row, ld, rows, d, out);
    case 6:
      return unpack_bits<6>(c, row, ld, rows, d, out);
    case 8:
      return unpack_bits<8>(c, row, ld, rows, d, out);
  }
}
