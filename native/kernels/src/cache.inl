// Decoding of coded cache rows (cache.h).

#if defined(__AVX512F__) || defined(__AVX2__)
// Of a stream of sixteen codes, 2 Bits bytes, the two that a lane's code lies in, and how far it is to be shifted there.
template <int Bits>
struct Places {
  int8_t byte[64];
  int32_t shift[16];
  constexpr Places() : byte(), shift() {
    for (int i = 0; i < 16; i++) {
      const int first = i * Bits / 8;
      byte[4 * i] = int8_t(first);
      byte[4 * i + 1] = int8_t(first + 1 < 2 * Bits ? first + 1 : -1);  // -1: a zero
      byte[4 * i + 2] = byte[4 * i + 3] = -1;
      shift[i] = i * Bits % 8;
    }
  }
};
template <int Bits>
inline constexpr Places<Bits> kPlaces{};

// load_codes of up to 6 bits: each lane takes its two bytes and shifts them.
template <int Bits>
inline small16 load_codes_any(const uint8_t* p) {
  uint64_t low = 0, high = 0;
  std::memcpy(&low, p, Bits > 4 ? 8 : 2 * Bits);
  if constexpr (Bits > 4) std::memcpy(&high, p + 8, 2 * Bits - 8);
  const __m128i x = _mm_set_epi64x(int64_t(high), int64_t(low));
  const Places<Bits>& at = kPlaces<Bits>;
#if defined(__AVX512F__)
  const __m512i w = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(x), _mm512_loadu_si512(at.byte));
  return {_mm512_and_si512(_mm512_srlv_epi32(w, _mm512_loadu_si512(at.shift)), _mm512_set1_epi32((1 << Bits) - 1))};
#else
  const __m256i both = _mm256_broadcastsi128_si256(x), mask = _mm256_set1_epi32((1 << Bits) - 1);
  auto half = [&](int i) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at.byte + 4 * i));
    const __m256i shift = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at.shift + i));
    return _mm256_and_si256(_mm256_srlv_epi32(_mm256_shuffle_epi8(both, bytes), shift), mask);
  };
  return {half(0), half(8)};
#endif
}
#else
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
inline small16 load_codes_any(const uint8_t* p) {
  uint8_t t[16];
  expand<Bits>(p, t);
  return load_codes8(t);
}
#endif

template <int Bits>
inline small16 load_codes(const uint8_t* p) {
  if constexpr (Bits == 8) return load_codes8(p);
  if constexpr (Bits == 4) return load_codes4(p);
  if constexpr (Bits != 8 && Bits != 4) return load_codes_any<Bits>(p);
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
