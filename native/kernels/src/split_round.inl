// Splitting of activations into three planes of 8 bits (split.inl multiplies them).

void split(const float* x, int k, int block, int group, int8_t* high, int8_t* middle, int8_t* low, float* scales, float* sums) {
  constexpr int kMost = 127 * 65536 + 127 * 256 + 127;  // all three digits stay within 8 bits
  for (int g = 0; g < k; g += group) {
    float sum = 0;
    for (int b = g; b < g + group; b += block) {
      const float scale = magnitude(x + b, block) / float(kMost);
      const f32x16 by = set16(scale), most = set16(float(kMost)), least = set16(-float(kMost));
      float q[kMaxDotBlock];
      int total = 0;
      if (scale > 0) {
        for (int i = 0; i < block; i += kLanes) {
          f32x16 v = round16(div16(load_tail(x + b + i, block - i, 0), by));
          store_tail(q + i, block - i, min16(max16(v, least), most));
        }
      } else {
        std::fill(q, q + block, 0.0f);
      }
      for (int i = 0; i < block; i++) {
        const int code = int(q[i]), at = b + i / 8 * 8 + (i & 1) * 4 + (i & 7) / 2;
        const int8_t l = int8_t(code), m = int8_t((code - l) >> 8);
        total += code;
        low[at] = l, middle[at] = m, high[at] = int8_t((((code - l) >> 8) - m) >> 8);
      }
      scales[b / block] = scale;
      sum += scale * float(total);
    }
    sums[g / group] = sum;
  }
}
