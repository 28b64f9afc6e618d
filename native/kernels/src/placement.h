// Which memory node holds weights.
#pragma once
#include <cstddef>

namespace clade {

// node >= 0, CLADE_ANYWHERE or CLADE_INTERLEAVE, for weights made from now on; throws where the machine has no such node.
void place_weights(int node);

// Memory of whole pages' alignment that nothing has written yet goes where weights do; throws where the system refuses.
void place_memory(void* data, size_t bytes);

// What place_memory wants of an address.
size_t placement_alignment();

}  // namespace clade
