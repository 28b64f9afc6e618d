#include "noise.h"

#include <cmath>

namespace clade {

// x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) = 2 atanh(s), s = f / (2 + f), by fdlibm's polynomial (e_log.c).
double log_of(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752440) {
    m *= 2;
    exponent--;
  }
  const double f = m - 1, k = exponent;
  const double s = f / (2 + f), s2 = s * s, s4 = s2 * s2;
  const double odd = s2 * (6.666666666666735130e-01 + s4 * (2.857142874366239149e-01 + s4 * (1.818357216161805012e-01 + s4 * 1.479819860511658591e-01)));
  const double even = s4 * (3.999999999940941908e-01 + s4 * (2.222219843214978396e-01 + s4 * 1.531383769920937332e-01));
  const double half = 0.5 * f * f;
  return k * 6.93147180369123816490e-01 - ((half - (s * (half + (odd + even)) + k * 1.90821492927058770002e-10)) - f);
}

float Noise::at(int32_t id) const {
  uint32_t c[4] = {uint32_t(id), position, choice, 0}, k0 = key[0], k1 = key[1];
  for (int r = 0; r < kPhiloxRounds; r++) {
    const uint64_t p0 = uint64_t(kPhiloxM0) * c[0], p1 = uint64_t(kPhiloxM1) * c[2];
    const uint32_t c0 = uint32_t(p1 >> 32) ^ c[1] ^ k0, c2 = uint32_t(p0 >> 32) ^ c[3] ^ k1;
    c[0] = c0, c[1] = uint32_t(p1), c[2] = c2, c[3] = uint32_t(p0);
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  // 52 bits and a half: inside (0, 1).
  const double u = (double((uint64_t(c[1]) << 32 | c[0]) >> 12) + 0.5) * 0x1p-52;
  return float(-log_of(-log_of(u)));
}

}  // namespace clade
