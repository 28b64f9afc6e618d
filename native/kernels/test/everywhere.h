// The checks of the kernels' own tests.
#pragma once
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "clade_kernels.h"
#include "level.h"
#include "pool.h"

namespace clade {

inline int passed = 0, failed = 0;

inline void expect(bool ok, const std::string& what) {
  ok ? passed++ : failed++;
  if (!ok) std::printf("FAIL %s\n", what.c_str());
}

inline std::mt19937 rng(1);

inline std::vector<float> normals(size_t n, float scale = 1) {
  std::normal_distribution<float> d(0, scale);
  std::vector<float> v(n);
  for (float& x : v) x = d(rng);
  return v;
}

inline std::vector<std::string> levels() {
  std::vector<std::string> out;
  std::string all = clade_kernels_levels(), line;
  for (char c : all) {
    if (c != '\n') {
      line += c;
      continue;
    }
    out.push_back(line);
    line.clear();
  }
  return out;
}

// Runs f at every level and thread count and compares what it returns with plain C++ on one thread. Levels that differ in dots
// alone are left out where nothing is rounded to 8 bits.
template <class F>
void everywhere(const std::string& what, const F& f, bool int8 = false) {
  clade_kernels_set_level("generic");
  Pool::get().set_threads(1);
  const auto want = f();
  for (const auto& l : levels()) {
    if (!int8 && (l == "avx512vnni" || l == "avxvnni" || l == "neondot")) continue;
    for (int threads : {1, 2, 3}) {
      if (l == "generic" && threads < 3) continue;  // slow, and one thread is what the others are compared with
      clade_kernels_set_level(l.c_str());
      Pool::get().set_threads(threads);
      expect(f() == want, what + " at " + l + " on " + std::to_string(threads) + " threads");
    }
  }
}

// Sampling's part of the tests (sample_test.cpp).
void sampling();

// That of trellis_test.cpp.
void trellises();

// The gated delta network's (delta_test.cpp).
void delta();

// That of decoder_test.cpp.
void decoder();

// That of memory_test.cpp.
void memory();

// Those of mixtures of experts (experts_test.cpp).
void experts();

}  // namespace clade
