// What stands between two attentions of a decoder, as one primitive: four linear layers, one after another, with the bits that they have
// as operations of their own. A step of a small model waits for operations more than for memory.
#include <string>
#include <vector>

#include "clade_kernels.h"
#include "error.h"
#include "linear.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "pool.h"
#include "primitive.h"
#include "weight_handle.h"

namespace mx = mlx::core;

namespace clade {
namespace {

// in: o, h, the MLP's norm, [the next layer's norm]. outs: the sum, [the next layer's products].
class Chain : public Primitive {
 public:
  Chain(mx::Stream s, LinearCall o, LinearCall mlp, LinearCall down, LinearCall next)
      : Primitive(s), o_(std::move(o)), mlp_(std::move(mlp)), down_(std::move(down)), next_(std::move(next)) {}
  const char* name() const override { return "clade_linear_chain"; }
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    for (mx::array& out : outs) out.set_data(mx::allocator::malloc(out.nbytes()));
    std::vector<Contiguous> read;
    for (const mx::array& a : in) read.emplace_back(a);
    const int rows = int(in[0].size() / size_t(o_.k()));
    mx::cpu::get_command_encoder(stream()).dispatch([o = o_, mlp = mlp_, down = down_, next = next_, read, rows, dtype = dtype_of(in[0].dtype()),
                                                     size = in[0].itemsize(), sum = outs[0].data<uint8_t>(),
                                                     more = outs.size() > 1 ? outs[1].data<uint8_t>() : nullptr] {
      Pool::get().evaluating();
      std::vector<uint8_t> h(size_t(rows) * size_t(o.width()) * size), act(size_t(rows) * size_t(mlp.width()) * size);
      o.run(dtype, read[0].read(), rows, nullptr, read[1].read(), h.data());
      mlp.run(dtype, h.data(), rows, read[2].read(), nullptr, act.data());
      down.run(dtype, act.data(), rows, nullptr, h.data(), sum);
      if (more) next.run(dtype, sum, rows, read[3].read(), nullptr, more);
    });
  }

 private:
  LinearCall o_, mlp_, down_, next_;
};

LinearCall call_of(const clade_weight* weights, int count, int k, const char* what) {
  LinearCall out;
  for (int i = 0; i < count; i++) {
    out.weights.push_back(weight_of(weights[i]));
    if (out.weights.back()->k != k)
      refuse(std::string(what) + " has " + std::to_string(out.weights.back()->k) + " columns, not " + std::to_string(k));
  }
  return out;
}

const mx::array& norm_of(clade_array norm, int k, mx::Dtype dtype) {
  const mx::array& w = array_of(norm);
  if (w.ndim() != 1 || w.shape(0) != k || w.dtype() != dtype) refuse("a norm's weight does not fit");
  return w;
}

}  // namespace
}  // namespace clade

using namespace clade;

extern "C" {

int clade_linear_chain(clade_array* out, clade_array* projected, clade_array o, clade_array h, const clade_weight* weights, int gate,
                       clade_array norm_mlp, const clade_weight* next, int count, clade_array norm_next, float norm_eps, clade_stream s) {
  return guard("clade_linear_chain", [&] {
    const mx::array &x = array_of(o), &res = array_of(h);
    (void)dtype_of(x.dtype());
    if (x.ndim() < 1) refuse("o has no columns");
    if (gate != CLADE_GATE_SILU && gate != CLADE_GATE_GELU_TANH) refuse("gate " + std::to_string(gate) + " is none of an MLP");
    LinearCall first = call_of(weights, 1, x.shape(-1), "the weight of o");
    const int hidden = first.width();
    LinearCall mlp = call_of(weights + 1, 2, hidden, "the MLP");
    if (mlp.weights[0]->n != mlp.weights[1]->n) refuse("a gate takes two weights of the same rows");
    mlp.gate = Gate(gate);
    LinearCall down = call_of(weights + 3, 1, mlp.width(), "the MLP's last weight");
    if (down.width() != hidden) refuse("the MLP gives " + std::to_string(down.width()) + " columns, not " + std::to_string(hidden));
    LinearCall last = call_of(next, count, hidden, "the next layer");
    mlp.norm_eps = last.norm_eps = norm_eps;
    mx::Shape shape = x.shape();
    shape.back() = hidden;
    if (res.shape() != shape || res.dtype() != x.dtype()) refuse("h does not fit the result");
    std::vector<mx::array> inputs{x, res, norm_of(norm_mlp, hidden, x.dtype())};
    std::vector<mx::Shape> shapes{shape};
    if (count > 0) {
      inputs.push_back(norm_of(norm_next, hidden, x.dtype()));
      shape.back() = last.width();
      shapes.push_back(shape);
    }
    auto outs = mx::array::make_arrays(shapes, std::vector<mx::Dtype>(shapes.size(), x.dtype()),
                                       std::make_shared<Chain>(stream_of(s), std::move(first), std::move(mlp), std::move(down), std::move(last)),
                                       std::move(inputs));
    give(out, outs[0]);
    if (count > 0) give(projected, outs[1]);
  });
}

}  // extern "C"
