#include "weight.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "memory.h"
#include "pool.h"
#include "simd.h"
#include "trellis.h"

namespace clade {

namespace {

// A weight of more elements than this is a mistake of the caller's.
constexpr size_t kMaxElements = size_t(1) << 36;

void check_extent(int n, int k) {
  if (n < 1 || k < 1 || size_t(n) * size_t(k) > kMaxElements)
    throw std::invalid_argument("weight: shape " + std::to_string(n) + " x " + std::to_string(k) + " is refused");
}

int stored_bits(int bits) { return bits <= 4 ? 4 : 8; }

// Calls fill(r) for r in [0, count), where r is row `row + r` of the weight; the rows of one panel fall to one thread.
template <class F>
void fill_rows(int row, int count, const F& fill) {
  const int first = row / 16, panels = (row + count + 15) / 16 - first;
  if (panels <= 4) {
    for (int r = 0; r < count; r++) fill(r);
    return;
  }
  const int piece = piece_of(panels, 1);
  Pool::get().run((panels + piece - 1) / piece, [&](int i) {
    const int begin = (first + i * piece) * 16, end = std::min(first + panels, first + (i + 1) * piece) * 16;
    for (int r = std::max(begin, row); r < std::min(end, row + count); r++) fill(r - row);
  });
}

// Where an 8-bit code of column i lies in a group of a panel: a word holds four even columns of eight, or the four odd ones.
inline size_t byte_of(int i, int lane) {
  return size_t(i / 8) * 128 + size_t(i & 1) * 64 + size_t(lane) * 4 + size_t(i & 7) / 2;
}

// Code i of a row of b-bit codes packed as a little-endian bit stream.
inline uint32_t code_at(const uint8_t* row, size_t i, int b) {
  size_t bit = i * size_t(b), byte = bit >> 3;
  uint32_t v = row[byte];
  if ((bit & 7) + size_t(b) > 8) v |= uint32_t(row[byte + 1]) << 8;
  return (v >> (bit & 7)) & ((1u << b) - 1);
}

}  // namespace

std::atomic<size_t>& live_weight_bytes() {
  static std::atomic<size_t> total{0};
  return total;
}

PanelShape dense_shape(int n, int k, int dtype) {
  check_extent(n, k);
  switch (dtype) {
    case 0:
      return {Format::f32, Scale::f32, k, 0, 64};
    case 1:
      return {Format::bf16, Scale::f32, k, 0, 32};
    case 2:
      return {Format::f16, Scale::f32, k, 0, 32};
  }
  throw std::invalid_argument("weight: dtype " + std::to_string(dtype) + " is unknown");
}

PanelShape affine_shape(int n, int k, int bits, int group, int scale) {
  check_extent(n, k);
  if (bits < 2 || bits > 8 || bits == 7) throw std::invalid_argument("weight: " + std::to_string(bits) + " bits are refused");
  if (group < 8 || group % 8 || k % group || (size_t(k) * bits) % 32)
    throw std::invalid_argument("weight: group " + std::to_string(group) + " does not divide " + std::to_string(k) +
                                " columns into whole words");
  if (scale < 0 || scale > 2) throw std::invalid_argument("weight: scale dtype " + std::to_string(scale) + " is unknown");
  return {stored_bits(bits) == 4 ? Format::q4 : Format::q8, Scale(scale), k, group, 0};
}

size_t panel_bytes(const PanelShape& s) {
  if (s.format == Format::trellis) return trellis_panel_bytes(s);
  if (s.group == 0) return size_t(s.k) * size_t(s.stride);
  size_t code = s.format == Format::q4 ? 8 : 16;  // bytes of one column
  return size_t(s.k / s.group) * (2 * scale_bytes(s.scale) + size_t(s.group) * code);
}

size_t Weight::size(int n, const PanelShape& s) {
  // One spare line, so that a whole-vector read past the last panel stays inside.
  return (clade::panel_bytes(s) * size_t((n + 15) / 16) + 64 + 63) / 64 * 64;
}

Weight::Weight(int n_, int k_, PanelShape s, int b) : n(n_), k(k_), shape(s), bits(b), panel_bytes(clade::panel_bytes(s)) {
  bytes = size(n, shape);
  data = take_memory(bytes);
  std::memset(data, 0, bytes);
  live_weight_bytes() += bytes;
}

Weight::~Weight() {
  give_memory(data);
  live_weight_bytes() -= bytes;
}

void Weight::set_dense(int row, int count, const void* rows) {
  const size_t size = shape.format == Format::f32 ? 4 : 2;
  const uint8_t* src = static_cast<const uint8_t*>(rows);
  fill_rows(row, count, [&](int r) {
    uint8_t* dst = data + size_t((row + r) / 16) * panel_bytes + size_t((row + r) % 16) * size;
    const uint8_t* s = src + size_t(r) * size_t(k) * size;
    for (int i = 0; i < k; i++) std::memcpy(dst + size_t(i) * 16 * size, s + size_t(i) * size, size);
  });
}

void Weight::set_affine(int row, int count, const uint32_t* codes, const void* scales, const void* biases) {
  const size_t words = size_t(k) * size_t(bits) / 32;
  const size_t size = shape.scale == Scale::f32 ? 4 : 2, sb = scale_bytes(shape.scale);
  const int groups = k / shape.group;
  const bool four = shape.format == Format::q4;
  const size_t block = 2 * sb + size_t(shape.group) * (four ? 8 : 16);
  fill_rows(row, count, [&](int r) {
    const int lane = (row + r) % 16;
    uint8_t* dst = data + size_t((row + r) / 16) * panel_bytes;
    const uint8_t* src = reinterpret_cast<const uint8_t*>(codes + size_t(r) * words);
    for (int g = 0; g < groups; g++, dst += block) {
      size_t at = (size_t(r) * size_t(groups) + size_t(g)) * size;
      std::memcpy(dst + size_t(lane) * size, static_cast<const uint8_t*>(scales) + at, size);
      std::memcpy(dst + sb + size_t(lane) * size, static_cast<const uint8_t*>(biases) + at, size);
      uint8_t* body = dst + 2 * sb;
      if (bits == 4) {  // eight codes of the file are a word of the panel
        const uint8_t* words = src + size_t(g) * size_t(shape.group) / 2;
        for (int i = 0; i < shape.group; i += 8) std::memcpy(body + (size_t(i / 8) * 16 + size_t(lane)) * 4, words + i / 2, 4);
        continue;
      }
      if (bits == 8) {
        const uint8_t* bytes = src + size_t(g) * size_t(shape.group);
        for (int i = 0; i < shape.group; i++) body[byte_of(i, lane)] = bytes[i];
        continue;
      }
      for (int i = 0; i < shape.group; i++) {
        uint32_t c = code_at(src, size_t(g) * size_t(shape.group) + size_t(i), bits);
        if (four) {
          uint32_t& word = reinterpret_cast<uint32_t*>(body)[(i / 8) * 16 + lane];
          word = (word & ~(15u << (4 * (i % 8)))) | c << (4 * (i % 8));
        } else
          body[byte_of(i, lane)] = uint8_t(c);
      }
    }
  });
}

void Weight::row(int r, float* out) const {
  if (shape.format == Format::trellis) return trellis_row(*this, r, out);
  const uint8_t* p = panel(r / 16);
  const int lane = r % 16;
  auto number = [](const uint8_t* at, Scale s) {
    if (s == Scale::f32) {
      float f;
      std::memcpy(&f, at, 4);
      return f;
    }
    uint16_t h;
    std::memcpy(&h, at, 2);
    return s == Scale::bf16 ? bf16_to_f32(h) : f16_to_f32(h);
  };
  if (shape.group == 0) {
    const Scale s = shape.format == Format::f32 ? Scale::f32 : shape.format == Format::bf16 ? Scale::bf16 : Scale::f16;
    const size_t size = shape.format == Format::f32 ? 4 : 2;
    for (int i = 0; i < k; i++) out[i] = number(p + size_t(i) * 16 * size + size_t(lane) * size, s);
    return;
  }
  const size_t size = shape.scale == Scale::f32 ? 4 : 2, sb = scale_bytes(shape.scale);
  const bool four = shape.format == Format::q4;
  for (int g = 0; g < k; g += shape.group) {
    const float s = number(p + size_t(lane) * size, shape.scale), b = number(p + sb + size_t(lane) * size, shape.scale);
    p += 2 * sb;
    for (int i = 0; i < shape.group; i++) {
      uint32_t c = four ? (reinterpret_cast<const uint32_t*>(p)[(i / 8) * 16 + lane] >> (4 * (i % 8))) & 15
                        : uint32_t(p[byte_of(i, lane)]);
      out[g + i] = std::fma(float(c), s, b);
    }
    p += size_t(shape.group) * (four ? 8 : 16);
  }
}

}  // namespace clade
