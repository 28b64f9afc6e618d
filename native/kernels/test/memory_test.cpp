// Memory of weights: pieces keep what is written to them whatever else is taken and given back, from several threads.
#include "memory.h"

#include <cstring>
#include <thread>

#include "everywhere.h"

namespace clade {

void memory() {
  auto churn = [](unsigned seed) {
    struct Piece {
      uint8_t* data;
      size_t bytes;
      uint8_t mark;
    };
    std::mt19937 random(seed);
    std::vector<Piece> held;
    bool whole = true, aligned = true;
    auto drop = [&](size_t i) {
      const Piece p = held[i];
      for (size_t at : {size_t(0), p.bytes / 2, p.bytes - 1}) whole = whole && p.data[at] == p.mark;
      give_memory(p.data);
      held.erase(held.begin() + long(i));
    };
    for (int round = 0; round < 400; round++) {
      if (held.size() > 20 || (held.size() > 2 && random() % 3 == 0)) drop(random() % held.size());
      if (round == 200) take_memory_elsewhere();
      // Now and then one that has a region of its own.
      const size_t bytes = round % 100 == 50 ? (size_t(17) << 20) + random() % 4096 : 1 + random() % (size_t(3) << 20);
      Piece p{take_memory(bytes), bytes, uint8_t(random())};
      aligned = aligned && reinterpret_cast<uintptr_t>(p.data) % 64 == 0;
      for (size_t at : {size_t(0), p.bytes / 2, p.bytes - 1}) p.data[at] = p.mark;
      held.push_back(p);
    }
    while (!held.empty()) drop(held.size() - 1);
    return whole && aligned;
  };
  bool ok[2] = {false, false};
  std::thread other([&] { ok[1] = churn(2); });
  ok[0] = churn(1);
  other.join();
  expect(ok[0] && ok[1], "memory of weights holds what was written to it");
  give_memory(nullptr);
}

}  // namespace clade
