// The MLX primitives of products and lookups; every argument is checked before one is built.
#include <cstring>
#include <string>

#include "clade_kernels.h"
#include "error.h"
#include "experts.h"
#include "experts_handle.h"
#include "linear.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "pool.h"
#include "primitive.h"
#include "weight.h"
#include "weight_handle.h"

namespace mx = mlx::core;

namespace clade {
namespace {

// An update that fits the call's weights and its rows of x.
Update update_of(const clade_update& u, const LinearCall& call, int64_t rows) {
  Update out{weight_of(u.a), weight_of(u.b), u.part, u.first, u.rows, u.scale};
  if (u.part < 0 || size_t(u.part) >= call.weights.size()) refuse("an update of weight " + std::to_string(u.part));
  if (out.a->bits || out.b->bits || !out.a->bias.empty() || !out.b->bias.empty()) refuse("an update takes dense weights without bias");
  const Weight& w = *call.weights[size_t(u.part)];
  if (out.a->k != w.k || out.b->n != w.n || out.a->n != out.b->k)
    refuse("an update of " + std::to_string(out.b->n) + " by " + std::to_string(out.b->k) + " and " + std::to_string(out.a->n) + " by " +
           std::to_string(out.a->k) + " does not fit a weight of " + std::to_string(w.n) + " by " + std::to_string(w.k));
  if (u.first < 0 || u.rows < 1 || int64_t(u.first) + u.rows > rows)
    refuse("an update of " + std::to_string(u.rows) + " rows from " + std::to_string(u.first) + " on, of " + std::to_string(rows));
  return out;
}

class Linear : public Primitive {
 public:
  Linear(mx::Stream s, LinearCall call, bool norm, bool residual)
      : Primitive(s), call_(std::move(call)), norm_(norm), residual_(residual) {}
  const char* name() const override { return "clade_linear"; }
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    mx::array& out = outs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    Contiguous x(in[0]);
    const int rows = int(in[0].size() / size_t(call_.k()));
    size_t next = 1;
    std::vector<Contiguous> more;
    if (norm_) more.emplace_back(in[next++]);
    if (residual_) more.emplace_back(in[next++]);
    auto& encoder = mx::cpu::get_command_encoder(stream());
    encoder.dispatch([call = call_, dtype = dtype_of(out.dtype()), x, rows, more, norm = norm_, residual = residual_,
                      y = out.data<uint8_t>()] {
      Pool::get().evaluating();
      call.run(dtype, x.read(), rows, norm ? more[0].read() : nullptr, residual ? more[norm ? 1 : 0].read() : nullptr, y);
    });
  }

 private:
  LinearCall call_;
  bool norm_, residual_;
};

// in: x, logits, [residual].
class Experts : public Primitive {
 public:
  Experts(mx::Stream s, ExpertsCall call, bool residual) : Primitive(s), call_(std::move(call)), residual_(residual) {}
  const char* name() const override { return "clade_experts"; }
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    mx::array& out = outs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    Contiguous x(in[0]), logits(in[1]);
    std::vector<Contiguous> more;
    if (residual_) more.emplace_back(in[2]);
    const int rows = int(in[0].size() / size_t(call_.k()));
    mx::cpu::get_command_encoder(stream()).dispatch(
        [call = call_, dtype = dtype_of(out.dtype()), x, logits, more, rows, y = out.data<uint8_t>()] {
          Pool::get().evaluating();
          call.run(dtype, x.read(), logits.read(), rows, more.empty() ? nullptr : more[0].read(), y);
        });
  }

 private:
  ExpertsCall call_;
  bool residual_;
};

// in: h, norm.
class Mixture : public Primitive {
 public:
  Mixture(mx::Stream s, MixtureCall call) : Primitive(s), call_(std::move(call)) {}
  const char* name() const override { return "clade_mixture"; }
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    mx::array& out = outs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    Contiguous h(in[0]), norm(in[1]);
    const int rows = int(in[0].size() / size_t(call_.experts.k()));
    mx::cpu::get_command_encoder(stream()).dispatch([call = call_, dtype = dtype_of(out.dtype()), h, norm, rows, y = out.data<uint8_t>()] {
      Pool::get().evaluating();
      if (rows) call.run(dtype, h.read(), rows, norm.read(), y);
    });
  }

 private:
  MixtureCall call_;
};

