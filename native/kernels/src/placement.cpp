#include "placement.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "clade_kernels.h"
#include "error.h"
#include "memory.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace clade {

namespace {

std::atomic<int> chosen{CLADE_ANYWHERE};

// Of <linux/mempolicy.h>, which not every system's headers have.
constexpr int kBind = 2, kInterleave = 3;
constexpr int kMaxNode = 1024;
constexpr int kWordBits = 8 * int(sizeof(unsigned long));

// The memory nodes that the system has, from its list ("0-1,4").
std::vector<int> nodes() {
  std::vector<int> out;
#if defined(__linux__)
  FILE* f = std::fopen("/sys/devices/system/node/has_memory", "r");
  if (!f) return out;
  int first = 0;
  while (std::fscanf(f, "%d", &first) == 1) {
    int last = first, c = std::fgetc(f);
    if (c == '-' && std::fscanf(f, "%d", &last) == 1) c = std::fgetc(f);
    for (int n = first; n <= last && n < kMaxNode; n++) out.push_back(n);
    if (c != ',') break;
  }
  std::fclose(f);
#endif
  return out;
}

std::string names(const std::vector<int>& list) {
  std::string s;
  for (int n : list) s += (s.empty() ? "" : ", ") + std::to_string(n);
  return s.empty() ? "none" : s;
}

}  // namespace

void place_weights(int node) {
  if (node != CLADE_ANYWHERE) {
    const auto have = nodes();
    if (have.empty()) refuse("this system has no memory nodes to choose from");
    if (node == CLADE_INTERLEAVE && have.size() < 2) refuse("this machine has one memory node, " + names(have) + ": there is nothing to spread over");
    bool found = node == CLADE_INTERLEAVE;
    for (int n : have) found = found || n == node;
    if (!found) refuse("memory node " + std::to_string(node) + " is not one of this machine's: " + names(have));
  }
  chosen.store(node);
  take_memory_elsewhere();
}

size_t placement_alignment() {
#if defined(__linux__)
  if (chosen.load() != CLADE_ANYWHERE) return size_t(sysconf(_SC_PAGESIZE));
#endif
  return 64;
}

void place_memory(void* data, size_t bytes) {
  const int node = chosen.load();
  if (node == CLADE_ANYWHERE) return;
#if defined(__linux__)
  unsigned long mask[kMaxNode / kWordBits] = {};
  auto set = [&](int n) { mask[n / kWordBits] |= 1ul << (n % kWordBits); };
  if (node >= 0) {
    set(node);
  } else {
    for (int n : nodes()) set(n);
  }
  if (syscall(SYS_mbind, data, bytes, node >= 0 ? kBind : kInterleave, mask, kMaxNode + 1ul, 0u) != 0)
    refuse(std::string("the system refuses to place memory: ") + std::strerror(errno));
#else
  (void)data;
  (void)bytes;
#endif
}

}  // namespace clade
