// A mixture of experts: each row goes through the gated MLPs that its router picks.
#pragma once
#include <memory>

#include "level.h"
#include "linear.h"
#include "weight.h"

namespace clade {

struct ExpertsCall {
  // Every expert's rows one after another: gate and up [experts * width, k], down [experts * k, width]; k and width are whole panels.
  std::shared_ptr<const Weight> gate, up, down;
  int experts = 0, top_k = 0;
  bool normalize = false;  // the picked probabilities sum to 1

  int k() const { return gate->k; }
  int width() const { return down->k; }
  // x [rows, k], logits [rows, experts], residual like out or null, out [rows, k]; all of dtype, row-major.
  void run(DType dtype, const void* x, const void* logits, int rows, const void* residual, void* out) const;
};

// What a decoder does with a mixture: norm, router, experts and the sum.
struct MixtureCall {
  LinearCall router;  // its norm_eps is the norm's
  ExpertsCall experts;

  // h and out [rows, k], norm [k]: out is h and the mixture of norm(h), with the bits of norm_row, LinearCall and ExpertsCall.
  void run(DType dtype, const void* h, int rows, const void* norm, void* out) const;
};

}  // namespace clade
