#pragma once

// Element types. One list (kDTypes) fixes their order, names, sizes and safetensors spelling; `visit` turns a run-time
// DType into a C++ type, so that no switch over types stands anywhere else.

#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lorry/base/error.h"
#include "lorry/layout/dtype_enum.h"
#include "lorry/layout/half.h"

namespace lorry {

namespace detail {
struct DTypeFacts {
  std::string_view name;
  uint8_t size;
  uint8_t category;  // 0 boolean, 1 integral, 2 floating
};
inline constexpr DTypeFacts kDTypeFacts[kDTypeCount + 1] = {
    {"bool", 1, 0}, {"u8", 1, 1},   {"i8", 1, 1},  {"i16", 2, 1}, {"i32", 4, 1},      {"i64", 8, 1},
    {"f16", 2, 2},  {"bf16", 2, 2}, {"f32", 4, 2}, {"f64", 8, 2}, {"no dtype", 0, 3},  // a number cast to DType
};
constexpr const DTypeFacts& facts(DType t) { return kDTypeFacts[t <= kF64 ? static_cast<int>(t) : kDTypeCount]; }
}  // namespace detail

/// "f32", "i64", "bool", ...
constexpr std::string_view name(DType t) { return detail::facts(t).name; }
std::ostream& operator<<(std::ostream& out, DType t);
/// Bytes of one element.
constexpr int64_t size_of(DType t) { return detail::facts(t).size; }
/// Whether it is one of f16, bf16, f32 and f64.
constexpr bool is_floating(DType t) { return detail::facts(t).category == 2; }
/// Whole numbers; bool is not among them.
constexpr bool is_integral(DType t) { return detail::facts(t).category == 1; }

/// The dtype called `text` ("f32", "bf16", ...). Throws ValueError that lists the names.
DType parse_dtype(std::string_view text);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<bool> {
  static constexpr DType value = kBool;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = kU8;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = kI8;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = kI16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = kI64;
};
template <>
struct DTypeOf<long long> {
  static constexpr DType value = kI64;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = kF16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = kBF16;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = kF64;
};

/// The DType that stores T.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

template <class T>
struct Type {
  using type = T;
};

/// Calls f(Type<T>{}) with the C++ type of a dtype: visit(x.dtype(), [&]<class T>(Type<T>) { ... }).
template <class F>
decltype(auto) visit(DType t, F&& f) {
  switch (t) {
    case kBool:
      return f(Type<bool>{});
    case kU8:
      return f(Type<uint8_t>{});
    case kI8:
      return f(Type<int8_t>{});
    case kI16:
      return f(Type<int16_t>{});
    case kI32:
      return f(Type<int32_t>{});
    case kI64:
      return f(Type<int64_t>{});
    case kF16:
      return f(Type<Float16>{});
    case kBF16:
      return f(Type<BFloat16>{});
    case kF32:
      return f(Type<float>{});
    case kF64:
      break;
  }
  return f(Type<double>{});
}

/// visit over the floating types only. Throws DTypeError for the others.
template <class F>
decltype(auto) visit_floating(DType t, F&& f) {
  switch (t) {
    case kF16:
      return f(Type<Float16>{});
    case kBF16:
      return f(Type<BFloat16>{});
    case kF32:
      return f(Type<float>{});
    case kF64:
      return f(Type<double>{});
    default:
      raise<DTypeError>("dtype is not floating; got {}; expected f16, bf16, f32 or f64", name(t));
  }
}

/// A floating number as a whole one, toward zero; what 64 bits cannot hold becomes the nearest that they can, and NaN
/// 0.
constexpr int64_t to_whole(double x) {
  if (x != x) return 0;
  if (x >= 0x1p63) return INT64_MAX;
  return x < -0x1p63 ? INT64_MIN : static_cast<int64_t>(x);
}

/// The type in which a kernel computes: 16-bit floats in f32.
template <class T>
using Accumulate = std::conditional_t<std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>, float, T>;

/// The smallest type both convert to, by PyTorch's lattice: bool < u8/i8 < i16 < i32 < i64 < floats; u8 with i8 is i16,
/// f16 with bf16 is f32.
DType promote(DType a, DType b);

/// True when PyTorch allows an in-place result of `from` to be stored in `to` (never float to integral, nor integral to
/// bool).
constexpr bool can_store(DType from, DType to) { return detail::facts(from).category <= detail::facts(to).category; }

}  // namespace lorry

template <>
struct fmt::formatter<lorry::DType> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(lorry::DType t, Context& context) const {
    return fmt::format_to(context.out(), "{}", lorry::name(t));
  }
};
