#pragma once

// The element types as an enum and as C++ types, both made from dtypes.def: the part of dtype.h that kernels compiled
// at run time can include. `visit` is the only switch over element types. It turns the enum's value into the C++ type,
// on host and device.

#include <cstdint>
#include <type_traits>

#include "lorry/layout/half.h"

namespace lorry {

enum class DType : uint8_t {
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) name,
#include "lorry/layout/dtypes.def"
};

#ifndef __CUDACC_RTC__  // which would make each of these constants a variable of every module, for the driver to load
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) inline constexpr DType k##Name = DType::name;
#include "lorry/layout/dtypes.def"

inline constexpr DType kDTypes[] = {
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) k##Name,
#include "lorry/layout/dtypes.def"
};
inline constexpr int kDTypeCount = sizeof(kDTypes);

template <class T>
struct DTypeOf;
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) \
  template <>                                                    \
  struct DTypeOf<type> {                                         \
    static constexpr DType value = k##Name;                      \
  };
#include "lorry/layout/dtypes.def"
template <>
struct DTypeOf<long long> {
  static constexpr DType value = kI64;
};

/// The DType that stores T.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;
#endif

template <class T>
struct Type {
  using type = T;
};

/// Calls f(Type<T>{}) with the C++ type of a dtype: visit(x.dtype(), [&]<class T>(Type<T>) { ... }). A value outside
/// the enum is treated as bool.
template <class F>
constexpr decltype(auto) visit(DType t, F&& f) {
  switch (t) {
    default:
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) \
  case DType::name:                                              \
    return f(Type<type>{});
#include "lorry/layout/dtypes.def"
  }
}

/// Whether an element type is floating, and whether it is narrow: a floating type stored in 16 bits or fewer, whose
/// kernels compute in f32.
template <class T>
concept kFloatingType = !std::is_integral_v<T>;
template <class T>
concept kNarrowType = kFloatingType<T> && !std::is_floating_point_v<T>;

constexpr bool is_narrow(DType t) {
  return visit(t, []<class T>(Type<T>) { return kNarrowType<T>; });
}

/// The type in which kernels compute: f32 for narrow types, else T itself.
template <class T>
using Accumulate = std::conditional_t<kNarrowType<T>, float, T>;

}  // namespace lorry
