// Sampling against the plain meaning of its steps: a sort of everything, in double. Scores are drawn so that many are equal.
#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "everywhere.h"
#include "noise.h"

namespace clade {

namespace {

constexpr Sampling kGreedy{{0, 0}, 0, {0, 0}, 1, 0, 0, 0, 0, 0, -1, {0, 0}, -1, 0, -INFINITY, 0, -1, {0, 0}, 0, 0, {0, 0}, 0, 0};

struct Answer {
  std::vector<int32_t> tokens, told;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

Answer run(const SampleCall& call, const std::vector<float>& logits) {
  const size_t n = call.rows.size(), width = size_t(1 + std::max(call.alternatives, 0));
  Answer a{std::vector<int32_t>(n), std::vector<int32_t>(n * width), std::vector<float>(n * width)};
  call.run(logits.data(), a.tokens.data(), a.told.data(), a.logprobs.data());
  return a;
}

int count_of(const SampleCall& c, Span h, int window, int id) {
  const int n = window > 0 ? std::min(window, h.count) : h.count;
  auto end = c.ids.begin() + h.first + h.count;
  return int(std::count(end - n, end, id));
}

// Ids in descending order of x, ties to the lowest.
std::vector<int> descending(const std::vector<float>& x) {
  std::vector<int> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[size_t(a)] > x[size_t(b)]; });
  return order;
}

double log_sum(const std::vector<float>& x) {
  const float top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (float v : x) sum += std::exp(double(v) - top);
  return top + std::log(sum);
}

void nucleus(std::vector<float>& x, double p) {
  const double lse = log_sum(x);
  double above = 0, least = -INFINITY;
  for (int i : descending(x)) {
    if (above >= p) break;
    above += std::exp(x[size_t(i)] - lse);
    least = x[size_t(i)];
  }
  for (float& v : x)
    if (v < least) v = -INFINITY;
}

void typical(std::vector<float>& x, double p) {
  const double lse = log_sum(x);
  double entropy = 0, before = 0;
  for (float v : x)
    if (v > -INFINITY) entropy += std::exp(v - lse) * (lse - v);
  std::vector<float> nearness(x.size());
  for (size_t i = 0; i < x.size(); i++) nearness[i] = -std::fabs(float(lse) - x[i] - float(entropy));
  for (int i : descending(nearness)) {
    const double here = std::exp(x[size_t(i)] - lse);
    if (before >= p) x[size_t(i)] = -INFINITY;
    before += here;
  }
}

int32_t reference(const SampleCall& c, const Sampling& s, std::vector<float> x) {
  for (int i = 0; i < s.bias.count; i++) x[size_t(c.ids[size_t(s.bias.first + i)])] += c.values[size_t(s.bias_value + i)];
  for (size_t i = 0; i < x.size(); i++) {
    if (s.repetition != 1 && count_of(c, s.history, s.repetition_window, int(i))) x[i] = x[i] < 0 ? x[i] * s.repetition : x[i] / s.repetition;
    if (s.presence != 0 && count_of(c, s.history, s.presence_window, int(i))) x[i] -= s.presence;
    if (s.frequency != 0) x[i] -= float(count_of(c, s.history, s.frequency_window, int(i))) * s.frequency;
    if (s.allowed >= 0 && !(c.words[size_t(s.allowed) + i / 32] >> (i % 32) & 1)) x[i] = -INFINITY;
  }
  for (int i = 0; i < s.banned.count; i++) x[size_t(c.ids[size_t(s.banned.first + i)])] = -INFINITY;
  if (s.temperature == 0) return int32_t(std::max_element(x.begin(), x.end()) - x.begin());
  if (s.top_p > 0 && s.top_p < 1) nucleus(x, s.top_p);
  const float floor = *std::max_element(x.begin(), x.end()) + s.least;
  for (float& v : x)
    if (v < floor) v = -INFINITY;
  if (s.typical_p > 0 && s.typical_p < 1) typical(x, s.typical_p);
  if (s.xtc >= 0) {
    const double lse = log_sum(x);
    double least = INFINITY;
    for (float v : x)
      if (std::exp(v - lse) > s.xtc) least = std::min(least, double(v));
    for (size_t i = 0; i < x.size(); i++) {
      auto spared = c.ids.begin() + s.spared.first;
      if (x[i] > least && std::find(spared, spared + s.spared.count, int32_t(i)) == spared + s.spared.count) x[i] = -INFINITY;
    }
  }
  if (s.top_k > 0) {
    const auto order = descending(x);
    for (size_t i = size_t(s.top_k); i < order.size(); i++) x[size_t(order[i])] = -INFINITY;
  }
  const Noise noise{{s.seed[0], s.seed[1]}, s.position, s.choice};
  for (size_t i = 0; i < x.size(); i++) x[i] = x[i] / s.temperature + noise.at(int32_t(i));
  return int32_t(std::max_element(x.begin(), x.end()) - x.begin());
}

double uniform(double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(rng); }
bool now_and_then() { return rng() % 3 == 0; }

// A row with some of the settings.
Sampling drawn(SampleCall& c) {
  Sampling s = kGreedy;
  auto some = [&](int n) {
    const Span part{int(c.ids.size()), n};
    for (int i = 0; i < n; i++) c.ids.push_back(int32_t(rng() % uint32_t(c.vocab)));
    return part;
  };
  if (now_and_then()) {
    s.bias = {int(c.ids.size()), 1};
    s.bias_value = int(c.values.size());
    c.ids.push_back(int32_t(rng() % uint32_t(c.vocab)));
    c.values.push_back(float(uniform(-5, 5)));
  }
  s.history = some(40);
  if (now_and_then()) s.repetition = float(uniform(0.7, 2)), s.repetition_window = int(rng() % 50);
  if (now_and_then()) s.presence = float(uniform(-1, 2)), s.presence_window = int(rng() % 50);
  if (now_and_then()) s.frequency = float(uniform(-1, 2)), s.frequency_window = int(rng() % 50);
  if (now_and_then()) s.banned = some(1 + int(rng() % 3));
  if (now_and_then() && c.vocab > 1) {
    s.allowed = int(c.words.size());
    for (int i = 0; i < (c.vocab + 31) / 32; i++) c.words.push_back(rng() | 1u);
  }
  if (now_and_then()) s.logprobs = int(rng() % 6);
  if (now_and_then()) return s;
  s.temperature = float(uniform(0.2, 2));
  s.seed[0] = rng(), s.seed[1] = rng(), s.choice = rng() % 4, s.position = rng();
  if (now_and_then()) s.top_p = uniform(0.05, 0.999);
  if (now_and_then()) s.least = float(std::log(uniform(0.001, 1)));
  if (now_and_then()) s.typical_p = uniform(0.05, 0.999);
  if (now_and_then()) s.xtc = float(uniform(0, 0.3)), s.spared = some(2);
  if (now_and_then()) s.top_k = 1 + int(rng() % 40);
  return s;
}

// Quarters are often equal; eighths of a wide spread leave few candidates.
std::vector<float> scores(int n) {
  auto x = normals(size_t(n), rng() % 2 ? 1.0f : 5.0f);
  for (float& v : x) v = std::round(v * 8) / 8;
  return x;
}

void references() {
  for (int vocab : {1, 15, 16, 33, 1000, 20011})
    for (int round = 0; round < (vocab > 10000 ? 6 : 40); round++) {
      SampleCall c;
      c.vocab = vocab;
      c.alternatives = -1;
      std::vector<float> logits;
      for (int r = 0; r < 4; r++) {
        c.rows.push_back(drawn(c));
        c.alternatives = std::max(c.alternatives, std::min(c.rows.back().logprobs, vocab));
        const auto x = scores(vocab);
        logits.insert(logits.end(), x.begin(), x.end());
      }
      const std::string what = "sampling of " + std::to_string(vocab) + ", round " + std::to_string(round);
      clade_kernels_set_level("");
      const auto got = run(c, logits);
      for (size_t r = 0; r < c.rows.size(); r++) {
        const std::vector<float> x(logits.begin() + long(r) * vocab, logits.begin() + long(r + 1) * vocab);
        expect(got.tokens[r] == reference(c, c.rows[r], x), what + ", row " + std::to_string(r));
        SampleCall alone = c;
        alone.rows = {c.rows[r]};
        expect(run(alone, x).tokens[0] == got.tokens[r], what + ": row " + std::to_string(r) + " alone");
      }
      if (round % 4 == 0) everywhere(what, [&] { return run(c, logits); });
    }
}

void log_probabilities() {
  SampleCall c;
  c.vocab = 5000;
  c.rows = {kGreedy};
  c.rows[0].logprobs = c.alternatives = 7;
  const auto x = scores(c.vocab);
  const auto a = run(c, x);
  const double lse = log_sum(x);
  const auto order = descending(x);
  for (size_t i = 0; i < 8; i++) {
    const int id = i ? order[i - 1] : order[0];
    expect(a.told[i] == id, "alternative " + std::to_string(i));
    expect(std::fabs(a.logprobs[i] - (x[size_t(id)] - lse)) < 1e-5, "log probability " + std::to_string(i));
  }
}

// Scores that are no numbers, or beyond all bounds, give some token of the row.
void odd_scores() {
  const float inf = INFINITY;
  for (float fill : {NAN, -inf, inf, 0.0f, 1e30f, -1e30f})
    for (float one : {NAN, -inf, inf, 3.0f})
      for (int vocab : {1, 40, 9000}) {
        SampleCall c;
        c.vocab = vocab;
        c.alternatives = 3;
        for (int kind = 0; kind < 5; kind++) {
          Sampling s = kGreedy;
          s.logprobs = 3;
          s.temperature = kind ? 1.0f : 0;
          if (kind == 2) s.top_p = 0.5, s.top_k = 3;
          if (kind == 3) s.typical_p = 0.5, s.xtc = 0.1f;
          if (kind == 4) s.least = -2;
          c.rows.push_back(s);
        }
        std::vector<float> x(size_t(vocab), fill);
        x[size_t(vocab / 2)] = one;
        std::vector<float> logits;
        for (size_t r = 0; r < c.rows.size(); r++) logits.insert(logits.end(), x.begin(), x.end());
        for (int32_t t : run(c, logits).tokens) expect(t >= 0 && t < vocab, "a token of odd scores");
      }
}

// The frozen values of sdk/engine/noise_test.go.
void noise() {
  struct {
    uint64_t seed;
    uint32_t choice, position;
    int32_t id;
    float want;
  } frozen[] = {{0, 0, 0, 0, 2.0616612f},           {0, 0, 0, 1, -0.015734952f},
                {0, 0, 1, 0, 2.4161365f},           {0, 1, 0, 0, 2.77677f},
                {1, 0, 0, 0, 2.1956708f},           {1ull << 32, 0, 0, 0, 3.8284032f},
                {42, 0, 37, 49151, 1.0050141f},     {~0ull, ~0u, ~0u, std::numeric_limits<int32_t>::max(), -0.9458868f}};
  for (const auto& f : frozen)
    expect(Noise{{uint32_t(f.seed), uint32_t(f.seed >> 32)}, f.position, f.choice}.at(f.id) == f.want, "frozen noise of id " + std::to_string(f.id));
  for (double x : {1e-300, 0x1p-53, 0.1, 0.5, 1 - 0x1p-53, 1.0, 36.7, 1e300})
    expect(std::fabs(log_of(x) - std::log(x)) <= 1e-15 * std::max(1.0, std::fabs(std::log(x))), "log of " + std::to_string(x));
}

// Equal scores by the thousand: nothing but the ids tells them apart.
void equals() {
  SampleCall c;
  c.vocab = 30000;
  c.alternatives = 4;
  Sampling s = kGreedy;
  s.logprobs = 4;
  s.temperature = 1;
  s.top_k = 100;
  c.rows = {s, s};
  c.rows[1].typical_p = 0.3;
  const std::vector<float> logits(size_t(c.vocab) * 2, 1.5f);
  const auto a = run(c, logits);
  expect(a.tokens[0] < 100 && a.tokens[1] < 100, "of equal scores the lowest ids stay");
  for (int i = 1; i < 5; i++) expect(a.told[size_t(i)] == i - 1, "of equal scores the lowest ids are told");
  everywhere("equal scores", [&] { return run(c, logits); });
}

}  // namespace

void sampling() {
  noise();
  references();
  log_probabilities();
  odd_scores();
  equals();
}

}  // namespace clade
