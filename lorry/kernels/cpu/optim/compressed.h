#pragma once

// Arrays that are stored in fewer than 32 bits, a block at a time.

#include "lorry/formula/philox.h"
#include "lorry/formula/quantize.h"
#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

/// Elements of a block: those that share a scale. Blocks begin at multiples of it, so that no two of them share random
/// words either.
inline constexpr int64_t kCompressedBlock = formula::kQuantBlock;

struct CompressedArray {
  void* data;
  int64_t count;       ///< of all its elements
  StateType type;      ///< bf16 or q8
  bool is_signed;      ///< of q8
  int64_t before = 0;  ///< elements of the array that this is a slice of, before its first

  /// The first n elements of the block that begins at `begin`.
  void load(int64_t begin, int64_t n, float* to) const;
  void store(const float* from, int64_t begin, int64_t n, const formula::RandomKey& key) const;
};

/// `first_element` for the first of a list's entries that has elements, and 0 for the others.
int64_t before(const List& list, const ListEntry& entry, int64_t first_element);

void decompress(const CompressedCall& call, const Stream& stream);
void compress(const CompressedCall& call, const Stream& stream);

}  // namespace lorry::kernels::cpu
