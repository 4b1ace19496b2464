#pragma once

// Tells addresses from values in a kernel's parameters (device/addresses.h). A struct that does not list its addresses
// does not compile as a parameter, unless its alignment is too small for a pointer.

#include <vector_types.h>

#include <cstdint>
#include <type_traits>

#include "lorry/device/addresses.h"

namespace lorry::cuda {

/// Types that cannot hold an address: scalars, structs whose alignment is too small for a pointer, and CUDA's vectors.
template <class T>
inline constexpr bool kHoldsNoAddress = !std::is_pointer_v<T> && (!std::is_class_v<T> || alignof(T) < alignof(void*));
template <>
inline constexpr bool kHoldsNoAddress<uint4> = true;

struct ParameterType {
  uint32_t bytes;
  void (*addresses)(const void* value, AddressVisitor& visitor);  ///< null if the type holds none
};

template <class T>
constexpr ParameterType parameter_type() {
  if constexpr (kHoldsNoAddress<T>) {
    return {sizeof(T), nullptr};
  } else if constexpr (std::is_pointer_v<T> || ListsAddresses<T>) {
    return {sizeof(T), [](const void* value, AddressVisitor& visitor) { visitor(*static_cast<const T*>(value)); }};
  } else {
    static_assert(ListsAddresses<T>, "a struct passed to a kernel must list its addresses: see parameters.h");
    return {};
  }
}

}  // namespace lorry::cuda
