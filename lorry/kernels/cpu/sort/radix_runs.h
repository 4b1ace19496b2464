#pragma once

// The loops of the radix sort, compiled once for each instruction set: the newer have faster shifts.

#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::kernels::cpu {

/// A digit of an item: `bits` bits from bit `low` on.
struct Digit {
  int low, bits;

  LORRY_INLINE uint64_t operator()(uint64_t item) const { return item >> low & ((uint64_t{1} << bits) - 1); }
};

/// The upper bits of an item, from bit `low` on, minus `least`; 0 if they are less.
struct Above {
  int low;
  int64_t least;

  LORRY_INLINE uint64_t operator()(uint64_t item) const {
    const int64_t difference = static_cast<int64_t>(item >> low) - least;
    return static_cast<uint64_t>(difference & ~(difference >> 63));  // the compiler must not make it a branch
  }
};

struct RadixRuns {
  /// Adds to counts[digit] how many of n items have the digit.
  void (*count)(const uint64_t* items, int64_t n, Digit digit, int64_t* counts);
  void (*count_above)(const uint64_t* items, int64_t n, Above above, int64_t* counts);
  /// Copies every item to to[next[digit]], and adds 1 to next[digit].
  void (*move)(const uint64_t* items, int64_t n, Digit digit, int64_t* next, uint64_t* to);
  /// Copies the first `count` items whose upper bits are at most `last`.
  void (*keep)(const uint64_t* items, uint64_t* to, int64_t count, int low, uint64_t last);
};

/// The functions for this process's instruction set.
const RadixRuns& radix_runs();

}  // namespace lorry::kernels::cpu
