// The MLX primitive of a decoder's step; every argument is checked before one is built.
#include "decoder.h"

#include <string>

#include "attend.h"
#include "experts_handle.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/transforms.h"
#include "pool.h"
#include "primitive.h"
#include "weight_handle.h"

namespace clade {
namespace {

// in: x, [keys, values] of each pair of each sequence of each layer, inv_freq; out: the result, [keys, values] of those that are written.
class Decode : public Primitive {
 public:
  Decode(mx::Stream s, std::shared_ptr<const Decoder> d, AttentionCall call, std::vector<std::vector<Sequence>> layers)
      : Primitive(s), decoder_(std::move(d)), call_(call), layers_(std::move(layers)) {}
  const char* name() const override { return "clade_decode"; }
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    outs[0].set_data(mx::allocator::malloc(outs[0].nbytes()));
    std::vector<std::vector<AttentionSegment>> segments;
    size_t next = 1, made = 1;
    for (const auto& sequences : layers_) {
      segments.emplace_back();
      for (const Sequence& q : sequences) segments.back().push_back(segment_of(q, call_.head_dim, in, next, outs, made));
    }
    Contiguous x(in[0]), inv_freq(in[next]);
    mx::cpu::get_command_encoder(stream()).dispatch([d = decoder_, call = call_, x, inv_freq, segments = std::move(segments),
                                                     rows = in[0].shape(1), y = outs[0].data<uint8_t>()] {
      Pool::get().evaluating();
      d->run(call, x.read(), rows, segments, reinterpret_cast<const float*>(inv_freq.read()), y);
    });
  }

 private:
  std::shared_ptr<const Decoder> decoder_;
  AttentionCall call_;
  std::vector<std::vector<Sequence>> layers_;
};

std::shared_ptr<const Decoder>& decoder_of(clade_decoder d) {
  if (!d.ctx) refuse("a decoder is missing");
  return *static_cast<std::shared_ptr<const Decoder>*>(d.ctx);
}

LinearCall linear_of(std::initializer_list<clade_weight> weights, int k, int n, const char* what) {
  LinearCall out;
  for (clade_weight w : weights) {
    out.weights.push_back(weight_of(w));
    if (out.weights.back()->k != k)
      refuse(std::string(what) + " has " + std::to_string(out.weights.back()->k) + " columns, not " + std::to_string(k));
  }
  if (n && out.width() != n) refuse(std::string(what) + " gives " + std::to_string(out.width()) + " columns, not " + std::to_string(n));
  return out;
}

// The bytes of a norm's weight; none where there may be none and the array is empty.
std::vector<uint8_t> norm_of(clade_array norm, int k, DType dtype, bool optional) {
  if (optional && !norm.ctx) return {};
  mx::array w = array_of(norm);
  if (w.ndim() != 1 || (k && w.shape(0) != k) || dtype_of(w.dtype()) != dtype) refuse("a norm's weight does not fit");
  w.eval();
  const uint8_t* data = Contiguous(w).read();
  return {data, data + w.nbytes()};
}

DecoderLayer layer_of(const clade_decoder_layer& l, DType dtype, int hidden, int gate, float eps) {
  DecoderLayer out;
  out.projections = linear_of({l.q, l.k, l.v}, hidden, 0, "a projection");
  out.o = linear_of({l.o}, out.projections.weights[0]->n, hidden, "the weight of o");
  if (l.router.ctx) {
    if (gate != CLADE_GATE_SILU) refuse("experts have the gate silu");
    out.mixture = mixture_of(l.router, l.gate, l.up, l.down, l.experts, l.top_k, l.normalize, eps);
    if (out.mixture.experts.k() != hidden) refuse("the experts are not of " + std::to_string(hidden) + " columns");
  } else {
    out.mlp = linear_of({l.gate, l.up}, hidden, 0, "the MLP");
    if (out.mlp.weights[0]->n != out.mlp.weights[1]->n) refuse("a gate takes two weights of the same rows");
    out.mlp.gate = Gate(gate);
    out.down = linear_of({l.down}, out.mlp.width(), hidden, "the MLP's last weight");
  }
  out.projections.norm_eps = out.mlp.norm_eps = eps;
  out.attention_norm = norm_of(l.attention_norm, hidden, dtype, false);
  out.mlp_norm = norm_of(l.mlp_norm, hidden, dtype, false);
  out.q_norm = norm_of(l.q_norm, 0, dtype, true);
  out.k_norm = norm_of(l.k_norm, 0, dtype, true);
  return out;
}

// A layer's matrices and norms must be what the attention takes and gives.
void check_layer(const DecoderLayer& l, const clade_attention& a, size_t size) {
  const int queries = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
  const auto& w = l.projections.weights;
  if (w[0]->n != queries || w[1]->n != keys || w[2]->n != keys) refuse("the projections are not those of the heads");
  for (const auto* norm : {&l.q_norm, &l.k_norm})
    if (!norm->empty() && norm->size() != size_t(a.head_dim) * size) refuse("a head norm does not fit");
}

}  // namespace
}  // namespace clade

