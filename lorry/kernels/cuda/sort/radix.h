#pragma once

// Stable radix sorts on the device. CUB is compiled for two types of keys only; callers map their values to
// them with an order-preserving function.

#include <cstdint>
#include <utility>

#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {

/// Keys with their values, and spare memory of the same size.
template <class Key>
class Pairs {
 public:
  Pairs(int64_t count, Stream stream)
      : count_(count),
        memory_(2 * count * static_cast<int64_t>(sizeof(Key) + sizeof(uint32_t)), stream),
        keys_(memory_.as<Key>()),
        spare_keys_(keys_ + count) {
    values_ = reinterpret_cast<uint32_t*>(spare_keys_ + count);
    spare_values_ = values_ + count;
  }
  int64_t count() const { return count_; }
  Key* keys() const { return keys_; }
  uint32_t* values() const { return values_; }
  /// Memory that the next sort may overwrite.
  Key* spare_keys() const { return spare_keys_; }
  uint32_t* spare_values() const { return spare_values_; }
  void swap_keys() { std::swap(keys_, spare_keys_); }
  void swap_values() { std::swap(values_, spare_values_); }

 private:
  int64_t count_;
  Scratch memory_;
  Key *keys_, *spare_keys_;
  uint32_t *values_, *spare_values_;
};

/// Sorts the pairs by the lowest `bits` bits of their keys; equal keys keep their order. At most 2^32 - 1 pairs.
void radix_sort(Pairs<uint32_t>& pairs, int bits, Stream stream);
void radix_sort(Pairs<uint64_t>& pairs, int bits, Stream stream);

/// Sorts keys alone, between two pieces of memory. Returns the one that has the result.
uint32_t* radix_sort(uint32_t* keys, uint32_t* spare, int64_t count, int bits, Stream stream);
uint64_t* radix_sort(uint64_t* keys, uint64_t* spare, int64_t count, int bits, Stream stream);

}  // namespace lorry::kernels::cuda
