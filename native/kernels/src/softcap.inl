// Scores that are bent towards a limit.

// tanh: Cephes' odd polynomial below 0.625 (1.5 ulp), else 1 - 2 / (exp(2x) + 1), which saturates.
inline f32x16 tanh16(f32x16 x) {
  const f32x16 one = set16(1.0f), two = set16(2.0f), near = set16(0.625f);
  const f32x16 size = max16(x, sub16(zero16(), x));
  const f32x16 far = sub16(one, div16(two, add16(exp16(mul16(two, x)), one)));
  const f32x16 c = max16(min16(x, near), set16(-0.625f)), z = mul16(c, c);
  f32x16 p = set16(-5.70498872745e-3f);
  p = fma16(p, z, set16(2.06390887954e-2f));
  p = fma16(p, z, set16(-5.37397155531e-2f));
  p = fma16(p, z, set16(1.33314422036e-1f));
  p = fma16(p, z, set16(-3.33332819422e-1f));
  p = fma16(mul16(p, z), c, c);
  return add16(zero_below16(far, size, near), sub16(p, zero_below16(p, size, near)));
}

// s = cap * tanh(s / cap) of n values, in whole vectors.
void bend(float* s, float cap, int n) {
  const f32x16 c = set16(cap);
  for (int i = 0; i < n; i += kLanes) store16(s + i, mul16(c, tanh16(div16(load16(s + i), c))));
}
