// Mixtures as primitives are given them; what does not fit is refused.
#pragma once
#include "clade_kernels.h"
#include "experts.h"

namespace clade {

// Experts that fit each other.
ExpertsCall experts_of(clade_weight gate, clade_weight up, clade_weight down, int experts, int top_k, bool normalize);

// Those with their router.
MixtureCall mixture_of(clade_weight router, clade_weight gate, clade_weight up, clade_weight down, int experts, int top_k, bool normalize,
                       float norm_eps);

}  // namespace clade
