#include "sample.h"

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "level.h"
#include "pieces.h"
#include "select.h"

namespace clade {

void Best::consider(float s, int32_t i) {
  if (s > score || (s == score && i < id)) score = s, id = i;
}

namespace {

constexpr int kLanes = 16;
// Sums are cut at multiples of kBlock.
constexpr int kBlock = 1024;
// How far below the maximum the scores are that a threshold is looked for among first, and then. What is farther than the last is
// no mass at all.
constexpr float kReach[] = {8, 12, 18, 32};

// The buffers of the evaluating thread, kept for its next step.
struct Buffers {
  std::vector<float> row, weights, keys;
  std::vector<int32_t> counts, seen;
  std::vector<int> found;
  std::vector<float> maxima;
  std::vector<double> masses;
  Scores scores;
};

// One row on its way to a token.
class Row {
 public:
  Row(const SampleCall& call, const Sampling& how, const float* logits, Buffers& b)
      : call_(call), how_(how), x_(logits), vocab_(call.vocab), b_(b) {}

  int32_t token(int32_t* told, float* logprobs) {
    bias();
    penalize();
    find_max();
    float lse = 0;
    if (how_.logprobs >= 0) {
      lse = log_mass();
      alternatives(lse, told, logprobs);
    }
    if (how_.banned.count || how_.allowed >= 0) {
      forbid();
      find_max();
    }
    const int32_t picked = pick();
    if (how_.logprobs >= 0) {
      told[0] = picked;
      logprobs[0] = x_[picked] - lse;
    }
    return picked;
  }

 private:
  const SampleCall& call_;
  const Sampling& how_;
  const float* x_;  // the scores: the logits themselves until something changes one
  const int vocab_;
  Buffers& b_;
  float max_ = 0;
  double mass_ = -1;  // sum of exp(x - max_), once it is asked for

  int pieces() const { return pieces_of(vocab_); }
  template <class F>
  void each_piece(const F& f) const {
    clade::each_piece(vocab_, f);
  }

  float* change() {
    if (x_ != b_.row.data()) {
      b_.row.resize(size_t(vocab_));
      each_piece([&](int, int at, int n) { std::memcpy(&b_.row[size_t(at)], x_ + at, size_t(n) * 4); });
      x_ = b_.row.data();
    }
    return b_.row.data();
  }

  void bias() {
    if (!how_.bias.count) return;
    float* x = change();
    for (int i = 0; i < how_.bias.count; i++)
      x[call_.ids[size_t(how_.bias.first + i)]] += call_.values[size_t(how_.bias_value + i)];
  }

  // Calls f with each id of the history's window and how often it is there.
  template <class F>
  void each_seen(int window, const F& f) {
    const Span h = how_.history;
    const int n = window > 0 ? std::min(window, h.count) : h.count;
    b_.counts.resize(size_t(vocab_), 0);
    b_.seen.clear();
    for (int i = h.count - n; i < h.count; i++) {
      const int32_t id = call_.ids[size_t(h.first + i)];
      if (b_.counts[size_t(id)]++ == 0) b_.seen.push_back(id);
    }
    for (int32_t id : b_.seen) {
      f(id, b_.counts[size_t(id)]);
      b_.counts[size_t(id)] = 0;
    }
  }

  void penalize() {
    if (how_.repetition != 1) {
      float* x = change();
      each_seen(how_.repetition_window, [&](int32_t id, int) { x[id] = x[id] < 0 ? x[id] * how_.repetition : x[id] / how_.repetition; });
    }
    if (how_.presence != 0) {
      float* x = change();
      each_seen(how_.presence_window, [&](int32_t id, int) { x[id] -= how_.presence; });
    }
    if (how_.frequency != 0) {
      float* x = change();
      each_seen(how_.frequency_window, [&](int32_t id, int n) { x[id] -= float(n) * how_.frequency; });
    }
  }

  void forbid() {
    float* x = change();
    if (how_.allowed >= 0) {
      const uint32_t* words = &call_.words[size_t(how_.allowed)];
      each_piece([&](int, int at, int n) {
        for (int i = at; i < at + n; i += 32)
          for (uint32_t out = ~words[i / 32]; out; out &= out - 1) {
            const int id = i + __builtin_ctz(out);
            if (id >= at + n) break;
            x[id] = -INFINITY;
          }
      });
    }
    for (int i = 0; i < how_.banned.count; i++) x[call_.ids[size_t(how_.banned.first + i)]] = -INFINITY;
  }

  void find_max() {
    b_.maxima.resize(size_t(pieces()));
    each_piece([&](int p, int at, int n) { b_.maxima[size_t(p)] = level().max_of(x_ + at, n); });
    max_ = *std::max_element(b_.maxima.begin(), b_.maxima.end());
    mass_ = -1;
  }

