// The inner loops of the gated delta network: lanes are columns of the state, sums go over its rows in order.

#if defined(__AVX512F__)
constexpr bool kDeltaWide = true;  // four vectors of sums and of changes leave registers for the rest
#else
constexpr bool kDeltaWide = false;
#endif

// V vectors of columns through one token; products with the next key are taken while a row of the state is at hand.
template <int V, bool Next>
__attribute__((always_inline)) inline void delta_token(const DeltaBlock& d, const float* from, size_t ldf, float* to, const float* k, const float* q,
                        const float* next, float g, const f32x16 (&change)[V], f32x16 (&known)[V], float* y) {
  const f32x16 gv = set16(g);
  f32x16 sum[V];
  for (int v = 0; v < V; v++) sum[v] = known[v] = zero16();
  for (int i = 0; i < d.key_dim; i++) {
    const f32x16 ki = set16(k[i]), qi = set16(q[i]);
    for (int v = 0; v < V; v++) {
      const f32x16 s = fma16(ki, change[v], mul16(gv, load16(from + size_t(i) * ldf + v * kLanes)));
      store16(to + size_t(i) * d.ldt + v * kLanes, s);
      sum[v] = fma16(s, qi, sum[v]);
      if (Next) known[v] = fma16(s, set16(next[i]), known[v]);
    }
  }
  for (int v = 0; v < V; v++) store16(y + v * kLanes, sum[v]);
}

template <int V>
inline void delta_columns(const DeltaBlock& d, int c) {
  const float* from = d.from + c;
  size_t ldf = d.ldf;
  f32x16 known[V], change[V];
  for (int v = 0; v < V; v++) known[v] = zero16();
  for (int i = 0; i < d.key_dim; i++) {
    const f32x16 ki = set16(d.keys[i]);
    for (int v = 0; v < V; v++) known[v] = fma16(load16(from + size_t(i) * ldf + v * kLanes), ki, known[v]);
  }
  for (int t = 0; t < d.tokens; t++) {
    const float *k = d.keys + size_t(t) * d.ld, *q = d.queries + size_t(t) * d.ld, *value = d.values + size_t(t) * d.ld + c;
    const f32x16 g = set16(d.decay[t]), beta = set16(d.rate[t]);
    for (int v = 0; v < V; v++) change[v] = mul16(sub16(load16(value + v * kLanes), mul16(g, known[v])), beta);
    float* y = d.out + size_t(t) * d.ldo + c;
    if (t + 1 < d.tokens)
      delta_token<V, true>(d, from, ldf, d.to + c, k, q, k + d.ld, d.decay[t], change, known, y);
    else
      delta_token<V, false>(d, from, ldf, d.to + c, k, q, nullptr, d.decay[t], change, known, y);
    from = d.to + c;
    ldf = d.ldt;
  }
}

void delta_steps(const DeltaBlock& d) {
  int c = 0;
  if constexpr (kDeltaWide)
    for (; c + 4 * kLanes <= d.columns; c += 4 * kLanes) delta_columns<4>(d, c);
  for (; c + 2 * kLanes <= d.columns; c += 2 * kLanes) delta_columns<2>(d, c);
  for (; c < d.columns; c += kLanes) delta_columns<1>(d, c);
}

void convolve_silu(const float* x, size_t ld, const float* taps, int n, int rows, int columns, float* out) {
  const f32x16 one = set16(1.0f);
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c += kLanes) {
      f32x16 sum = zero16();
      for (int j = 0; j < n; j++) sum = fma16(load16(taps + size_t(j) * ld + c), load16(x + size_t(r + j) * ld + c), sum);
      store16(out + size_t(r) * ld + c, mul16(sum, div16(one, add16(one, exp16(sub16(zero16(), sum))))));
    }
}
