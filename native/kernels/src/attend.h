// Sequences and their caches as attention's primitives are given them.
#pragma once
#include <utility>
#include <vector>

#include "attention.h"
#include "primitive.h"

namespace clade {

// A sequence as a primitive keeps it.
struct Sequence {
  int offset, rows;
  RowCode keys, values;
  int pairs, written;
  std::vector<std::pair<int, int>> tiles;  // pair, first row
};

// Reads one sequence: its arrays begin at caches, its table at table.
Sequence read_sequence(const clade_sequence& q, const clade_array* caches, const int* table, const clade_attention& a, int keep);

// What the kernel reads of a sequence whose pairs are in[next ..]. Those that are written share their memory with outs[made ..]; both
// counts move on.
AttentionSegment segment_of(const Sequence& q, int head_dim, const std::vector<mx::array>& in, size_t& next, std::vector<mx::array>& outs,
                            size_t& made);

// Throws what is wrong with heads and rotation.
void check_heads(const clade_attention& a);

// inv_freq as an input of a primitive; a scalar where nothing rotates.
mx::array checked_frequencies(clade_array inv_freq, const clade_attention& a);

// The kernel's call.
AttentionCall attention_call(const clade_attention& a, int keep, float softcap);

}  // namespace clade