  // The likeliest, ties to the lowest id; 0 where no score is a number.
  int32_t likeliest() const {
    for (size_t p = 0; p < b_.maxima.size(); p++) {
      if (b_.maxima[p] < max_) continue;
      const int at = int(p) * kPiece, n = std::min(kPiece, vocab_ - at);
      const int i = level().find_at_least(x_ + at, n, max_);
      if (i < n) return at + i;
    }
    return 0;
  }

  double mass() {
    if (mass_ >= 0) return mass_;
    b_.masses.assign(size_t((vocab_ + kBlock - 1) / kBlock), 0);
    each_piece([&](int, int first, int n) {
      for (int at = first; at < first + n; at += kBlock) {
        const int some = std::min(kBlock, first + n - at);
        alignas(64) float in[kBlock], out[kBlock];
        const float* x = x_ + at;
        if (some % kLanes) {  // whole vectors are read
          std::fill(std::copy(x, x + some, in), in + kBlock, -INFINITY);
          x = in;
        }
        b_.masses[size_t(at / kBlock)] = double(level().exp_sum(x, max_, some, out));
      }
    });
    mass_ = 0;
    for (double m : b_.masses) mass_ += m;
    return mass_;
  }

  float log_mass() { return std::isfinite(max_) ? float(double(max_) + log_of(mass())) : max_; }

  // The scores that are at least lo, with their ids, in order.
  void take(float lo) {
    lo = std::max(lo, -FLT_MAX);
    b_.found.resize(size_t(pieces()));
    each_piece([&](int p, int at, int n) { b_.found[size_t(p)] = level().count_at_least(x_ + at, n, lo); });
    int total = 0;
    for (int& n : b_.found) {
      const int here = n;
      n = total;
      total += here;
    }
    b_.scores.resize(total);
    each_piece([&](int p, int at, int n) {
      const size_t to = size_t(b_.found[size_t(p)]);
      level().take_at_least(x_ + at, n, lo, at, b_.scores.value.data() + to, b_.scores.id.data() + to);
    });
    b_.scores.pad();
  }

  // Takes the scores nearest to the maximum until there are n.
  void take_nearest(int n) {
    for (float d : kReach) {
      take(max_ - d);
      if (b_.scores.count >= n) return;
    }
    take(-INFINITY);
  }

  void alternatives(float lse, int32_t* told, float* logprobs) {
    const int n = std::min(how_.logprobs, vocab_);
    std::fill(told, told + 1 + call_.alternatives, -1);
    std::fill(logprobs, logprobs + 1 + call_.alternatives, 0.0f);
    if (n == 0 || !std::isfinite(max_)) return;
    take_nearest(n);
    Scores& s = b_.scores;
    // By the log probability, which may be the same for scores that are not.
    const Cut cut = select_first(key([&](float x) { return lse - x; }), s.id.data(), s.count, n);
    s.keep([&](int i) { return cut.keeps(b_.keys[size_t(i)], s.id[size_t(i)]); });
    std::vector<std::pair<float, int32_t>> sorted;
    for (int i = 0; i < s.count; i++) sorted.emplace_back(lse - s.value[size_t(i)], s.id[size_t(i)]);
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); i++) {
      told[1 + i] = sorted[i].second;
      logprobs[1 + i] = -sorted[i].first;
    }
  }

  int32_t pick() {
    const int32_t first = likeliest();
    if (how_.temperature == 0 || !std::isfinite(max_)) return first;
    const Noise noise{{how_.seed[0], how_.seed[1]}, how_.position, how_.choice};
    if (!filter()) {
      const Best start{x_[first] / how_.temperature + noise.at(first), first};
      std::vector<Best> best(size_t(pieces()), start);
      each_piece([&](int p, int at, int n) { level().noisy_best(x_ + at, nullptr, at, n, how_.temperature, noise, &best[size_t(p)]); });
      Best b = start;
      for (const Best& other : best) b.consider(other.score, other.id);
      return b.id;
    }
    const Scores& s = b_.scores;
    Best best{s.value[0] / how_.temperature + noise.at(s.id[0]), s.id[0]};
    const auto top = size_t(level().find_at_least(s.value.data(), s.count, level().max_of(s.value.data(), s.count)));
    best.consider(s.value[top] / how_.temperature + noise.at(s.id[top]), s.id[top]);
    level().noisy_best(s.value.data(), s.id.data(), 0, s.count, how_.temperature, noise, &best);
    return best.id;
  }

  static bool part(double p) { return p > 0 && p < 1; }

