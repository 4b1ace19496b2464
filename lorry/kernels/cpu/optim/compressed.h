#pragma once

// Compressed arrays, bf16 or 8-bit codes, on the CPU, one block at a time.

#include "lorry/formula/philox.h"
#include "lorry/formula/quantize.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

/// Elements of a block, which share a scale. Blocks begin at multiples of it, so that two blocks never share random
/// words.
inline constexpr int64_t kCompressedBlock = formula::kQuantBlock;

struct CompressedArray {
  void* data;
  int64_t count;       ///< of elements
  StateType type;      ///< bf16 or q8
  bool is_signed;      ///< of q8
  int64_t before = 0;  ///< if this is a slice of an array: how many elements of that come before it

  /// Reads or writes the first n elements of the block that begins at `begin`.
  void load(int64_t begin, int64_t n, float* to) const;
  void store(const float* from, int64_t begin, int64_t n, const formula::RandomKey& key) const;
};

/// CompressedArray::before of an entry's arrays: `first_element` for the first entry with elements, 0 for the others.
int64_t before(const List& list, const ListEntry& entry, int64_t first_element);

void decompress(const CompressedCall& call, const Stream& stream);
void compress(const CompressedCall& call, const Stream& stream);

}  // namespace lorry::kernels::cpu
