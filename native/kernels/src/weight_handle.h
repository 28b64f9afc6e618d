// What a clade_weight points to.
#pragma once
#include <memory>

#include "clade_kernels.h"
#include "error.h"
#include "weight.h"

namespace clade {

inline std::shared_ptr<Weight>& weight_of(clade_weight w) {
  if (!w.ctx) refuse("a weight is missing");
  return *static_cast<std::shared_ptr<Weight>*>(w.ctx);
}

}  // namespace clade
