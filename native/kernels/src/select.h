// Where a sequence in ascending order of keys is cut, found without sorting it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace clade {

// Scores with their tokens' ids, in ascending order of ids.
struct Scores {
  std::vector<float> value;
  std::vector<int32_t> id;
  int count = 0;

  void resize(int n) {
    count = n;
    const size_t held = (size_t(n) + 31) / 16 * 16;  // loops read whole vectors
    if (value.size() < held) value.resize(held), id.resize(held);
  }
  // Nothing of what lay behind is read as a score.
  void pad();
  template <class F>
  void keep(const F& wanted) {
    int n = 0;
    for (int i = 0; i < count; i++) {
      value[size_t(n)] = value[size_t(i)];
      id[size_t(n)] = id[size_t(i)];
      n += wanted(i);
    }
    count = n;
    pad();
  }
};

// The last item that stays.
struct Cut {
  float key;
  int32_t id;
  bool all;  // nothing is cut
  bool keeps(float k, int32_t i) const { return all || k < key || (k == key && i <= id); }
};

// Items stay, in ascending order of (key, id), until there are `limit`; or while those before have less than `target` of the weight.
// Weights are at most 1; keys are numbers.
Cut select_first(const float* key, const int32_t* id, int n, int limit);
Cut select_mass(const float* key, const int32_t* id, const float* weight, int n, double target);

}  // namespace clade
