// Memory of weights, in large pages where the system gives them: a step reads all of it once, and in small ones it spends more time on
// addresses than on what lies there.
#pragma once
#include <cstddef>
#include <cstdint>

namespace clade {

// At least `bytes`, aligned for any vector, where place_weights says; throws where there is none.
uint8_t* take_memory(size_t bytes);

// Gives back what take_memory gave. Null is left alone.
void give_memory(uint8_t* data);

// What is taken from now on lies apart from what was taken before.
void take_memory_elsewhere();

}  // namespace clade
