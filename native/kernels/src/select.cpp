#include "select.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace clade {

namespace {

// Weights as whole numbers: their sums do not depend on an order. 2^22 of them fit.
constexpr float kUnit = 0x1p42f;
constexpr int kBuckets = 512;
constexpr float kPerBucket = 8;  // buckets for 1 of a key
constexpr size_t kFew = 32;

struct Item {
  float key;
  int32_t id;
  uint64_t weight;
  bool operator<(const Item& o) const { return key < o.key || (key == o.key && id < o.id); }
};

// Keys that are as large as another are in no earlier bucket.
int bucket_of(float key, float least) {
  const float b = (key - least) * kPerBucket;
  return b < kBuckets - 1 ? int(b) : kBuckets - 1;
}

// The last of the items, in ascending order, with less than target before it; before the first one there is `before`, which is less.
Cut last_of(std::vector<Item>& items, uint64_t before, uint64_t target) {
  auto lo = items.begin(), hi = items.end();
  while (size_t(hi - lo) > kFew) {
    const auto mid = lo + (hi - lo) / 2;
    std::nth_element(lo, mid, hi);
    uint64_t half = 0;
    for (auto i = lo; i != mid; ++i) half += i->weight;
    if (before + half < target) {
      before += half;
      lo = mid;
    } else {
      hi = mid;
    }
  }
  std::sort(lo, hi);
  auto last = lo;
  for (auto i = lo; i != hi && before < target; ++i) {
    last = i;
    before += i->weight;
  }
  return {last->key, last->id, false};
}

float least_of(const float* key, int n) {
  std::vector<float> least(size_t(pieces_of(n)));
  each_piece(n, [&](int p, int first, int count) { least[size_t(p)] = *std::min_element(key + first, key + first + count); });
  return *std::min_element(least.begin(), least.end());
}

template <class Weight>
Cut select(const float* key, const int32_t* id, int n, uint64_t target, const Weight& weight) {
  if (n == 0) return {0, 0, true};
  const float least = least_of(key, n);
  std::vector<std::array<uint64_t, kBuckets>> sums(size_t(pieces_of(n)));
  each_piece(n, [&](int p, int first, int count) {
    auto& here = sums[size_t(p)];
    here.fill(0);
    for (int i = first; i < first + count; i++) here[size_t(bucket_of(key[i], least))] += weight(i);
  });
  uint64_t before = 0;
  size_t b = 0;
  for (; b < kBuckets; b++) {
    uint64_t with = before;
    for (const auto& piece : sums) with += piece[b];
    if (with >= target) break;
    before = with;
  }
  if (b == kBuckets) return {0, 0, true};
  std::vector<std::vector<Item>> found(sums.size());
  each_piece(n, [&](int p, int first, int count) {
    for (int i = first; i < first + count; i++)
      if (bucket_of(key[i], least) == int(b)) found[size_t(p)].push_back({key[i], id[i], weight(i)});
  });
  std::vector<Item> items;
  for (const auto& piece : found) items.insert(items.end(), piece.begin(), piece.end());
  return last_of(items, before, target);
}

}  // namespace

void Scores::pad() {
  const size_t end = std::min(value.size(), (size_t(count) + 31) / 16 * 16);
  std::fill(value.begin() + count, value.begin() + long(end), -INFINITY);
  std::fill(id.begin() + count, id.begin() + long(end), 0);
}

void Scores::move(int from, int to, int n) {
  if (from == to) return;
  std::copy_n(value.begin() + from, n, value.begin() + to);
  std::copy_n(id.begin() + from, n, id.begin() + to);
}

Cut select_first(const float* key, const int32_t* id, int n, int limit) {
  return select(key, id, n, uint64_t(limit), [](int) { return uint64_t(1); });
}

Cut select_mass(const float* key, const int32_t* id, const float* weight, int n, double target) {
  return select(key, id, n, uint64_t(std::ceil(target * double(kUnit))), [&](int i) { return uint64_t(int64_t(weight[i] * kUnit)); });
}

}  // namespace clade
