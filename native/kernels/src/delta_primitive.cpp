// The MLX primitive of the gated delta network; every argument is checked before one is built.
#include "delta.h"
#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "pool.h"
#include "primitive.h"

namespace clade {
namespace {

// A sequence as the primitive keeps it: `after` ends with its rows.
struct Sequence {
  int rows;
  bool in_place;
  std::vector<int> after;
};

// Values of a float array as floats.
std::vector<float> floats(const Contiguous& a, mx::Dtype dtype, size_t n) {
  std::vector<float> out(n);
  level().widen(dtype_of(dtype), a.read(), n, out.data());
  return out;
}

class Delta : public Primitive {
 public:
  Delta(mx::Stream s, DeltaCall call, std::vector<Sequence> sequences) : Primitive(s), call_(call), sequences_(std::move(sequences)) {}
  const char* name() const override { return "clade_gated_delta"; }
  // in: x, conv, a_log, dt_bias, norm, [history, state] of each sequence; out: result, [history, state] behind each of `after` of each.
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    outs[0].set_data(mx::allocator::malloc(outs[0].nbytes()));
    std::vector<Contiguous> before;
    std::vector<std::vector<DeltaAfter>> after;
    size_t next = 5, made = 1;
    for (const Sequence& q : sequences_) {
      before.emplace_back(in[next++]);
      const mx::array& state = in[next++];
      before.emplace_back(state);
      std::vector<DeltaAfter> behind;
      for (size_t i = 0; i < q.after.size(); i++, made += 2) {
        outs[made].set_data(mx::allocator::malloc(outs[made].nbytes()));
        // In place, whoever else holds the buffer, as with caches (attend.cpp): the caller says that nobody does.
        if (i + 1 == q.after.size() && q.in_place && state.flags().row_contiguous)
          outs[made + 1].copy_shared_buffer(state);
        else
          outs[made + 1].set_data(mx::allocator::malloc(outs[made + 1].nbytes()));
        behind.push_back({q.after[i], outs[made].data<uint8_t>(), outs[made + 1].data<float>()});
      }
      after.push_back(std::move(behind));
    }
    Contiguous x(in[0]), conv(in[1]), a_log(in[2]), dt_bias(in[3]), norm(in[4]);
    mx::cpu::get_command_encoder(stream()).dispatch([call = call_, sequences = sequences_, dtype = dtype_of(outs[0].dtype()), x, conv, a_log,
                                                     dt_bias, norm, of_log = in[2].dtype(), of_bias = in[3].dtype(), before, after,
                                                     y = outs[0].data<uint8_t>()] {
      Pool::get().evaluating();
      std::vector<DeltaSegment> segments;
      for (size_t i = 0; i < sequences.size(); i++)
        segments.push_back({sequences[i].rows, before[2 * i].read(), reinterpret_cast<const float*>(before[2 * i + 1].read()), after[i]});
      const size_t heads = size_t(call.value_heads);
      call.run(dtype, x.read(), segments, conv.read(), floats(a_log, of_log, heads).data(), floats(dt_bias, of_bias, heads).data(),
               norm.read(), y);
    });
  }

 private:
  DeltaCall call_;
  std::vector<Sequence> sequences_;
};

void check_shape(const mx::array& a, const mx::Shape& shape, const char* what) {
  if (a.shape() != shape) refuse(std::string(what) + " does not fit");
}

DeltaCall call_of(const clade_delta& d) {
  if (d.key_heads < 1 || d.value_heads < 1 || d.value_heads % d.key_heads) refuse("value heads must be a multiple of key heads");
  if (d.key_dim < 1 || d.value_dim < 1 || d.key_dim > 4096 || d.value_dim > 4096) refuse("heads of " + std::to_string(d.key_dim) + " by " + std::to_string(d.value_dim));
  if (d.taps < 2 || d.taps > 64) refuse(std::to_string(d.taps) + " taps");
  return {d.key_heads, d.value_heads, d.key_dim, d.value_dim, d.taps, d.norm_eps, d.length_eps};
}

}  // namespace
}  // namespace clade

using namespace clade;

extern "C" {

int clade_gated_delta(clade_array* out, clade_array* new_states, clade_array x, const clade_array* states, int count,
                      const clade_recurrent* sequences, const int* kept, clade_array conv, clade_array a_log, clade_array dt_bias,
                      clade_array norm, const clade_delta* d, clade_stream s) {
  return guard("clade_gated_delta", [&] {
    const DeltaCall call = call_of(*d);
    const mx::array& in = array_of(x);
    dtype_of(in.dtype());
    if (count < 1) refuse("no sequence");
    std::vector<mx::array> inputs{in, array_of(conv), array_of(a_log), array_of(dt_bias), array_of(norm)};
    check_shape(inputs[1], {call.taps, call.channels()}, "conv");
    check_shape(inputs[2], {call.value_heads}, "a_log");
    check_shape(inputs[3], {call.value_heads}, "dt_bias");
    check_shape(inputs[4], {call.value_dim}, "the norm weight");
    dtype_of(inputs[2].dtype());
    dtype_of(inputs[3].dtype());
    if (inputs[1].dtype() != in.dtype() || inputs[4].dtype() != in.dtype()) refuse("x, conv and the norm weight must have one dtype");
    const mx::Shape history{1, call.taps - 1, call.channels()}, state{1, call.value_heads, call.key_dim, call.value_dim};
    std::vector<mx::Shape> shapes{{1, in.ndim() == 3 ? in.shape(1) : 0, call.values()}};
    std::vector<mx::Dtype> dtypes{in.dtype()};
    std::vector<Sequence> read;
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
      const clade_recurrent& q = sequences[i];
      const mx::array &h = array_of(states[2 * i]), &m = array_of(states[2 * i + 1]);
      check_shape(h, history, "a convolution's history");
      check_shape(m, state, "a state");
      if (h.dtype() != in.dtype() || m.dtype() != mx::float32) refuse("a history must have x's dtype, a state float32");
      if (q.rows < 0 || q.count < 0) refuse("a sequence of " + std::to_string(q.rows) + " rows");
      Sequence one{q.rows, q.in_place, {}};
      for (int j = 0; j < q.count; j++) {
        const int row = kept[q.kept + j];
        if (row < 1 || row >= q.rows || (j && row <= one.after.back())) refuse("states behind row " + std::to_string(row) + " of " + std::to_string(q.rows));
        one.after.push_back(row);
      }
      one.after.push_back(q.rows);
      for (size_t j = 0; j < one.after.size(); j++) {
        shapes.push_back(history);
        shapes.push_back(state);
        dtypes.push_back(in.dtype());
        dtypes.push_back(mx::float32);
      }
      inputs.push_back(h);
      inputs.push_back(m);
      read.push_back(std::move(one));
      total += q.rows;
    }
    if (in.ndim() != 3 || in.shape(0) != 1 || in.shape(2) != call.width() || in.shape(1) != total)
      refuse("x must be [1, rows of all sequences, " + std::to_string(call.width()) + "]");
    auto outs = mx::array::make_arrays(shapes, dtypes, std::make_shared<Delta>(stream_of(s), call, std::move(read)), inputs);
    give(out, outs[0]);
    for (size_t i = 1; i < outs.size(); i++) give(&new_states[i - 1], outs[i]);
  });
}

}  // extern "C"
