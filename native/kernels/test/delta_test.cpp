// The gated delta network: against its definition in float64, at every level and any number of threads, however rows are cut.
#include "delta.h"

#include <cmath>
#include <cstring>

#include "everywhere.h"

namespace clade {
namespace {

struct Layer {
  DeltaCall call;
  DType dtype;
  std::vector<uint8_t> conv, norm;
  std::vector<float> wide_conv, wide_norm, a_log, dt_bias;
};

size_t size_of(DType t) { return t == DType::f32 ? 4 : 2; }

// v as stored, and as it then is.
std::vector<uint8_t> store(DType t, std::vector<float>& v) {
  std::vector<uint8_t> out(v.size() * size_of(t));
  level().narrow(t, v.data(), v.size(), out.data());
  level().widen(t, out.data(), v.size(), v.data());
  return out;
}

Layer layer(DeltaCall c, DType t) {
  Layer l{c, t, {}, {}, normals(size_t(c.taps * c.channels())), normals(size_t(c.value_dim)), normals(size_t(c.value_heads)), normals(size_t(c.value_heads))};
  l.conv = store(t, l.wide_conv);
  l.norm = store(t, l.wide_norm);
  for (float& v : l.dt_bias) v -= 2;
  return l;
}

struct Sequence {
  std::vector<float> wide;  // its rows
  std::vector<uint8_t> x;
};

Sequence sequence(const Layer& l, int rows) {
  Sequence s{normals(size_t(rows * l.call.width())), {}};
  for (float& v : s.wide) v += 0.3f;
  s.x = store(l.dtype, s.wide);
  return s;
}

struct State {
  std::vector<uint8_t> history;
  std::vector<float> state;
  bool operator==(const State& o) const { return history == o.history && state == o.state; }
};

State empty(const Layer& l) {
  const DeltaCall& c = l.call;
  return {std::vector<uint8_t>(size_t((c.taps - 1) * c.channels()) * size_of(l.dtype)), std::vector<float>(size_t(c.value_heads * c.key_dim * c.value_dim))};
}

using Result = std::pair<std::vector<uint8_t>, std::vector<State>>;

// All rows of each sequence in calls of as many as `cuts` says in turn, in place of the state or not, with a state kept behind the
// first row of each call. Results lie sequence by sequence; states are the kept ones of the first sequence and the last of each.
Result forward(const Layer& l, const std::vector<Sequence>& all, const std::vector<int>& cuts, bool in_place, bool keep) {
  const DeltaCall& c = l.call;
  const size_t wide = size_t(c.width()) * size_of(l.dtype), narrow = size_t(c.values()) * size_of(l.dtype);
  std::vector<State> states(all.size(), empty(l)), kept;
  std::vector<std::vector<uint8_t>> results(all.size());
  std::vector<size_t> done(all.size(), 0);
  for (size_t turn = 0;; turn++) {
    std::vector<uint8_t> x;
    std::vector<DeltaSegment> segments;
    std::vector<State> next(all.size()), middle(all.size(), empty(l));
    std::vector<size_t> rows(all.size());
    size_t total = 0;
    for (size_t i = 0; i < all.size(); i++) {
      rows[i] = std::min(size_t(cuts[(turn + i) % cuts.size()]), all[i].x.size() / wide - done[i]);
      x.insert(x.end(), all[i].x.begin() + long(done[i] * wide), all[i].x.begin() + long((done[i] + rows[i]) * wide));
      next[i] = empty(l);
      if (in_place) next[i].state = states[i].state;
      DeltaSegment g{int(rows[i]), states[i].history.data(), in_place ? next[i].state.data() : states[i].state.data(), {}};
      if (keep && rows[i] > 1) g.after.push_back({1, middle[i].history.data(), middle[i].state.data()});
      g.after.push_back({int(rows[i]), next[i].history.data(), next[i].state.data()});
      segments.push_back(g);
      total += rows[i];
    }
    if (total == 0) break;
    std::vector<uint8_t> out(total * narrow);
    c.run(l.dtype, x.data(), segments, l.conv.data(), l.a_log.data(), l.dt_bias.data(), l.norm.data(), out.data());
    size_t at = 0;
    for (size_t i = 0; i < all.size(); i++) {
      results[i].insert(results[i].end(), out.begin() + long(at), out.begin() + long(at + rows[i] * narrow));
      at += rows[i] * narrow;
      done[i] += rows[i];
      if (i == 0 && keep && rows[i] > 1) kept.push_back(middle[i]);
    }
    states = next;
  }
  Result r;
  for (auto& o : results) r.first.insert(r.first.end(), o.begin(), o.end());
  r.second = states;
  r.second.insert(r.second.end(), kept.begin(), kept.end());
  return r;
}

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }

// What the header says, in float64.
std::vector<double> definition(const Layer& l, const Sequence& s) {
  const DeltaCall& c = l.call;
  const int channels = c.channels(), width = c.width(), rows = int(s.wide.size()) / width, k = c.key_dim, v = c.value_dim;
  std::vector<double> out, states(size_t(c.value_heads * k * v));
  for (int t = 0; t < rows; t++) {
    std::vector<double> mixed(static_cast<size_t>(channels));
    for (int i = 0; i < channels; i++) {
      for (int j = 0; j < c.taps; j++)
        if (t - c.taps + 1 + j >= 0) mixed[size_t(i)] += double(l.wide_conv[size_t(j * channels + i)]) * double(s.wide[size_t((t - c.taps + 1 + j) * width + i)]);
      mixed[size_t(i)] *= sigmoid(mixed[size_t(i)]);
    }
    auto unit = [&](const double* p) {
      double sum = double(c.length_eps);
      for (int i = 0; i < k; i++) sum += p[i] * p[i];
      std::vector<double> u(p, p + k);
      for (double& e : u) e /= std::sqrt(sum);
      return u;
    };
    const float* rest = s.wide.data() + t * width + channels;
    for (int h = 0; h < c.value_heads; h++) {
      const auto q = unit(mixed.data() + h / c.group() * k), key = unit(mixed.data() + (c.key_heads + h / c.group()) * k);
      const double* value = mixed.data() + 2 * c.key_heads * k + h * v;
      const double beta = sigmoid(double(rest[c.values() + h])), a = double(rest[c.values() + c.value_heads + h]) + double(l.dt_bias[size_t(h)]);
      const double g = std::exp(-std::exp(double(l.a_log[size_t(h)])) * std::log1p(std::exp(a)));
      double* state = states.data() + h * k * v;
      std::vector<double> y(static_cast<size_t>(v));
      double square = 0;
      for (int j = 0; j < v; j++) {
        double known = 0;
        for (int i = 0; i < k; i++) known += (state[i * v + j] *= g) * key[size_t(i)];
        for (int i = 0; i < k; i++) y[size_t(j)] += (state[i * v + j] += key[size_t(i)] * beta * (value[j] - known)) * q[size_t(i)] / std::sqrt(double(k));
        square += y[size_t(j)] * y[size_t(j)];
      }
      for (int j = 0; j < v; j++) {
        const double z = double(rest[h * v + j]);
        out.push_back(y[size_t(j)] / std::sqrt(square / v + double(c.norm_eps)) * double(l.wide_norm[size_t(j)]) * z * sigmoid(z));
      }
    }
  }
  return out;
}

void against_definition(const Layer& l, const Sequence& s, const std::vector<uint8_t>& result, const std::string& what) {
  const auto want = definition(l, s);
  std::vector<float> got(want.size());
  level().widen(l.dtype, result.data(), got.size(), got.data());
  double top = 0, apart = 0;
  for (size_t i = 0; i < want.size(); i++) {
    top = std::max(top, std::fabs(want[i]));
    apart = std::max(apart, std::fabs(want[i] - double(got[i])));
  }
  const double bound = l.dtype == DType::f32 ? 1e-5 : l.dtype == DType::bf16 ? 4e-3 : 5e-4;
  expect(apart <= bound * top, what + " is off by " + std::to_string(apart / top) + " of the largest value");
}

}  // namespace