class Embed : public Primitive {
 public:
  Embed(mx::Stream s, std::shared_ptr<const Weight> w) : Primitive(s), weight_(std::move(w)) {}
  const char* name() const override { return "clade_embed"; }
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    mx::array& out = outs[0];
    out.set_data(mx::allocator::malloc(out.nbytes()));
    Contiguous ids(in[0]);
    mx::cpu::get_command_encoder(stream()).dispatch(
        [w = weight_, ids, n = in[0].size(), dtype = dtype_of(out.dtype()), y = out.data<uint8_t>(),
         size = out.itemsize()] {
          const uint32_t* id = reinterpret_cast<const uint32_t*>(ids.read());
          std::vector<float> row(static_cast<size_t>(w->k));
          for (size_t i = 0; i < n; i++) {
            if (id[i] >= uint32_t(w->n)) throw std::out_of_range("clade_embed: id " + std::to_string(id[i]) + " of " + std::to_string(w->n));
            w->row(int(id[i]), row.data());
            level().narrow(dtype, row.data(), size_t(w->k), y + i * size_t(w->k) * size);
          }
        });
  }

 private:
  std::shared_ptr<const Weight> weight_;
};

}  // namespace

ExpertsCall experts_of(clade_weight gate, clade_weight up, clade_weight down, int experts, int top_k, bool normalize) {
  ExpertsCall call{weight_of(gate), weight_of(up), weight_of(down), experts, top_k, normalize};
  if (experts < 1 || top_k < 1 || top_k > experts) refuse(std::to_string(top_k) + " of " + std::to_string(experts) + " experts");
  const int k = call.k(), width = call.width();
  if (k % 16 || width % 16) refuse("experts of " + std::to_string(k) + " by " + std::to_string(width) + " are no whole panels");
  const Weight &g = *call.gate, &u = *call.up, &d = *call.down;
  if (int64_t(g.n) != int64_t(experts) * width || u.n != g.n || u.k != k || int64_t(d.n) != int64_t(experts) * k)
    refuse("the weights are not those of " + std::to_string(experts) + " experts");
  if (!g.bias.empty() || !u.bias.empty() || !d.bias.empty()) refuse("experts have no bias");
  return call;
}

MixtureCall mixture_of(clade_weight router, clade_weight gate, clade_weight up, clade_weight down, int experts, int top_k, bool normalize,
                       float norm_eps) {
  MixtureCall call{{}, experts_of(gate, up, down, experts, top_k, normalize)};
  call.router.weights.push_back(weight_of(router));
  call.router.norm_eps = norm_eps;
  if (call.router.k() != call.experts.k() || call.router.width() != experts)
    refuse("the router is not that of " + std::to_string(experts) + " experts");
  return call;
}

}  // namespace clade

using namespace clade;

