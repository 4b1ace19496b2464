#pragma once

// Division by multiplication (Granlund, Montgomery 1994), for host and device and for kernels compiled at run time.

#include <cstdint>

#include "lorry/base/macros.h"

namespace lorry::kernels::cuda {

/// Division of n < 2^31 by a divisor in [1, 2^31).
struct Divider {
  uint32_t divisor = 1, multiplier = 0, shift = 0;

  Divider() = default;
  explicit Divider(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    while (shift < 32 && (uint64_t{1} << shift) < divisor) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor)) / divisor + 1);
  }
  LORRY_HOST_DEVICE uint32_t operator()(uint32_t n) const {
#ifdef __CUDA_ARCH__
    return (__umulhi(n, multiplier) + n) >> shift;
#else
    return static_cast<uint32_t>(((static_cast<uint64_t>(n) * multiplier >> 32) + n) >> shift);
#endif
  }
};

/// The same for any n, with the processor's division.
struct WideDivider {
  int64_t divisor = 1;

  WideDivider() = default;
  explicit WideDivider(int64_t d) : divisor(d) {}
  LORRY_HOST_DEVICE int64_t operator()(int64_t n) const { return n / divisor; }
};

}  // namespace lorry::kernels::cuda
