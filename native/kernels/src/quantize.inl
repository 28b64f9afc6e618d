// Rounding of activations to 8 bits.

inline f32x16 abs16(f32x16 a) { return max16(a, sub16(zero16(), a)); }

// The largest magnitude of n values, NaN when one is not finite.
inline float magnitude(const float* x, int n) {
  f32x16 most = zero16(), odd = zero16();
  for (int i = 0; i < n; i += kLanes) {
    f32x16 v = load_tail(x + i, n - i, 0);
    most = max16(abs16(v), most);
    odd = fma16(v, zero16(), odd);  // zero, or NaN once a value is infinite or NaN
  }
  return max_lanes(most) + sum_lanes(odd);
}

void quantize(const float* x, int k, int block, int group, int8_t* codes, float* scales, float* sums) {
  constexpr int kMost = 127;
  for (int g = 0; g < k; g += group) {
    float sum = 0;
    for (int b = g; b < g + group; b += block) {
      const float scale = magnitude(x + b, block) / kMost;
      const f32x16 by = set16(scale), high = set16(kMost), low = set16(-kMost);
      float q[kMaxDotBlock];
      int total = 0;
      if (scale > 0) {
        for (int i = 0; i < block; i += kLanes) {
          f32x16 v = round16(div16(load_tail(x + b + i, block - i, 0), by));
          store_tail(q + i, block - i, min16(max16(v, low), high));  // a scale below normal numbers is coarse
        }
      } else {
        std::fill(q, q + block, 0.0f);
      }
      for (int i = 0; i < block; i++) {
        const int code = int(q[i]);
        total += code;
        codes[b + i / 8 * 8 + (i & 1) * 4 + (i & 7) / 2] = int8_t(code);
      }
      scales[b / block] = scale;
      sum += scale * float(total);
    }
    sums[g / group] = sum;
  }
}
