// Where a sequence in ascending order of keys is cut, found without sorting it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pieces.h"

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
  // Leaves the scores of which wanted(i) is true; it may look at score i alone.
  template <class F>
  void keep(const F& wanted) {
    kept.resize(size_t(pieces_of(count)));
    each_piece(count, [&](int p, int first, int n) {
      int to = first;
      for (int i = first; i < first + n; i++) {
        value[size_t(to)] = value[size_t(i)];
        id[size_t(to)] = id[size_t(i)];
        to += wanted(i);
      }
      kept[size_t(p)] = to - first;
    });
    int n = 0;
    for (size_t p = 0; p < kept.size(); n += kept[p++]) move(int(p) * kPiece, n, kept[p]);
    count = n;
    pad();
  }

 private:
  std::vector<int> kept;  // of each piece
  void move(int from, int to, int n);
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