using namespace clade;

extern "C" {

int clade_decoder_new(clade_decoder* res, const clade_decoder_layer* layers, int count, int gate, float norm_eps) {
  return guard("clade_decoder", [&] {
    if (count < 1) refuse("no layers");
    if (gate != CLADE_GATE_SILU && gate != CLADE_GATE_GELU_TANH) refuse("gate " + std::to_string(gate) + " is none of an MLP");
    auto d = std::make_shared<Decoder>();
    d->dtype = dtype_of(array_of(layers[0].attention_norm).dtype());
    const int hidden = weight_of(layers[0].q)->k;
    for (int i = 0; i < count; i++) d->layers.push_back(layer_of(layers[i], d->dtype, hidden, gate, norm_eps));
    res->ctx = new std::shared_ptr<const Decoder>(std::move(d));
  });
}

int clade_decoder_free(clade_decoder d) {
  delete static_cast<std::shared_ptr<const Decoder>*>(d.ctx);
  return 0;
}

int clade_decode(clade_array* out, clade_array* new_caches, clade_decoder d, clade_array x, const clade_array* caches, int count,
                 const clade_sequence* sequences, const int* tables, int keep, clade_array inv_freq, const clade_attention* a,
                 clade_stream s) {
  return guard("clade_decode", [&] {
    const auto& decoder = decoder_of(d);
    const mx::array& in = array_of(x);
    if (dtype_of(in.dtype()) != decoder->dtype) refuse("x has another dtype than the norms");
    if (in.ndim() != 3 || in.shape(0) != 1 || in.shape(2) != decoder->hidden()) refuse("x must be [1, L, " + std::to_string(decoder->hidden()) + "]");
    if (in.shape(1) < 1 || in.shape(1) > kDecoderRows) refuse(std::to_string(in.shape(1)) + " rows, not 1 to " + std::to_string(kDecoderRows));
    check_heads(*a);
    if (count < 1) refuse("no sequence");
    if (keep < 0 || keep > kAttentionTile) refuse("the first " + std::to_string(keep) + " positions cannot be kept");
    std::vector<mx::array> inputs{in};
    std::vector<mx::Shape> shapes{in.shape()};
    std::vector<mx::Dtype> dtypes{in.dtype()};
    std::vector<std::vector<Sequence>> read;
    for (const DecoderLayer& l : decoder->layers) {
      check_layer(l, *a, in.itemsize());
      read.emplace_back();
      int64_t rows = 0;
      for (int i = 0; i < count; i++, sequences++) {
        read.back().push_back(read_sequence(*sequences, caches, tables + sequences->table, *a, keep));
        for (int p = 0; p < 2 * sequences->pairs; p++) {
          inputs.push_back(array_of(caches[p]));
          if (p < 2 * sequences->written) continue;
          shapes.push_back(inputs.back().shape());
          dtypes.push_back(inputs.back().dtype());
        }
        caches += 2 * sequences->pairs;
        rows += sequences->rows;
      }
      if (rows != in.shape(1)) refuse("x has " + std::to_string(in.shape(1)) + " rows, the sequences " + std::to_string(rows));
    }
    inputs.push_back(checked_frequencies(inv_freq, *a));
    auto outs = mx::array::make_arrays(shapes, dtypes, std::make_shared<Decode>(stream_of(s), decoder, attention_call(*a, keep, 0), std::move(read)),
                                       inputs);
    give(out, outs[0]);
    for (size_t i = 1; i < outs.size(); i++) give(&new_caches[i - 1], outs[i]);
  });
}

}  // extern "C"
