#pragma once

// Runs over the keys of a row, compiled once for each instruction set.
//
// An item is the key and the index of an element in one number: the key above, the index below. So items order like
// elements, and equal elements keep their order. There are two kinds. A candidate has room for every key; it is twice
// as wide as a key. A packed item has 64 bits; if the keys of a row and its indices do not fit, it holds a part of each
// key.

#include <cstdint>

#include "lorry/kernels/cpu/sort/keys.h"

namespace lorry::kernels::cpu {

/// Indices have 32 bits.
template <class Key>
using Candidate = std::conditional_t<sizeof(Key) == 8, unsigned __int128, uint64_t>;

template <class Key>
LORRY_INLINE Candidate<Key> candidate(Key key, int64_t index) {
  return Candidate<Key>(key) << 32 | static_cast<uint32_t>(index);
}

/// A row whose keys are inverted bit by bit if it is sorted in descending order.
template <class T>
struct KeyRow {
  const T* data;
  KeyOf<T> flip;

  LORRY_INLINE KeyOf<T> key(int64_t i) const { return key_of(element(data, i)) ^ flip; }
};

/// The part of (key - least) that a packed item holds: the bits from `shift` on that `mask` keeps.
struct Packing {
  uint64_t least;
  int shift;
  uint64_t mask;
  int index_bits;

  LORRY_INLINE uint64_t item(uint64_t key, int64_t index) const {
    return ((key - least) >> shift & mask) << index_bits | static_cast<uint64_t>(index);
  }
  LORRY_INLINE int64_t index(uint64_t item) const {
    return static_cast<int64_t>(item & ((uint64_t{1} << index_bits) - 1));
  }
};

/// A search for the elements of [at, end) whose key is at most `last`.
template <class T>
struct Search {
  /// Free places that a step of the search needs.
  static constexpr int64_t kStep = 64;

  KeyRow<T> row;
  int64_t at, end;
  KeyOf<T> last;
  Candidate<KeyOf<T>>* found;
  int64_t count, room;
};

template <class T>
struct KeyRuns {
  /// The least and the greatest key of n > 0 elements.
  void (*bounds)(const KeyRow<T>& row, int64_t begin, int64_t end, KeyOf<T>& least, KeyOf<T>& greatest);
  /// items[i] = the packed item of element i, for i in [begin, end).
  void (*pack)(uint64_t* items, const KeyRow<T>& row, const Packing& packing, int64_t begin, int64_t end);
  /// Packs another part of the keys of the elements that the items [begin, end) name.
  void (*repack)(uint64_t* items, const KeyRow<T>& row, const Packing& packing, int64_t begin, int64_t end);
  /// Goes on until the end of the search, or until fewer than kStep places are free.
  void (*search)(Search<T>& search);
};

/// The functions of all element types.
template <class... T>
struct KeyTableOf : KeyRuns<T>... {};
using KeyTable = KeyTableOf<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, Float16, BFloat16, float, double>;

}  // namespace lorry::kernels::cpu
