// The tables of the functions that are compiled once an instruction set.

#include <array>

#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/fused/threaded.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(template <int kShare> void fill_blocks(BlockFunctions* table);
                   template <> void fill_blocks<0>(BlockFunctions* table);
                   template <> void fill_blocks<1>(BlockFunctions* table);
                   template <> void fill_blocks<2>(BlockFunctions* table);
                   template <> void fill_blocks<3>(BlockFunctions* table))
LORRY_SIMD_DECLARE(void fill_conversions(ConvertTable& table))
LORRY_SIMD_DECLARE(void fill_threaded(ThreadedFunctions& table))

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

const ThreadedFunctions& threaded_functions() {
  static const ThreadedFunctions all = [] {
    ThreadedFunctions made;
    LORRY_SIMD_CHOOSE(fill_threaded)(made);
    return made;
  }();
  return all;
}

namespace {
struct Conversions {
  ConvertTable functions;
};
const Conversions& conversions() {
  static const Conversions all = [] {
    Conversions made;
    LORRY_SIMD_CHOOSE(fill_conversions)(made.functions);
    return made;
  }();
  return all;
}
}  // namespace
}  // namespace lorry::kernels::cpu

namespace lorry::kernels {

Convert converter(DType from, DType to) {
  return cpu::conversions().functions[static_cast<int>(from)][static_cast<int>(to)];
}

}  // namespace lorry::kernels
