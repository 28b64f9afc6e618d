// Which dispatch level runs: chosen from what the processor has, or forced down by a test.
#include "level.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>

#include "clade_kernels.h"

namespace clade {

namespace {

struct Candidate {
  const Level* level;
  bool here;
};

// Best first.
const Candidate* candidates(int* n) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  static const Candidate all[] = {
      {kLevelAVX512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")},
      {kLevelAVX2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")},
      {kLevelGeneric, true}};
#elif defined(__aarch64__)
  static const Candidate all[] = {{kLevelNEON, true}, {kLevelGeneric, true}};
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
