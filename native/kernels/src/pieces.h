// Passes over many scores, cut at fixed places: what is summed piece by piece does not depend on who sums it.
#pragma once
#include <algorithm>

#include "pool.h"

namespace clade {

// What one thread passes over at a time.
constexpr int kPiece = 8192;

inline int pieces_of(int n) { return (n + kPiece - 1) / kPiece; }

// Calls f(piece, first, count) for each piece of n, on the threads of the pool.
template <class F>
void each_piece(int n, const F& f) {
  Pool::get().run(pieces_of(n), [&](int p) { f(p, p * kPiece, std::min(kPiece, n - p * kPiece)); });
}

}  // namespace clade
