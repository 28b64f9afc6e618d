// Sampling as an MLX primitive; every argument is checked before one is built.
#include <algorithm>

#include "mlx/backend/cpu/encoder.h"
#include "pool.h"
#include "primitive.h"
#include "sample.h"

namespace clade {
namespace {

class Sample : public Primitive {
 public:
  Sample(mx::Stream s, std::shared_ptr<const SampleCall> call) : Primitive(s), call_(std::move(call)) {}
  const char* name() const override { return "clade_sample"; }
  // out: tokens, and where a row asks for them the told ids and their log probabilities.
  void eval_cpu(const std::vector<mx::array>& in, std::vector<mx::array>& outs) override {
    for (mx::array& out : outs) out.set_data(mx::allocator::malloc(out.nbytes()));
    Contiguous logits(in[0]);
    const bool tells = outs.size() > 1;
    mx::cpu::get_command_encoder(stream()).dispatch(
        [call = call_, logits, tokens = outs[0].data<int32_t>(), told = tells ? outs[1].data<int32_t>() : nullptr,
         logprobs = tells ? outs[2].data<float>() : nullptr] {
          Pool::get().evaluating();
          call->run(reinterpret_cast<const float*>(logits.read()), tokens, told, logprobs);
        });
  }

 private:
  std::shared_ptr<const SampleCall> call_;
};

// The ids of a part, which must lie in the call and name tokens.
Span span_of(const char* what, clade_span s, const SampleCall& call) {
  if (s.first < 0 || s.count < 0 || s.first > int64_t(call.ids.size()) - s.count) refuse(std::string(what) + " lies outside the ids");
  for (int i = s.first; i < s.first + s.count; i++)
    if (call.ids[size_t(i)] < 0 || call.ids[size_t(i)] >= call.vocab)
      refuse(std::string(what) + ": id " + std::to_string(call.ids[size_t(i)]) + " of " + std::to_string(call.vocab));
  return {s.first, s.count};
}

Sampling sampling_of(const clade_sampling& r, const SampleCall& call) {
  if (r.bias.count && (r.bias_value < 0 || r.bias_value > int64_t(call.values.size()) - r.bias.count)) refuse("bias lies outside the values");
  if (r.allowed < -1 || (r.allowed >= 0 && r.allowed > int64_t(call.words.size()) - (call.vocab + 31) / 32)) refuse("allowed lies outside the words");
  if (!(r.temperature >= 0) || !(r.repetition > 0) || r.top_k < 0 || r.logprobs < -1 || r.least > 0) refuse("a setting is out of range");
  return {span_of("bias", r.bias, call),
          r.bias_value,
          span_of("history", r.history, call),
          r.repetition,
          r.presence,
          r.frequency,
          r.repetition_window,
          r.presence_window,
          r.frequency_window,
          r.logprobs,
          span_of("banned", r.banned, call),
          r.allowed,
          r.top_p,
          r.least,
          r.typical_p,
          r.xtc,
          span_of("spared", r.spared, call),
          r.top_k,
          r.temperature,
          {uint32_t(r.seed), uint32_t(r.seed >> 32)},
          r.choice,
          r.position};
}

}  // namespace
}  // namespace clade

using namespace clade;

extern "C" {

int clade_sample(clade_array* tokens, clade_array* told, clade_array* logprobs, clade_array logits, const clade_sampling* rows,
                 int count, const int32_t* ids, int id_count, const float* values, int value_count, const uint32_t* words,
                 int word_count, clade_stream s) {
  return guard("clade_sample", [&] {
    const mx::array& x = array_of(logits);
    if (x.dtype() != mx::float32 || x.ndim() != 2 || x.shape(0) != count || count < 1 || x.shape(1) < 1)
      refuse("logits must be float32 [" + std::to_string(count) + ", vocab]");
    if (id_count < 0 || value_count < 0 || word_count < 0) refuse("a count is negative");
    auto call = std::make_shared<SampleCall>();
    call->vocab = x.shape(1);
    call->ids.assign(ids, ids + id_count);
    call->values.assign(values, values + value_count);
    call->words.assign(words, words + word_count);
    call->alternatives = -1;
    for (int i = 0; i < count; i++) {
      call->rows.push_back(sampling_of(rows[i], *call));
      call->alternatives = std::max(call->alternatives, std::min(rows[i].logprobs, call->vocab));
    }
    std::vector<mx::Shape> shapes{{count}};
    std::vector<mx::Dtype> dtypes{mx::int32};
    if (call->alternatives >= 0) {
      shapes.insert(shapes.end(), 2, {count, 1 + call->alternatives});
      dtypes.insert(dtypes.end(), {mx::int32, mx::float32});
    }
    auto outs = mx::array::make_arrays(shapes, dtypes, std::make_shared<Sample>(stream_of(s), call), {x});
    give(tokens, outs[0]);
    if (outs.size() > 1) {
      give(told, outs[1]);
      give(logprobs, outs[2]);
    }
  });
}

}  // extern "C"