  // Takes the scores that the filters leave; false when there is no filter.
  bool filter() {
    const bool more = part(how_.typical_p) || how_.xtc >= 0;
    const int k = how_.top_k > 0 && how_.top_k < vocab_ ? how_.top_k : 0;
    const float floor = max_ + how_.least;
    if (part(how_.top_p))
      nucleus(floor);
    else if (more || floor > -INFINITY)
      take(floor);
    else if (k)
      take_nearest(k);
    else
      return false;
    if (part(how_.typical_p)) typical();
    if (how_.xtc >= 0) exclude();
    if (k && k < b_.scores.count) {
      Scores& s = b_.scores;
      const Cut cut = select_first(likelier_first(), s.id.data(), s.count, k);
      s.keep([&](int i) { return cut.keeps(b_.keys[size_t(i)], s.id[size_t(i)]); });
    }
    return true;
  }

  // The sum over the blocks of the scores taken of sum(first, count), a float.
  template <class F>
  double each_block(const F& sum) {
    const int n = b_.scores.count;
    b_.masses.assign(size_t((n + kBlock - 1) / kBlock), 0);
    clade::each_piece(n, [&](int, int first, int count) {
      for (int at = first; at < first + count; at += kBlock)
        b_.masses[size_t(at / kBlock)] = double(sum(at, std::min(kBlock, first + count - at)));
    });
    return std::accumulate(b_.masses.begin(), b_.masses.end(), 0.0);
  }

  // exp(x - from) of the scores taken, and the sum.
  double weigh(float from) {
    const Scores& s = b_.scores;
    b_.weights.resize(s.value.size());
    return each_block([&](int at, int n) { return level().exp_sum(&s.value[size_t(at)], from, n, &b_.weights[size_t(at)]); });
  }

  // What the scores taken are to be in the order of.
  template <class F>
  const float* key(const F& of) {
    const Scores& s = b_.scores;
    b_.keys.resize(size_t(s.count));
    clade::each_piece(s.count, [&](int, int first, int n) {
      for (int i = first; i < first + n; i++) b_.keys[size_t(i)] = of(s.value[size_t(i)]);
    });
    return b_.keys.data();
  }
  const float* likelier_first() {
    return key([](float x) { return -x; });
  }

  // Scores stay while less than top_p of the mass lies above them, all that equal the last one with it; none below floor does.
  void nucleus(float floor) {
    const double target = how_.top_p * mass();
    Scores& s = b_.scores;
    for (float d : kReach) {
      const float lo = std::max(floor, max_ - d);
      take(lo);
      weigh(max_);
      Cut cut = select_mass(likelier_first(), s.id.data(), b_.weights.data(), s.count, target);
      if (cut.all && lo > floor) continue;
      cut.id = INT32_MAX;
      s.keep([&](int i) { return cut.keeps(b_.keys[size_t(i)], 0); });
      return;
    }
    take(floor);
  }

  // The scores whose surprise is nearest to the entropy, while those before have less than typical_p of the mass.
  void typical() {
    Scores& s = b_.scores;
    const double mass = weigh(max_);
    const float lse = float(double(max_) + log_of(mass));
    const double entropy =
        each_block([&](int at, int n) { return level().weigh(&b_.weights[size_t(at)], &s.value[size_t(at)], lse, n); });
    const float middle = float(entropy / mass);
    const Cut cut = select_mass(key([&](float x) { return std::fabs((lse - x) - middle); }), s.id.data(), b_.weights.data(), s.count,
                                how_.typical_p * mass);
    s.keep([&](int i) { return cut.keeps(b_.keys[size_t(i)], s.id[size_t(i)]); });
  }

  // Drops what is likelier than the least likely one above the threshold.
  void exclude() {
    Scores& s = b_.scores;
    const float top = level().max_of(s.value.data(), s.count);
    const float lse = float(double(top) + log_of(weigh(top)));
    weigh(lse);
    float least = INFINITY;
    for (int i = 0; i < s.count; i++)
      if (b_.weights[size_t(i)] > how_.xtc) least = std::min(least, b_.weights[size_t(i)]);
    const int32_t* spared = call_.ids.data() + how_.spared.first;
    s.keep([&](int i) {
      return !(b_.weights[size_t(i)] > least) || std::find(spared, spared + how_.spared.count, s.id[size_t(i)]) != spared + how_.spared.count;
    });
  }
};

}  // namespace

void SampleCall::run(const float* logits, int32_t* tokens, int32_t* told, float* logprobs) const {
  static thread_local Buffers buffers;
  const size_t width = 1 + size_t(alternatives);
  for (size_t r = 0; r < rows.size(); r++) {
    const bool tells = rows[r].logprobs >= 0;
    tokens[r] = Row(*this, rows[r], logits + r * size_t(vocab), buffers)
                    .token(tells ? told + r * width : nullptr, tells ? logprobs + r * width : nullptr);
  }
}

}  // namespace clade
