#pragma once

// Elements, and their sort keys. The key of an element is an unsigned number with the order of the elements:
// a < b exactly if key_of(a) < key_of(b), NaN is above everything, and -0 equals 0.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "lorry/base/macros.h"
#include "lorry/layout/dtype_enum.h"

namespace lorry::kernels::cpu {

template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

namespace detail {
template <int kBytes>
using BitsOf =
    std::conditional_t<kBytes == 8, uint64_t,
                       std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>;
}  // namespace detail

/// Element i. A bool is a byte, and every byte but 0 is true.
template <class T>
LORRY_INLINE T element(const T* data, int64_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    return reinterpret_cast<const uint8_t*>(data)[i] != 0;
  } else {
    return data[i];
  }
}

template <class T>
LORRY_INLINE KeyOf<T> key_of(T value) {
  using Bits = detail::BitsOf<sizeof(T)>;
  constexpr Bits kSign = Bits(Bits(1) << (8 * sizeof(T) - 1)), kAll = static_cast<Bits>(~Bits(0));
  const Bits bits = std::bit_cast<Bits>(value);
  if constexpr (kFloatingType<T>) {
    constexpr Bits kInfinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
    // Without branches: signs are often random. The larger its magnitude, the smaller is a negative number, so all its
    // bits are inverted. -0 comes out one below 0.
    const Bits inverted = static_cast<Bits>(Bits(0) - Bits(bits >> (8 * sizeof(T) - 1))) | kSign;
    const Bits number = static_cast<Bits>((bits ^ inverted) + Bits(bits == kSign));
    return static_cast<Bits>(bits & ~kSign) > kInfinity ? kAll : number;
  } else {
    return std::is_signed_v<T> ? static_cast<Bits>(bits ^ kSign) : bits;
  }
}

}  // namespace lorry::kernels::cpu
