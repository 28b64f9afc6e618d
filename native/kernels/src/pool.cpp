#include "pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace clade {

namespace {

// Some 100 us of pauses: longer than the gap between two kernels of a step, far shorter than a person's pause.
constexpr int kSpins = 2000;
// Pieces that each thread should find.
constexpr int kPieces = 4;

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct Pool::Impl {
  std::atomic<int> threads{1};
  std::vector<std::thread> workers;
  std::vector<int> cpus;

  std::mutex mutex;  // one run or change at a time

  // One run: written while the gate is shut, read by those that entered.
  void (*fn)(const void*, int) = nullptr;
  const void* ctx = nullptr;
  int n = 0;
  std::atomic<int> next{0};
  // The gate: open bit, and how many workers are inside.
  static constexpr unsigned kOpen = 1u << 31;
  std::atomic<unsigned> gate{0};

  std::atomic<unsigned> epoch{0};  // one more for each run
  std::atomic<bool> stop{false};
  std::atomic<int> sleepers{0};
  std::mutex sleep_mutex;
  std::condition_variable wake;

  bool enter() {
    unsigned g = gate.load(std::memory_order_acquire);
    while (g & kOpen)
      if (gate.compare_exchange_weak(g, g + 1, std::memory_order_acq_rel)) return true;
    return false;
  }

  void take_pieces() {
    for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) fn(ctx, i);
  }

  void work(unsigned seen) {
    for (;;) {
      unsigned now = epoch.load(std::memory_order_acquire);
      for (int spin = 0; now == seen && spin < kSpins; spin++) {
        pause();
        now = epoch.load(std::memory_order_acquire);
      }
      if (now == seen) {
        std::unique_lock<std::mutex> lock(sleep_mutex);
        sleepers.fetch_add(1);
        wake.wait(lock, [&] { return epoch.load() != seen; });
        sleepers.fetch_sub(1);
        now = epoch.load();
      }
      seen = now;
      if (stop.load(std::memory_order_acquire)) return;
      if (!enter()) continue;
      take_pieces();
      gate.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  void signal() {
    epoch.fetch_add(1);
    if (sleepers.load() > 0) {
      std::lock_guard<std::mutex> lock(sleep_mutex);
      wake.notify_all();
    }
  }

  void pin_worker(int i) {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    if (i < int(cpus.size()))
      CPU_SET(cpus[i], &set);
    else
      for (unsigned c = 0; c < CPU_SETSIZE; c++) CPU_SET(c, &set);
    pthread_setaffinity_np(workers[i].native_handle(), sizeof set, &set);
#else
    (void)i;
#endif
  }

  void resize(int count) {
    if (int(workers.size()) == count - 1) return;
    stop.store(true);
    signal();
    for (auto& w : workers) w.join();
    workers.clear();
    stop.store(false);
    for (int i = 1; i < count; i++) {
      workers.emplace_back([this, seen = epoch.load()] { work(seen); });
      if (!cpus.empty()) pin_worker(i - 1);
    }
    threads.store(count);
  }

  void run(void (*f)(const void*, int), const void* c, int count) {
    fn = f;
    ctx = c;
    n = count;
    next.store(0, std::memory_order_relaxed);
    gate.store(kOpen, std::memory_order_release);
    signal();
    take_pieces();
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spin = 0; gate.load(std::memory_order_acquire) != 0; spin++) {
      if (spin < kSpins)
        pause();
      else
        std::this_thread::yield();
    }
  }
};

Pool& Pool::get() {
  // Never destroyed: a worker may still spin while the process exits.
  static Pool* pool = new Pool;
  return *pool;
}

Pool::Pool() : impl_(new Impl) {
  int n = int(std::thread::hardware_concurrency());
  impl_->resize(n > 0 ? n : 1);
}

int Pool::threads() const { return impl_->threads.load(); }

void Pool::set_threads(int n) {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->resize(n < 1 ? 1 : n);
}

bool Pool::pin(const int* cpus, int n) {
#if defined(__linux__)
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->cpus.assign(cpus, cpus + n);
  for (int i = 0; i < int(impl_->workers.size()); i++) impl_->pin_worker(i);
  return true;
#else
  (void)cpus;
  return n == 0;
#endif
}

void Pool::dispatch(void (*fn)(const void*, int), const void* ctx, int n) {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  if (n <= 1 || impl_->workers.empty()) {
    for (int i = 0; i < n; i++) fn(ctx, i);
    return;
  }
  impl_->run(fn, ctx, n);
}

int piece_of(int total, int unit) {
  const int pieces = Pool::get().threads() * kPieces;
  return std::max(unit, (total / pieces + unit - 1) / unit * unit);
}

}  // namespace clade