void delta() {
  const DeltaCall shapes[] = {{2, 4, 32, 32, 4, 1e-6f, 1e-6f}, {1, 3, 10, 21, 3, 1e-6f, 1e-6f}, {1, 2, 48, 112, 4, 1e-6f, 1e-6f},
                              {1, 1, 128, 128, 2, 1e-5f, 1e-6f}};
  for (const DeltaCall& c : shapes)
    for (DType t : {DType::f32, DType::bf16, DType::f16}) {
      const Layer l = layer(c, t);
      const std::vector<Sequence> all = {sequence(l, 70), sequence(l, 5), sequence(l, 41)};
      const std::string what = "delta " + std::to_string(c.key_dim) + " by " + std::to_string(c.value_dim) + ", dtype " + std::to_string(int(t));
      clade_kernels_set_level("");
      std::vector<uint8_t> alone;
      std::vector<State> states;
      for (const Sequence& s : all) {
        const Result r = forward(l, {s}, {100}, false, false);
        against_definition(l, s, r.first, what);
        alone.insert(alone.end(), r.first.begin(), r.first.end());
        states.push_back(r.second[0]);
      }
      for (const std::vector<int>& cuts : {std::vector<int>{100}, {1}, {16}, {1, 33, 0, 7}, {69, 1}})
        for (bool in_place : {false, true}) {
          const Result r = forward(l, all, cuts, in_place, false);
          expect(r.first == alone && r.second == states, what + " in calls of " + std::to_string(cuts[0]) + (in_place ? " rows in place" : " rows"));
        }
      const Result kept = forward(l, all, {30, 2}, false, true);
      expect(kept.first == alone, what + " with states kept");
      Sequence first = all[0];
      first.x.resize(size_t(c.width()) * size_of(t));
      expect(kept.second[3] == forward(l, {first}, {1}, false, false).second[0], what + ": the state kept behind the first row");
      first.x = std::vector<uint8_t>(all[0].x.begin(), all[0].x.begin() + long(31 * size_t(c.width()) * size_of(t)));
      expect(kept.second[4] == forward(l, {first}, {31}, false, false).second[0], what + ": the state kept behind row 31");
      everywhere(what, [&] { return forward(l, all, {100, 1}, true, true); });
    }
}

}  // namespace clade
