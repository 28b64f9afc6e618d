// The one thread pool of the process.
//
// run(n, f) calls f(i) for every i in [0, n), on the caller and on any worker that comes in time, and returns when all have
// returned; calls do not nest. Work is taken piece by piece and a worker that is late is not waited for: a thread that lost its
// processor to another program delays at most the piece it holds. Workers spin for a bounded time after a call, so that the next
// kernel of a step finds them awake, then sleep. No result may depend on which thread runs a piece.
#pragma once

namespace clade {

class Pool {
 public:
  static Pool& get();
  // Threads that a kernel uses, the caller's included; at least 1.
  int threads() const;
  void set_threads(int n);
  // Keeps the evaluating thread on processor cpus[0] from its next call on, and worker i on cpus[i + 1]; threads beyond n run
  // anywhere, and n = 0 lifts it. Throws where the system cannot, or the process may not use a processor.
  void pin(const int* cpus, int n);

  // Said by the thread that evaluates, before its calls.
  void evaluating();

  template <class F>
  void run(int n, const F& f) {
    dispatch([](const void* ctx, int i) { (*static_cast<const F*>(ctx))(i); }, &f, n);
  }

 private:
  Pool();
  void dispatch(void (*fn)(const void*, int), const void* ctx, int n);
  struct Impl;
  Impl* impl_;
};

// How many of `total` items, a multiple of `unit`, make a piece, so that every thread finds several and all of them equally many.
int piece_of(int total, int unit);

}  // namespace clade
