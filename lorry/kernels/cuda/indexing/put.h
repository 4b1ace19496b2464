#pragma once

// Shared by the kernels that write at computed positions. put.cu explains the algorithm and its terms.

#include "lorry/kernels/cuda/indexing/index_bounds.h"

namespace lorry::kernels::cuda {

struct PutPlan {
  Iteration orders;      ///< the orders, in row-major order; operands: target, source, index
  Iteration columns;     ///< the columns; operands: target, source
  bool meets;            ///< whether two orders may have the same key
  int64_t key_step;      ///< key = the target's offset + index * key_step
  int64_t address_step;  ///< address = key * address_step
  int64_t nowhere;       ///< the key of an invalid index, above all other keys
  Layout numbers;        ///< maps a coordinate to the number of its order
  int64_t count = 0;     ///< number of orders
};

/// Whether 32 bits hold every key, order and offset.
inline bool narrow(const PutPlan& p) {
  return p.nowhere <= INT32_MAX && fits_narrow(p.orders) && fits_narrow(p.columns);
}

/// Adds the orders of a chunk, sorted by key, to the target. Key is uint32_t if `narrow`. Defined in put_add.cu.
void add_in_order(const PutArgs& args, const PutPlan& p, const uint32_t* keys, const uint32_t* numbers, int64_t first,
                  int64_t count, Stream stream);
void add_in_order(const PutArgs& args, const PutPlan& p, const uint64_t* keys, const uint32_t* numbers, int64_t first,
                  int64_t count, Stream stream);
/// Multiplies the orders, or takes the largest or the smallest. Defined in put_fold.cu.
void fold_in_order(const PutArgs& args, const PutPlan& p, const uint32_t* keys, const uint32_t* numbers, int64_t first,
                   int64_t count, Stream stream);
void fold_in_order(const PutArgs& args, const PutPlan& p, const uint64_t* keys, const uint32_t* numbers, int64_t first,
                   int64_t count, Stream stream);

}  // namespace lorry::kernels::cuda
