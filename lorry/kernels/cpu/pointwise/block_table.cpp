// The table of block functions. They are compiled once for each instruction set.

#include <array>

#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(template <int kShare> void fill_blocks(BlockFunctions* table);
                   template <> void fill_blocks<0>(BlockFunctions* table);
                   template <> void fill_blocks<1>(BlockFunctions* table);
                   template <> void fill_blocks<2>(BlockFunctions* table);
                   template <> void fill_blocks<3>(BlockFunctions* table))

const BlockFunctions* block_functions() {
  static const auto table = [] {
    std::array<BlockFunctions, kPointwiseCount> t{};
    static_assert(kBlockShares == 4);
    LORRY_SIMD_CHOOSE(fill_blocks<0>)(t.data());
    LORRY_SIMD_CHOOSE(fill_blocks<1>)(t.data());
    LORRY_SIMD_CHOOSE(fill_blocks<2>)(t.data());
    LORRY_SIMD_CHOOSE(fill_blocks<3>)(t.data());
    return t;
  }();
  return table.data();
}

}  // namespace lorry::kernels::cpu
