#include "decoder.h"

#include <algorithm>
#include <cstring>

namespace clade {

void Decoder::run(const AttentionCall& attention, const void* x, int rows, const std::vector<std::vector<AttentionSegment>>& segments,
                  const float* inv_freq, void* out) const {
  const size_t line = size_t(rows) * (dtype == DType::f32 ? 4 : 2);
  size_t widest = 0, heads = 0, act = 0;
  for (const DecoderLayer& l : layers) {
    widest = std::max(widest, size_t(l.projections.width()));
    heads = std::max(heads, size_t(l.o.k()));
    if (!l.mixes()) act = std::max(act, size_t(l.mlp.width()));
  }
  std::vector<uint8_t> qkv(line * widest), attended(line * heads), gated(line * act);
  std::memcpy(out, x, line * size_t(hidden()));
  for (size_t i = 0; i < layers.size(); i++) {
    const DecoderLayer& l = layers[i];
    auto norm = [](const std::vector<uint8_t>& w) { return w.empty() ? nullptr : w.data(); };
    l.projections.run(dtype, out, rows, norm(l.attention_norm), nullptr, qkv.data());
    attention.run(dtype, qkv.data(), segments[i], inv_freq, norm(l.q_norm), norm(l.k_norm), attended.data());
    // A value is added to the one that it replaces: whoever writes it has read it.
    l.o.run(dtype, attended.data(), rows, nullptr, out, out);
    if (l.mixes()) {
      l.mixture.run(dtype, out, rows, l.mlp_norm.data(), out);
      continue;
    }
    l.mlp.run(dtype, out, rows, norm(l.mlp_norm), nullptr, gated.data());
    l.down.run(dtype, gated.data(), rows, nullptr, out, out);
  }
}

}  // namespace clade
