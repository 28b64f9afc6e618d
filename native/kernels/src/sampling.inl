// Passes over a row of scores. A score that is no number is below every bound.

int count_at_least(const float* x, int n, float lo) {
  const f32x16 v = set16(lo);
  int count = 0;
  for (int i = 0; i < n; i += kLanes) count += __builtin_popcount(mask_ge16(load_tail(x + i, n - i, NAN), v));
  return count;
}

int find_at_least(const float* x, int n, float lo) {
  const f32x16 v = set16(lo);
  for (int i = 0; i < n; i += kLanes)
    if (const uint32_t m = mask_ge16(load_tail(x + i, n - i, NAN), v)) return i + __builtin_ctz(m);
  return n;
}

int take_at_least(const float* x, int n, float lo, int32_t first, float* value, int32_t* id) {
  const f32x16 v = set16(lo);
  int count = 0;
  for (int i = 0; i < n; i += kLanes)
    for (uint32_t m = mask_ge16(load_tail(x + i, n - i, NAN), v); m; m &= m - 1) {
      const int at = i + __builtin_ctz(m);
      value[count] = x[at];
      id[count++] = first + at;
    }
  return count;
}

float weigh(const float* weight, const float* x, float from, int n) {
  f32x16 acc = zero16();
  const f32x16 f = set16(from);
  for (int i = 0; i < n; i += kLanes)
    acc = add16(acc, mul16(load_tail(weight + i, n - i, 0), sub16(f, load_tail(x + i, n - i, 0))));
  return sum_lanes(acc);
}

// The high word of each token's uniform number.
inline u32x16 philox_high(u32x16 id, const Noise& n) {
  u32x16 c0 = id, c1 = set16u(n.position), c2 = set16u(n.choice), c3 = set16u(0), high0, low0, high1, low1;
  uint32_t k0 = n.key[0], k1 = n.key[1];
  for (int r = 0; r < kPhiloxRounds - 1; r++) {
    mul16u(c0, kPhiloxM0, &high0, &low0);
    mul16u(c2, kPhiloxM1, &high1, &low1);
    c0 = xor16u(xor16u(high1, c1), set16u(k0));
    c1 = low1;
    c2 = xor16u(xor16u(high0, c3), set16u(k1));
    c3 = low0;
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  mul16u(c2, kPhiloxM1, &high1, &low1);
  return low1;
}

// Only a token that can win has its noise computed: with d = best - x, it wins if -log(u) <= exp(-d), and 1 - u <= -log(u). Both
// sides are rounded so that none that could win is passed over; what wins is then compared exactly.
void noisy_best(const float* x, const int32_t* ids, int32_t first, int n, float temperature, const Noise& noise, Best* best) {
  const f32x16 t = set16(temperature), unit = set16(0x1p-31f), slack = set16(1.00001f);
  const f32x16 beyond = set16(-37.0f);  // no u is nearer to 1 than 2^-53
  uint32_t count[kLanes];
  for (uint32_t i = 0; i < kLanes; i++) count[i] = i;
  const u32x16 lane = load16u(count), ones = set16u(~0u);
  f32x16 least = set16(best->score), margin = set16((std::fabs(best->score) + 64) * 0x1p-20f);
  for (int i = 0; i < n; i += kLanes) {
    const f32x16 d = add16(sub16(div16(load_tail(x + i, n - i, NAN), t), least), margin);
    if (!mask_ge16(d, beyond)) continue;
    const u32x16 id = ids ? load16u(ids + i) : add16u(lane, set16u(uint32_t(first + i)));
    const f32x16 from_one = mul16(halves16(xor16u(philox_high(id, noise), ones)), unit);
    for (uint32_t m = mask_ge16(mul16(exp16(d), slack), from_one); m; m &= m - 1) {
      const int at = i + __builtin_ctz(m);
      if (at >= n) break;
      const int32_t token = ids ? ids[at] : first + at;
      best->consider(x[at] / temperature + noise.at(token), token);
    }
    least = set16(best->score), margin = set16((std::fabs(best->score) + 64) * 0x1p-20f);
  }
}
