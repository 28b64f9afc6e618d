// The one thread pool of the process.
//
// Invariants: run(n, f) calls f(i, n) for i = 0..n-1, f(0) on the caller's thread, and returns when all have; calls do not
// nest. Workers spin for a bounded time after a call, so that the next kernel of a step finds them awake, then sleep.
// A kernel's results never depend on n.
#pragma once
#include <functional>

namespace clade {

class Pool {
 public:
  static Pool& get();
  // Threads that a kernel uses, the caller's included; at least 1.
  int threads() const;
  void set_threads(int n);
  // Keeps worker i on processor cpus[i]; empty lifts it. Linux only; false where it cannot.
  bool pin(const int* cpus, int n);

  template <class F>
  void run(const F& f) {
    dispatch([](const void* ctx, int i, int n) { (*static_cast<const F*>(ctx))(i, n); }, &f);
  }

 private:
  Pool();
  ~Pool();
  void dispatch(void (*fn)(const void*, int, int), const void* ctx);
  struct Impl;
  Impl* impl_;
};

// The contiguous part of [0, total) that belongs to thread i of n, in units of `unit`.
inline void part(int total, int unit, int i, int n, int* begin, int* end) {
  long units = (total + unit - 1) / unit;
  long b = units * i / n * unit, e = units * (i + 1) / n * unit;
  *begin = int(b < total ? b : total);
  *end = int(e < total ? e : total);
}

}  // namespace clade
