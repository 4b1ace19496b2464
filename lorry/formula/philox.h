#pragma once

// Counter-based random bits, shared by every device. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011.
//
// A draw is a call that fills a tensor. It is named by (seed, offset): the seed is Philox's key, the offset numbers the
// draws made with that seed. Inside a draw, block b is Philox4x32-10 of the counter {low(b), high(b), low(offset),
// high(offset)} and gives four words of 32 bits. Element i (row-major) takes its words from a fixed block, so a value
// depends on (seed, offset, i) and on nothing else: not on threads, vector width or device.
//
//   words an element   block of element i   its words
//   1                  i / 4                i % 4
//   2                  i / 2                2 (i % 2), 2 (i % 2) + 1     (the first word is the low half)

#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::formula {

/// Names a draw. Draws with different keys share no bits.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t offset = 0;
};

struct Words4 {
  uint32_t word[4];
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u;
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

/// Philox4x32-10 of a counter and a key.
LORRY_INLINE Words4 philox(Words4 c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxMultiplier0) * c.word[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxMultiplier1) * c.word[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ key1,
          static_cast<uint32_t>(p0)}};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return c;
}

/// Block `block` of the draw named `key`.
LORRY_INLINE Words4 random_block(RandomKey key, uint64_t block) {
  const Words4 counter = {
      {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(key.offset), static_cast<uint32_t>(key.offset >> 32)}};
  return philox(counter, static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32));
}

}  // namespace lorry::formula
