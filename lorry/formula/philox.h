#pragma once

// Counter-based random bits, shared by every device. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011.
//
// A draw is a call that fills a tensor. It is named by (seed, offset): the seed is Philox's key, the offset numbers the
// draws made with that seed. Inside a draw, block b is Philox4x32-7 of the counter {low(b), high(b), low(offset),
// high(offset)} and gives four words of 32 bits. Element i (row-major) takes its words from a fixed block, so a value
// depends on (seed, offset, i) and on nothing else: not on threads, vector width or device.
//
//   words an element   block of element i   its words
//   1                  i / 4                i % 4
//   2                  i / 2                2 (i % 2), 2 (i % 2) + 1     (the first word is the low half)

#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::formula {

/// A generator's seed, and the offset of its next draw, where a generator keeps them in a device's memory.
struct RandomState {
  uint64_t seed;
  uint64_t offset;
};

/// Names a draw, by value or, with a state, by what that holds when the draw is made: its seed, and its offset plus the
/// key's. A captured draw then differs from replay to replay. Draws with different keys share no bits.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t offset = 0;
  const RandomState* state = nullptr;  ///< where the draw is made

  /// The draw's key by value.
  LORRY_INLINE RandomKey load() const {
    if (state == nullptr) return *this;
    return {state->seed, state->offset + offset, nullptr};
  }
  void addresses(auto& visit) const { visit(state); }
};

struct Words4 {
  uint32_t word[4];
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u;
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85u;
/// The fewest rounds with which Philox4x32 passes BigCrush (Salmon et al., table 2). With ten, as
/// PyTorch has, a normal takes 17 % longer on a GPU.
inline constexpr int kPhiloxRounds = 7;

/// The keys of all rounds. They depend on the seed alone, so that whoever makes many blocks computes them once.
struct PhiloxKeys {
  uint32_t round[kPhiloxRounds][2];
};

LORRY_INLINE PhiloxKeys philox_keys(uint64_t seed) {
  PhiloxKeys keys;
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    keys.round[round][0] = static_cast<uint32_t>(seed) + round * kPhiloxWeyl0;
    keys.round[round][1] = static_cast<uint32_t>(seed >> 32) + round * kPhiloxWeyl1;
  }
  return keys;
}

/// All 64 bits of a product. Said in PTX on a GPU: of the C++ expression nvcc 13 makes an addition of zero more.
LORRY_INLINE uint64_t wide_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return static_cast<uint64_t>(a) * b;
#endif
}

/// Philox4x32-7 of a counter and a key.
LORRY_INLINE Words4 philox(Words4 c, const PhiloxKeys& keys) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = wide_product(kPhiloxMultiplier0, c.word[0]), p1 = wide_product(kPhiloxMultiplier1, c.word[2]);
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ keys.round[round][0], static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ keys.round[round][1], static_cast<uint32_t>(p0)}};
  }
  return c;
}

/// A draw, ready to make many blocks. The key is by value: see RandomKey::load.
struct Draw {
  PhiloxKeys keys;
  uint64_t offset;

  LORRY_INLINE explicit Draw(const RandomKey& key) : keys(philox_keys(key.seed)), offset(key.offset) {}
};

/// Block high 2^32 + low of the draw.
LORRY_INLINE Words4 random_block(const Draw& draw, uint32_t high, uint32_t low) {
  return philox({{low, high, static_cast<uint32_t>(draw.offset), static_cast<uint32_t>(draw.offset >> 32)}}, draw.keys);
}
LORRY_INLINE Words4 random_block(const Draw& draw, uint64_t block) {
  return random_block(draw, static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(block));
}
LORRY_INLINE Words4 random_block(const RandomKey& key, uint64_t block) { return random_block(Draw(key.load()), block); }

}  // namespace lorry::formula
