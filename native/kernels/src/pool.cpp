#include "pool.h"

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

// About 100 us of pauses: longer than the gap between two kernels of a step, far shorter than a person's pause.
constexpr int kSpins = 4000;

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

  std::mutex mutex;  // guards run(), resizing, sleeping
  std::mutex sleep_mutex;
  std::condition_variable wake;
  std::atomic<unsigned> epoch{0};
  std::atomic<int> pending{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};

  void (*fn)(const void*, int, int) = nullptr;
  const void* ctx = nullptr;
  int n = 1;

  void work(int index, unsigned seen) {
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
      fn(ctx, index, n);
      pending.fetch_sub(1, std::memory_order_acq_rel);
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
    if (i < int(cpus.size())) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cpus[i], &set);
      pthread_setaffinity_np(workers[i].native_handle(), sizeof set, &set);
    }
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
    n = count;
    for (int i = 1; i < count; i++) {
      workers.emplace_back([this, i, seen = epoch.load()] { work(i, seen); });
      pin_worker(i - 1);
    }
    threads.store(count);
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

Pool::~Pool() = default;

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

void Pool::dispatch(void (*fn)(const void*, int, int), const void* ctx) {
  Impl& p = *impl_;
  std::lock_guard<std::mutex> lock(p.mutex);
  if (p.workers.empty()) {
    fn(ctx, 0, 1);
    return;
  }
  p.fn = fn;
  p.ctx = ctx;
  p.pending.store(int(p.workers.size()), std::memory_order_release);
  p.signal();
  fn(ctx, 0, p.n);
  // A worker that lost its processor to another program is not helped by spinning on it.
  for (int spin = 0; p.pending.load(std::memory_order_acquire) > 0; spin++) {
    if (spin < kSpins)
      pause();
    else
      std::this_thread::yield();
  }
}

}  // namespace clade
