// The noise of sampling (sdk/engine/noise.go has the definition and the frozen values): a pure function of seed, choice, position
// and token id, the same bits on every machine.
#pragma once
#include <cstdint>

namespace clade {

// One request's choice at one position.
struct Noise {
  uint32_t key[2];  // the seed, low word first
  uint32_t position, choice;

  // -log(-log(u)) of a token, u from Philox4x32-10 with the counter (id, position, choice, 0).
  float at(int32_t id) const;
};

// Philox4x32's multipliers and Weyl constants (Salmon, Moraes, Dror, Shaw, SC 2011).
constexpr uint32_t kPhiloxM0 = 0xD2511F53, kPhiloxM1 = 0xCD9E8D57, kPhiloxW0 = 0x9E3779B9, kPhiloxW1 = 0xBB67AE85;
constexpr int kPhiloxRounds = 10;

// log(x) of a positive, normal x, within an ulp: written out, as libraries differ in the last bit.
double log_of(double x);

}  // namespace clade
