// The MLX primitives behind the C interface; every argument is checked before one is built.
#include <cstring>
#include <string>

#include "attention.h"
#include "clade_kernels.h"
#include "error.h"
#include "linear.h"
#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/ops.h"
#include "mlx/primitives.h"
#include "mlx/utils.h"
#include "pool.h"
#include "weight.h"
#include "weight_handle.h"

namespace mx = mlx::core;

namespace clade {
namespace {

DType dtype_of(mx::Dtype d) {
  if (d == mx::float32) return DType::f32;
  if (d == mx::bfloat16) return DType::bf16;
  if (d == mx::float16) return DType::f16;
  refuse("dtype must be float32, bfloat16 or float16");
}

mx::Dtype mlx_dtype_of(int d) {
  switch (d) {
    case CLADE_F32:
      return mx::float32;
    case CLADE_BF16:
      return mx::bfloat16;
    case CLADE_F16:
      return mx::float16;
  }
  refuse("dtype " + std::to_string(d) + " is unknown");
}

const mx::array& array_of(clade_array a) {
  if (!a.ctx) refuse("an array is missing");
  return *static_cast<mx::array*>(a.ctx);
}

mx::Stream stream_of(clade_stream s) {
  if (!s.ctx) refuse("a stream is missing");
  return *static_cast<mx::Stream*>(s.ctx);
}

void give(clade_array* res, mx::array a) {
  if (res->ctx)
    *static_cast<mx::array*>(res->ctx) = std::move(a);
  else
    res->ctx = new mx::array(std::move(a));
}

// Row-major data of an evaluated array, copied element by element when it has other strides.
class Contiguous {
 public:
  explicit Contiguous(const mx::array& a) : array_(a) {
    if (a.flags().row_contiguous) {
      data_ = a.data<uint8_t>();
      return;
    }
    copy_ = std::make_shared<std::vector<uint8_t>>();
    copy_->resize(a.nbytes());
    data_ = copy_->data();
  }
  // Called on the stream's thread, when the input is there.
  const uint8_t* read() const {
    if (copy_) {
      const size_t size = array_.itemsize();
      for (size_t i = 0; i < array_.size(); i++) {
        size_t rest = i, at = 0;
        for (int d = int(array_.ndim()) - 1; d >= 0; d--) {
          at += rest % size_t(array_.shape(d)) * size_t(array_.strides(d));
          rest /= size_t(array_.shape(d));
        }
        std::memcpy(copy_->data() + i * size, array_.data<uint8_t>() + at * size, size);
      }
    }
    return data_;
  }

 private:
  mx::array array_;
  const uint8_t* data_;
  std::shared_ptr<std::vector<uint8_t>> copy_;
};

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

class Primitive : public mx::Primitive {
 public:
  using mx::Primitive::Primitive;
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(name()) + ": runs on the CPU only");
  }
};

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

class Attend : public Primitive {
 public:
  // offsets and rows of each sequence.
  Attend(mx::Stream s, AttentionCall call, std::vector<std::pair<int, int>> sequences, bool q_norm, bool k_norm)
      : Primitive(s), call_(call), sequences_(std::move(sequences)), q_norm_(q_norm), k_norm_(k_norm) {}
  const char* name() const override { return "clade_attend"; }
  // in: qkv, [keys, values] of each sequence, inv_freq, [q_norm], [k_norm]; out: result, [keys, values].
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    outs[0].set_data(mx::allocator::malloc(outs[0].nbytes()));
    // In place, whoever else holds the buffer: tasks of a stream run in order, and the caller owns its caches alone. MLX's own
    // donation test would copy the cache on every step that is issued before the last one has finished.
    for (size_t i = 1; i < outs.size(); i++) {
      if (!in[i].flags().row_contiguous) throw std::runtime_error("clade_attend: the caches must be contiguous");
      outs[i].copy_shared_buffer(in[i]);
    }
    std::vector<AttentionSegment> segments;
    for (size_t i = 0; i < sequences_.size(); i++)
      segments.push_back({sequences_[i].first, sequences_[i].second, outs[1 + 2 * i].data<uint8_t>(), outs[2 + 2 * i].data<uint8_t>(),
                          in[1 + 2 * i].shape(2)});
    Contiguous qkv(in[0]);
    std::vector<Contiguous> more;
    for (size_t i = outs.size(); i < in.size(); i++) more.emplace_back(in[i]);
    encoder.dispatch([call = call_, dtype = dtype_of(outs[0].dtype()), qkv, more, segments, qn = q_norm_, kn = k_norm_,
                      y = outs[0].data<uint8_t>()] {
      Pool::get().evaluating();
      call.run(dtype, qkv.read(), segments, reinterpret_cast<const float*>(more[0].read()), qn ? more[1].read() : nullptr,
               kn ? more[qn ? 2 : 1].read() : nullptr, y);
    });
  }

 private:
  AttentionCall call_;
  std::vector<std::pair<int, int>> sequences_;
  bool q_norm_, k_norm_;
};

}  // namespace
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

