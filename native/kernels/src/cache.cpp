#include "cache.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "simd.h"

namespace clade {

namespace {

constexpr int kWidest = 1024;  // columns of a head
constexpr float kMaxHalf = 65504;

size_t words(int columns, int bits) { return (size_t(columns) * size_t(bits) + 31) / 32; }

// Appends codes to a stream of bits.
class Stream {
 public:
  Stream(uint32_t* at, int bits) : at_(at), bits_(bits) {}
  void put(uint32_t code) {
    held_ |= uint64_t(code) << n_;
    for (n_ += bits_; n_ >= 32; n_ -= 32, held_ >>= 32) *at_++ = uint32_t(held_);
  }
  void end() {
    if (n_) *at_ = uint32_t(held_);
  }

 private:
  uint32_t* at_;
  int bits_, n_ = 0;
  uint64_t held_ = 0;
};

void pack_affine(const RowCode& c, const float* x, int d, uint32_t* row) {
  const int groups = d / c.group;
  const float most = float((1 << c.bits) - 1);
  Stream codes(row + groups, c.bits);
  for (int g = 0; g < groups; g++, x += c.group) {
    float low = x[0], high = x[0];
    for (int i = 1; i < c.group; i++) {
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
    }
    const uint16_t scale = f32_to_f16(std::min((high - low) / most, kMaxHalf));
    const uint16_t bias = f32_to_f16(std::min(std::max(low, -kMaxHalf), kMaxHalf));
    const float s = f16_to_f32(scale), b = f16_to_f32(bias);
    row[g] = uint32_t(scale) | uint32_t(bias) << 16;
    for (int i = 0; i < c.group; i++) {
      const float code = s > 0 ? std::min(most, std::max(0.0f, std::nearbyint((x[i] - b) / s))) : 0.0f;  // a NaN is 0
      codes.put(uint32_t(code));
    }
  }
  codes.end();
}

// The sum of n squares, n a power of two: halves are added until one is left.
float sum_of_squares(const float* x, int n) {
  float t[kWidest];
  for (int i = 0; i < n; i++) t[i] = x[i] * x[i];
  for (int h = n / 2; h; h /= 2)
    for (int i = 0; i < h; i++) t[i] = t[i] + t[i + h];
  return t[0];
}

// The unnormalised Hadamard transform of n columns, n a power of two.
void hadamard(float* x, int n) {
  for (int h = 1; h < n; h *= 2)
    for (int i = 0; i < n; i += 2 * h)
      for (int j = i; j < i + h; j++) {
        const float a = x[j], b = x[j + h];
        x[j] = a + b;
        x[j + h] = a - b;
      }
}

int power_of(int d) { return d & -d; }

// The sign of a column: a bit of a published hash (splitmix64's finalizer) of its place.
bool negative(int column) {
  uint64_t z = (uint64_t(column) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (z ^ z >> 31) >> 63;
}

void flip(float* x, int d) {
  static const auto signs = [] {
    std::array<bool, kWidest> s{};
    for (int i = 0; i < kWidest; i++) s[size_t(i)] = negative(i);
    return s;
  }();
  for (int i = 0; i < d; i++) x[i] = signs[size_t(i)] ? -x[i] : x[i];
}

void pack_turbo(const RowCode& c, const float* x, int d, uint32_t* row) {
  const int block = power_of(d), blocks = d / block, count = (1 << c.bits) - 1;
  const float *levels = turbo_levels(c.bits), *thresholds = turbo_thresholds(c.bits);
  float y[kWidest], picked[kWidest];
  std::memcpy(y, x, size_t(d) * 4);
  flip(y, d);
  Stream codes(row + blocks, c.bits);
  for (int b = 0; b < blocks; b++) {
    float* v = y + b * block;
    const float norm = std::sqrt(sum_of_squares(v, block));
    hadamard(v, block);
    for (int i = 0; i < block; i++) {
      const float u = norm > 0 ? v[i] / norm : 0.0f;
      const int code = int(std::lower_bound(thresholds, thresholds + count, u) - thresholds);  // thresholds below u
      picked[i] = levels[code];
      codes.put(uint32_t(code));
    }
    const float scale = norm > 0 ? norm / std::sqrt(sum_of_squares(picked, block)) : 0.0f;
    std::memcpy(row + b, &scale, 4);
  }
  codes.end();
}

void scale_blocks(float* x, int d) {
  const float s = 1.0f / std::sqrt(float(power_of(d)));
  for (int i = 0; i < d; i++) x[i] = x[i] * s;
}

}  // namespace

int code_block(const RowCode& c, int d) { return c.code == Code::turbo ? power_of(d) : c.group; }

size_t RowCode::bytes(int d) const {
  if (code == Code::dense) return size_t(d) * (dtype == DType::f32 ? 4 : 2);
  return 4 * (size_t(d / code_block(*this, d)) + words(d, bits));
}

void check_code(const RowCode& c, int d) {
  auto refuse = [](const std::string& why) { throw std::invalid_argument(why); };
  switch (c.code) {
    case Code::dense:
      return;
    case Code::affine:
      if (c.bits < 2 || c.bits > 8 || c.bits == 7) refuse("a cache of " + std::to_string(c.bits) + " bits");
      if (c.group < 32 || c.group % 32 || d % c.group) refuse("groups of " + std::to_string(c.group) + " in heads of " + std::to_string(d));
      break;
    case Code::turbo:
      if (!turbo_levels(c.bits)) refuse("a turbo code of " + std::to_string(c.bits) + " bits");
      if (d % 16) refuse("a turbo code of heads of " + std::to_string(d));
      break;
    default:
      refuse("cache code " + std::to_string(int(c.code)) + " is unknown");
  }
  if (d > kWidest) refuse("coded heads of " + std::to_string(d));
}

void pack_row(const RowCode& c, const float* x, int d, void* row) {
  switch (c.code) {
    case Code::dense:
      return level().narrow(c.dtype, x, size_t(d), row);
    case Code::affine:
      return pack_affine(c, x, d, static_cast<uint32_t*>(row));
    case Code::turbo:
      return pack_turbo(c, x, d, static_cast<uint32_t*>(row));
  }
}

void rotate(float* x, int d) {
  flip(x, d);
  for (int i = 0, b = power_of(d); i < d; i += b) hadamard(x + i, b);
  scale_blocks(x, d);
}

void unrotate(float* x, int d) {
  for (int i = 0, b = power_of(d); i < d; i += b) hadamard(x + i, b);
  scale_blocks(x, d);
  flip(x, d);
}

}  // namespace clade
