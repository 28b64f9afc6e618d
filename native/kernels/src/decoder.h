// Every layer of a decoder for a few rows, one after another without a word in between.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "attention.h"
#include "experts.h"
#include "linear.h"

namespace clade {

// Rows that a step has at most: with more its products wait for arithmetic, and operations of their own cost nothing.
constexpr int kDecoderRows = 8;

struct DecoderLayer {
  LinearCall projections, o;  // queries, keys and values side by side; norms' epsilons are set
  LinearCall mlp, down;       // gate and up
  MixtureCall mixture;        // in place of the two where it has experts
  std::vector<uint8_t> attention_norm, mlp_norm;  // [hidden] of the decoder's dtype
  std::vector<uint8_t> q_norm, k_norm;            // [head_dim] of it, or empty

  bool mixes() const { return mixture.experts.experts > 0; }
};

struct Decoder {
  DType dtype;
  std::vector<DecoderLayer> layers;

  int hidden() const { return layers[0].projections.k(); }
  // x and out [rows, hidden]: out is what the last layer leaves. segments are those of each layer, the rows of all of them in order.
  // The bits are those of LinearCall, AttentionCall and MixtureCall.
  void run(const AttentionCall& attention, const void* x, int rows, const std::vector<std::vector<AttentionSegment>>& segments,
           const float* inv_freq, void* out) const;
};

}  // namespace clade
