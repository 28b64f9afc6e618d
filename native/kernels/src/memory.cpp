#include "memory.h"

#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#include "placement.h"

// The address sanitizer guards what its own allocator gives.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define CLADE_REGIONS 1
#include <sys/mman.h>
#endif

namespace clade {

namespace {

#if CLADE_REGIONS
constexpr size_t kLargePage = size_t(2) << 20, kSmallPage = 4096, kLine = 64;
// Weights share regions of this size, which are addresses only until they are written; one that is large has its own.
constexpr size_t kRegion = size_t(64) << 20, kLarge = kRegion / 4;

struct Region {
  size_t size = 0, used = 0;
  int live = 0;  // pieces that were taken and not given back
};

class Regions {
 public:
  uint8_t* take(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    bytes = (bytes + kLine - 1) / kLine * kLine;
    if (bytes > kLarge) {
      uint8_t* p = map(bytes);
      regions_[p] = {bytes, bytes, 1};
      return p;
    }
    if (!shared_ || regions_[shared_].size - regions_[shared_].used < bytes) {
      uint8_t* p = map(kRegion);
      regions_[p] = {kRegion, 0, 0};
      shared_ = p;
    }
    Region& r = regions_[shared_];
    uint8_t* p = shared_ + r.used;
    r.used += bytes;
    r.live++;
    return p;
  }

  void give(uint8_t* p) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto at = std::prev(regions_.upper_bound(p));
    if (--at->second.live > 0) return;
    munmap(at->first, (at->second.size + kSmallPage - 1) / kSmallPage * kSmallPage);
    if (shared_ == at->first) shared_ = nullptr;
    regions_.erase(at);
  }

  void elsewhere() {
    std::lock_guard<std::mutex> lock(mutex_);
    shared_ = nullptr;
  }

 private:
  // Addresses that begin with a large page. Where the system has none to give, small ones do.
  static uint8_t* map(size_t bytes) {
    bytes = (bytes + kSmallPage - 1) / kSmallPage * kSmallPage;
    void* p = mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    auto* begin = static_cast<uint8_t*>(p);
    auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(begin) + kLargePage - 1) / kLargePage * kLargePage);
    if (aligned > begin) munmap(begin, size_t(aligned - begin));
    if (const size_t behind = size_t(begin + bytes + kLargePage - (aligned + bytes)); behind > 0) munmap(aligned + bytes, behind);
    try {
      place_memory(aligned, bytes);
    } catch (...) {
      munmap(aligned, bytes);
      throw;
    }
    (void)madvise(aligned, bytes, MADV_HUGEPAGE);
    return aligned;
  }

  std::mutex mutex_;
  std::map<uint8_t*, Region> regions_;
  uint8_t* shared_ = nullptr;  // the region that pieces are taken from
};

Regions& regions() {
  static Regions* r = new Regions;  // never destroyed: a weight may outlive it
  return *r;
}
#endif

}  // namespace

#if CLADE_REGIONS
uint8_t* take_memory(size_t bytes) { return regions().take(bytes); }

void give_memory(uint8_t* data) {
  if (data) regions().give(data);
}

void take_memory_elsewhere() { regions().elsewhere(); }
#else
uint8_t* take_memory(size_t bytes) {
  const size_t align = placement_alignment();
  auto* p = static_cast<uint8_t*>(std::aligned_alloc(align, (bytes + align - 1) / align * align));
  if (!p) throw std::bad_alloc();
  try {
    place_memory(p, bytes);
  } catch (...) {
    std::free(p);
    throw;
  }
  return p;
}

void give_memory(uint8_t* data) { std::free(data); }

void take_memory_elsewhere() {}
#endif

}  // namespace clade