int clade_attend(clade_array* out, clade_array* new_keys, clade_array* new_values, clade_array qkv, clade_array keys,
                 clade_array values, clade_array inv_freq, clade_array q_norm, clade_array k_norm, const clade_attention* a,
                 clade_stream s) {
  const clade_array in[] = {keys, values};
  clade_array caches[2] = {*new_keys, *new_values};
  const int rows = qkv.ctx && static_cast<mx::array*>(qkv.ctx)->ndim() == 3 ? static_cast<mx::array*>(qkv.ctx)->shape(1) : 0;
  const int rc = clade_attend_rows(out, caches, qkv, in, 1, &a->offset, &rows, inv_freq, q_norm, k_norm, a, s);
  *new_keys = caches[0];
  *new_values = caches[1];
  return rc;
}

int clade_attend_rows(clade_array* out, clade_array* new_caches, clade_array qkv, const clade_array* caches, int count,
                      const int* offsets, const int* rows, clade_array inv_freq, clade_array q_norm, clade_array k_norm,
                      const clade_attention* a, clade_stream s) {
  return guard("clade_attend", [&] {
    const mx::array& x = array_of(qkv);
    const mx::Dtype dtype = x.dtype();
    dtype_of(dtype);
    if (a->kv_heads < 1 || a->heads < 1 || a->heads % a->kv_heads) refuse("heads must be a multiple of kv_heads");
    if (a->head_dim < 16 || a->head_dim % 16) refuse("head_dim must be a multiple of 16");
    if (a->rope_dims < 0 || a->rope_dims % 2 || a->rope_dims > a->head_dim) refuse("rope_dims must be even and at most head_dim");
    if (a->window < 0) refuse("offset and window must not be negative");
    if (x.ndim() != 3 || x.shape(0) != 1 || x.shape(2) != (a->heads + 2 * a->kv_heads) * a->head_dim)
      refuse("qkv must be [1, L, (heads + 2 kv_heads) * head_dim]");
    if (count < 1) refuse("no sequence");
    std::vector<mx::array> inputs{x};
    std::vector<mx::Shape> shapes{{1, x.shape(1), a->heads * a->head_dim}};
    std::vector<std::pair<int, int>> sequences;
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
      const mx::array &k = array_of(caches[2 * i]), &v = array_of(caches[2 * i + 1]);
      if (offsets[i] < 0 || rows[i] < 0) refuse("offset and window must not be negative");
      if (k.ndim() != 4 || k.shape(0) != 1 || k.shape(1) != a->kv_heads || k.shape(3) != a->head_dim || v.shape() != k.shape())
        refuse("the caches must be [1, kv_heads, capacity, head_dim]");
      if (k.dtype() != dtype || v.dtype() != dtype) refuse("qkv and the caches must have one dtype");
      if (k.shape(2) < int64_t(offsets[i]) + rows[i])
        refuse("the cache holds " + std::to_string(k.shape(2)) + " positions, " + std::to_string(int64_t(offsets[i]) + rows[i]) + " are needed");
      inputs.insert(inputs.end(), {k, v});
      shapes.insert(shapes.end(), {k.shape(), v.shape()});
      sequences.emplace_back(offsets[i], rows[i]);
      total += rows[i];
    }
    if (total != x.shape(1)) refuse("qkv has " + std::to_string(x.shape(1)) + " rows, the sequences " + std::to_string(total));
    if (a->rope_dims) {
      const mx::array& f = array_of(inv_freq);
      if (f.ndim() != 1 || f.shape(0) != a->rope_dims / 2 || f.dtype() != mx::float32) refuse("inv_freq must be float32 [rope_dims/2]");
      inputs.push_back(f);
    } else {
      inputs.push_back(mx::array(0.0f));
    }
    for (clade_array n : {q_norm, k_norm}) {
      if (!n.ctx) continue;
      const mx::array& w = array_of(n);
      if (w.ndim() != 1 || w.shape(0) != a->head_dim || w.dtype() != dtype) refuse("a head norm does not fit");
      inputs.push_back(w);
    }
    AttentionCall call{a->heads,      a->kv_heads,    a->head_dim, a->rope_dims, a->rope_traditional,
                       a->rope_scale, a->rope_mscale, a->scale,    a->window,    a->norm_eps};
    auto outs = mx::array::make_arrays(shapes, std::vector<mx::Dtype>(shapes.size(), dtype),
                                       std::make_shared<Attend>(stream_of(s), call, std::move(sequences), q_norm.ctx, k_norm.ctx), inputs);
    give(out, outs[0]);
    for (size_t i = 1; i < outs.size(); i++) give(&new_caches[i - 1], outs[i]);
  });
}

}  // extern "C"