extern "C" {

int clade_linear(clade_array* res, clade_array x, const clade_weight* weights, int count, int gate, clade_array norm_weight,
                 float norm_eps, clade_array residual, clade_stream s) {
  return clade_linear_updates(res, x, weights, count, gate, norm_weight, norm_eps, residual, nullptr, 0, s);
}

int clade_linear_updates(clade_array* res, clade_array x, const clade_weight* weights, int count, int gate, clade_array norm_weight,
                         float norm_eps, clade_array residual, const clade_update* updates, int changes, clade_stream s) {
  return guard("clade_linear", [&] {
    const mx::array& in = array_of(x);
    const DType dtype = dtype_of(in.dtype());
    (void)dtype;
    LinearCall call;
    if (count < 1) refuse("no weights");
    for (int i = 0; i < count; i++) call.weights.push_back(weight_of(weights[i]));
    const int k = call.k();
    for (const auto& w : call.weights)
      if (w->k != k) refuse("weights of " + std::to_string(k) + " and " + std::to_string(w->k) + " columns");
    if (in.ndim() < 1 || in.shape(-1) != k) refuse("x has " + std::to_string(in.ndim() ? in.shape(-1) : 0) + " columns, the weights " + std::to_string(k));
    if (gate < CLADE_GATE_NONE || gate > CLADE_GATE_GELU_TANH) refuse("gate " + std::to_string(gate) + " is unknown");
    if (gate != CLADE_GATE_NONE && (count != 2 || call.weights[0]->n != call.weights[1]->n))
      refuse("a gate takes two weights of the same rows");
    call.gate = Gate(gate);
    call.norm_eps = norm_eps;
    const int64_t rows = int64_t(in.size()) / k;
    for (int i = 0; i < changes; i++) call.updates.push_back(update_of(updates[i], call, rows));
    mx::Shape shape = in.shape();
    shape.back() = call.width();
    std::vector<mx::array> inputs{in};
    if (norm_weight.ctx) {
      const mx::array& w = array_of(norm_weight);
      if (w.ndim() != 1 || w.shape(0) != k || w.dtype() != in.dtype()) refuse("the norm weight does not fit x");
      inputs.push_back(w);
    }
    if (residual.ctx) {
      const mx::array& r = array_of(residual);
      if (r.shape() != shape || r.dtype() != in.dtype()) refuse("the residual does not fit the result");
      inputs.push_back(r);
    }
    give(res, mx::array(std::move(shape), in.dtype(),
                        std::make_shared<Linear>(stream_of(s), std::move(call), norm_weight.ctx, residual.ctx),
                        std::move(inputs)));
  });
}

int clade_experts(clade_array* res, clade_array x, clade_array logits, clade_weight gate, clade_weight up, clade_weight down,
                  int experts, int top_k, bool normalize, clade_array residual, clade_stream s) {
  return guard("clade_experts", [&] {
    const mx::array &in = array_of(x), &router = array_of(logits);
    (void)dtype_of(in.dtype());
    ExpertsCall call = experts_of(gate, up, down, experts, top_k, normalize);
    const int k = call.k();
    if (in.ndim() < 1 || in.shape(-1) != k) refuse("x has not " + std::to_string(k) + " columns");
    mx::Shape shape = in.shape();
    shape.back() = experts;
    if (router.shape() != shape || router.dtype() != in.dtype()) refuse("the logits do not fit x");
    std::vector<mx::array> inputs{in, router};
    if (residual.ctx) {
      const mx::array& r = array_of(residual);
      if (r.shape() != in.shape() || r.dtype() != in.dtype()) refuse("the residual does not fit the result");
      inputs.push_back(r);
    }
    give(res, mx::array(in.shape(), in.dtype(), std::make_shared<Experts>(stream_of(s), std::move(call), residual.ctx), std::move(inputs)));
  });
}

int clade_mixture(clade_array* res, clade_array h, clade_array norm, float norm_eps, clade_weight router, clade_weight gate, clade_weight up,
                  clade_weight down, int experts, int top_k, bool normalize, clade_stream s) {
  return guard("clade_mixture", [&] {
    const mx::array &in = array_of(h), &w = array_of(norm);
    (void)dtype_of(in.dtype());
    MixtureCall call = mixture_of(router, gate, up, down, experts, top_k, normalize, norm_eps);
    const int k = call.experts.k();
    if (in.ndim() < 1 || in.shape(-1) != k) refuse("h has not " + std::to_string(k) + " columns");
    if (w.ndim() != 1 || w.shape(0) != k || w.dtype() != in.dtype()) refuse("the norm's weight does not fit");
    give(res, mx::array(in.shape(), in.dtype(), std::make_shared<Mixture>(stream_of(s), std::move(call)), {in, w}));
  });
}

int clade_embed(clade_array* res, clade_array ids, clade_weight w, int dtype, clade_stream s) {
  return guard("clade_embed", [&] {
    const mx::array& in = array_of(ids);
    if (in.dtype() != mx::int32 && in.dtype() != mx::uint32) refuse("ids must be int32 or uint32");
    auto weight = weight_of(w);
    mx::Shape shape = in.shape();
    shape.push_back(weight->k);
    give(res, mx::array(std::move(shape), mlx_dtype_of(dtype), std::make_shared<Embed>(stream_of(s), weight), {in}));
  });
}

}  // extern "C"
