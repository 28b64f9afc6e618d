// Norms, gates and the parts of softmax, over rows of floats.

// exp(x) for x <= 0 and moderate positive x: Cephes' expf reduction (Cody-Waite in two parts, degree 5), 1 ulp.
// Below -87.3 it is 0 (no denormals), above 88 it saturates to exp(88).
inline f32x16 exp16(f32x16 x) {
  const f32x16 lo = set16(-87.33654f), hi = set16(88.0f);
  f32x16 c = min16(max16(x, lo), hi);
  f32x16 n = round16(mul16(c, set16(1.44269504088896341f)));
  f32x16 r = fma16(n, set16(-0.693359375f), c);
  r = fma16(n, set16(2.12194440e-4f), r);
  f32x16 p = set16(1.9875691500e-4f);
  p = fma16(p, r, set16(1.3981999507e-3f));
  p = fma16(p, r, set16(8.3334519073e-3f));
  p = fma16(p, r, set16(4.1665795894e-2f));
  p = fma16(p, r, set16(1.6666665459e-1f));
  p = fma16(p, r, set16(5.0000001201e-1f));
  p = fma16(p, mul16(r, r), add16(r, set16(1.0f)));
  return zero_below16(scale2_16(p, n), x, lo);
}

inline f32x16 load_tail(const float* p, int n, float fill) {
  if (n >= kLanes) return load16(p);
  float t[kLanes];
  for (int i = 0; i < kLanes; i++) t[i] = i < n ? p[i] : fill;
  return load16(t);
}
inline void store_tail(float* p, int n, f32x16 v) {
  if (n >= kLanes) return store16(p, v);
  float t[kLanes];
  store16(t, v);
  std::memcpy(p, t, size_t(n) * 4);
}

float sum_squares(const float* x, int n) {
  f32x16 acc = zero16();
  for (int i = 0; i < n; i += kLanes) {
    f32x16 v = load_tail(x + i, n - i, 0);
    acc = fma16(v, v, acc);
  }
  return sum_lanes(acc);
}

void scale_mul(const float* x, float s, const float* w, int n, float* out) {
  f32x16 sv = set16(s);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 v = mul16(load_tail(x + i, n - i, 0), sv);
    if (w) v = mul16(v, load_tail(w + i, n - i, 0));
    store_tail(out + i, n - i, v);
  }
}

void silu_mul(const float* gate, const float* up, int n, float* out) {
  const f32x16 one = set16(1.0f);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 g = load_tail(gate + i, n - i, 0);
    f32x16 sig = div16(one, add16(one, exp16(sub16(zero16(), g))));
    store_tail(out + i, n - i, mul16(mul16(g, sig), load_tail(up + i, n - i, 0)));
  }
}

// tanh(x) = 1 - 2 / (exp(2x) + 1), saturating.
void gelu_tanh_mul(const float* gate, const float* up, int n, float* out) {
  const f32x16 one = set16(1.0f), half = set16(0.5f), two = set16(2.0f);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 g = load_tail(gate + i, n - i, 0);
    f32x16 inner = mul16(set16(0.7978845608028654f), fma16(mul16(set16(0.044715f), mul16(g, g)), g, g));
    f32x16 e = exp16(mul16(two, inner));
    f32x16 t = sub16(one, div16(two, add16(e, one)));
    store_tail(out + i, n - i, mul16(mul16(mul16(half, g), add16(one, t)), load_tail(up + i, n - i, 0)));
  }
}

float exp_sum(const float* s, float m, int n, float* p) {
  f32x16 acc = zero16();
  const f32x16 mv = set16(m);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 e = exp16(sub16(load16(s + i), mv));
    if (n - i < kLanes) {
      float t[kLanes];
      store16(t, e);
      for (int j = n - i; j < kLanes; j++) t[j] = 0;
      e = load16(t);
    }
    store16(p + i, e);
    acc = add16(acc, e);
  }
  return sum_lanes(acc);
}

float max_of(const float* s, int n) {
  f32x16 acc = set16(-INFINITY);
  for (int i = 0; i < n; i += kLanes) acc = max16(load_tail(s + i, n - i, -INFINITY), acc);
  return max_lanes(acc);
}

void scale_add(float* acc, float a, const float* x, float b, int n) {
  const f32x16 av = set16(a), bv = set16(b);
  for (int i = 0; i < n; i += kLanes) {
    f32x16 v = mul16(load_tail(acc + i, n - i, 0), av);
    store_tail(acc + i, n - i, fma16(load_tail(x + i, n - i, 0), bv, v));
  }
}
