// Which dispatch level runs: chosen from what the processor has, or forced down by a test.
#include "level.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>

#include "clade_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace clade {

namespace {

struct Candidate {
  const Level* level;
  bool here;
};

#if defined(__x86_64__)
// Leaf 7, subleaf 1: what __builtin_cpu_supports has no name for. AVX2, and so the system's leave to use it, was asked before.
bool has_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4));
}
#elif defined(__aarch64__) && defined(__linux__)
bool has_neon_dot() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
#elif defined(__aarch64__)
bool has_neon_dot() { return true; }  // every Apple processor that macOS runs on
#endif

[[maybe_unused]] Level with_dot(Level base, const char* name, DotTile* dot) {
  base.name = name;
  base.dot = dot;
  return base;
}

// Best first.
const Candidate* candidates(int* n) {
#if defined(__x86_64__)
  static const Level avx512vnni = with_dot(*kLevelAVX512, "avx512vnni", kDotAVX512VNNI);
  static const Level avxvnni = with_dot(*kLevelAVX2, "avxvnni", kDotAVXVNNI);
  __builtin_cpu_init();
  static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  static const Candidate all[] = {{&avx512vnni, avx512 && __builtin_cpu_supports("avx512vnni")},
                                  {kLevelAVX512, avx512},
                                  {&avxvnni, avx2 && has_avxvnni()},
                                  {kLevelAVX2, avx2},
                                  {kLevelGeneric, true}};
#elif defined(__aarch64__)
  static const Level neondot = with_dot(*kLevelNEON, "neondot", kDotNEON);
  static const Candidate all[] = {{&neondot, has_neon_dot()}, {kLevelNEON, true}, {kLevelGeneric, true}};
#else
  static const Candidate all[] = {{kLevelGeneric, true}};
#endif
  *n = int(sizeof all / sizeof all[0]);
  return all;
}

const Level* best() {
  int n;
  const Candidate* c = candidates(&n);
  while (!c->here) c++;
  return c->level;
}

std::atomic<const Level*>& current() {
  static std::atomic<const Level*> l{best()};
  return l;
}

}  // namespace

const Level& level() { return *current().load(std::memory_order_relaxed); }

}  // namespace clade

extern "C" {

const char* clade_kernels_level(void) { return clade::level().name; }

const char* clade_kernels_levels(void) {
  static const std::string names = [] {
    std::string s;
    int n;
    const auto* c = clade::candidates(&n);
    for (int i = 0; i < n; i++)
      if (c[i].here) s += std::string(c[i].level->name) + "\n";
    return s;
  }();
  return names.c_str();
}

int clade_kernels_set_level(const char* name) {
  int n;
  const auto* c = clade::candidates(&n);
  if (!*name) {
    clade::current().store(clade::best());
    return 0;
  }
  for (int i = 0; i < n; i++)
    if (c[i].here && !std::strcmp(c[i].level->name, name)) {
      clade::current().store(c[i].level);
      return 0;
    }
  return 1;
}

}
