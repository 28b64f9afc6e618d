// A linear layer with what usually surrounds it: a norm before, a bias, gate or residual after.
#pragma once
#include <memory>
#include <vector>

#include "level.h"
#include "weight.h"

namespace clade {

enum class Gate : int { none = 0, silu = 1, gelu_tanh = 2 };

// A low-rank change of one weight's products in some rows: + scale * b (a x), a [r, k] and b [n, r], both dense.
struct Update {
  std::shared_ptr<const Weight> a, b;
  int part = 0;  // which of the call's weights
  int first = 0, rows = 0;
  float scale = 1;
};

struct LinearCall {
  std::vector<std::shared_ptr<const Weight>> weights;
  Gate gate = Gate::none;
  float norm_eps = 0;
  // In the order in which they are added, before gate and residual. A row without one has the bits of a call without any.
  std::vector<Update> updates;

  int k() const { return weights[0]->k; }
  int width() const;  // columns of the result
  // x [rows, k], out [rows, width()], residual like out or null, norm [k] or null; all of dtype, row-major.
  void run(DType dtype, const void* x, int rows, const void* norm, const void* residual, void* out) const;

 private:
  std::vector<QuantRows> rounded(int rows) const;
  const float* prepare(DType dtype, const void* x, int rows, const void* norm, const std::vector<QuantRows>& rounded) const;
  void run_updated(DType dtype, const float* xs, const std::vector<QuantRows>& codes, int rows, const void* residual, void* out) const;
};

// Rows of x as floats with the norm applied where norm is not null, each step rounded to dtype as a graph of ops would.
void norm_row(DType dtype, const float* x, const float* norm, float eps, int k, float* out);

// Scratch floats of the calling thread, at least n, 64-byte aligned; one buffer a slot, valid until the next call for it.
float* scratch(int slot, size_t n);

}  // namespace clade
