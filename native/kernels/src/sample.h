// Picks a token from each row of logits.
//
// What is kept is decided by thresholds: a row is passed over for its maximum and its mass, the scores near the maximum are taken
// out, and the threshold is found among them by selection. Nothing is sorted but the alternatives that a caller asks for. Masses
// are sums in a fixed order, or whole numbers: no result depends on threads, on the level or on the other rows.
#pragma once
#include <cstdint>
#include <vector>

namespace clade {

// A part of the ids or values of a call.
struct Span {
  int first, count;
};

// How one row's token is picked, in the order of the members; sdk/engine/sampler.go has the same as a graph.
struct Sampling {
  Span bias;       // ids
  int bias_value;  // the first of their values
  Span history;    // ids, oldest first
  float repetition, presence, frequency;  // 1, 0, 0: off
  int repetition_window, presence_window, frequency_window;  // last ids of the history; 0: all
  int logprobs;  // -1: none; else how many alternatives are told, of the scores as they are here
  Span banned;   // ids that may not come
  int allowed;   // first word of a bit for each id that may, or -1
  double top_p;  // outside (0, 1): off, as typical_p
  float least;   // log of min_p; -infinity: off
  double typical_p;
  float xtc;     // its threshold; negative: it does not strike
  Span spared;   // ids that XTC leaves
  int top_k;     // 0: off
  float temperature;  // 0: the likeliest is taken
  uint32_t seed[2], choice, position;
};

struct SampleCall {
  int vocab;
  std::vector<Sampling> rows;
  std::vector<int32_t> ids;
  std::vector<float> values;
  std::vector<uint32_t> words;
  int alternatives;  // the most of any row

  // logits [rows, vocab]; tokens [rows]. Where a row asks for log probabilities, the token's and then its alternatives', likeliest
  // first, in rows of 1 + alternatives; ids -1 where there are no more. Both may be null where none asks.
  void run(const float* logits, int32_t* tokens, int32_t* told, float* logprobs) const;
};

}  // namespace clade
