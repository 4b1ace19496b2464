#include "lorry/kernels/cuda/fused/argument.h"

#include "lorry/kernels/common/convert.h"

namespace lorry::kernels::cuda {

lorry::cuda::ParameterType argument_type(size_t words) {
  const auto addresses = [](const void* value, AddressVisitor& visitor) {
    const auto* const all = static_cast<const uint64_t*>(value);
    const auto* const at = reinterpret_cast<const void* const*>(all + kOperandsWord + 1);
    for (size_t k = 0; k < all[kOperandsWord]; ++k) visitor(at[k]);
  };
  return {static_cast<uint32_t>(words * sizeof(uint64_t)), addresses};
}

uint64_t bits_of(FusedNumber number, DType dtype, DType as) {
  uint64_t bits = 0;
  converter(dtype, as)(&number, 0, &bits, 1, 1);
  return bits;
}

}  // namespace lorry::kernels::cuda
