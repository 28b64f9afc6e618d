#include "pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "error.h"

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
// Pieces that each thread should find at least: who comes late leaves some of them to the others.
constexpr int kPieces = 3;

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
  unsigned placement = 0;  // one more for each change of cpus
#if defined(__linux__)
  cpu_set_t everywhere;  // where the process could run when the pool was made
#endif

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

  // Where thread i stays: on cpus[i], or wherever the process may run.
#if defined(__linux__)
  cpu_set_t place_of(size_t i) const {
    cpu_set_t set = everywhere;
    if (i < cpus.size()) {
      CPU_ZERO(&set);
      CPU_SET(size_t(cpus[i]), &set);
    }
    return set;
  }
#endif

  void place_worker(size_t i) {
#if defined(__linux__)
    const cpu_set_t set = place_of(i + 1);
    pthread_setaffinity_np(workers[i].native_handle(), sizeof set, &set);
#else
    (void)i;
#endif
  }

  // The evaluating thread is not the pool's: it is placed when it comes. Whoever fills weights is not.
  void place_caller() {
#if defined(__linux__)
    static thread_local unsigned placed = 0;
    if (placed == placement) return;
    placed = placement;
    const cpu_set_t set = place_of(0);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
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
      if (placement) place_worker(size_t(i - 1));
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
#if defined(__linux__)
  if (pthread_getaffinity_np(pthread_self(), sizeof impl_->everywhere, &impl_->everywhere) != 0)
    for (unsigned c = 0; c < CPU_SETSIZE; c++) CPU_SET(c, &impl_->everywhere);
#endif
  int n = int(std::thread::hardware_concurrency());
  impl_->resize(n > 0 ? n : 1);
}

int Pool::threads() const { return impl_->threads.load(); }

void Pool::set_threads(int n) {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->resize(n < 1 ? 1 : n);
}

void Pool::pin(const int* cpus, int n) {
#if defined(__linux__)
  std::lock_guard<std::mutex> lock(impl_->mutex);
  for (int i = 0; i < n; i++)
    if (cpus[i] < 0 || cpus[i] >= CPU_SETSIZE || !CPU_ISSET(size_t(cpus[i]), &impl_->everywhere))
      refuse("processor " + std::to_string(cpus[i]) + " is not one that this process may use");
  if (n == 0 && impl_->cpus.empty()) return;
  impl_->cpus.assign(cpus, cpus + n);
  impl_->placement++;
  for (size_t i = 0; i < impl_->workers.size(); i++) impl_->place_worker(i);
#else
  (void)cpus;
  if (n > 0) refuse("this system cannot pin threads");
#endif
}

void Pool::evaluating() {
  std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->place_caller();
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
  const int threads = Pool::get().threads(), units = std::max(1, (total + unit - 1) / unit);
  int best = 1, least = units;
  for (int p = 1; p <= std::max(1, units / (threads * kPieces)); p++) {
    const int pieces = (units + p - 1) / p, busiest = (pieces + threads - 1) / threads * p;
    if (busiest <= least) best = p, least = busiest;
  }
  return best * unit;
}

}  // namespace clade
