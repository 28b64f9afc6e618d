// The inner loops, compiled once a dispatch level with CLADE_LEVEL naming it. Every level gives the same bits.
#include <algorithm>
#include <type_traits>

#include "cache.h"
#include "level.h"
#include "simd.h"
#include "trellis.h"
#include "words.h"

namespace clade {
namespace {

#include "elements.inl"
#include "tiles.inl"
#include "vectors.inl"
#include "conversions.inl"
#include "quantize.inl"
#include "dot.inl"
#include "cache.inl"
#include "sampling.inl"
#include "softcap.inl"
#include "delta.inl"

const Level kTable = {CLADE_LEVEL_NAME, kMaxDirectRows, tile,     decode, sum_squares, scale_mul, silu_mul, gelu_tanh_mul, exp_sum,
                      max_of,           scale_add,      quantize, dot,    widen,       narrow,    transpose, unpack,
                      count_at_least,   find_at_least,  take_at_least, weigh,  noisy_best, bend, delta_steps, convolve_silu};

}  // namespace

const Level* const CLADE_LEVEL = &kTable;

}  // namespace clade
