// The table of conversions. They are compiled once for each instruction set.

#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/simd.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_conversions(ConvertTable& table))

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
