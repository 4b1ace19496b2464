#pragma once

// Properties of the element types. The types are listed once, in dtypes.def; `visit` (dtype_enum.h) turns a run-time
// DType into its C++ type.

#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <type_traits>

#include "lorry/base/error.h"
#include "lorry/layout/dtype_enum.h"

namespace lorry {

namespace detail {
enum class Category : uint8_t { boolean, whole, floating, none };
struct DTypeInfo {
  std::string_view name;
  uint8_t size;
  Category category;
};
inline constexpr DTypeInfo kDTypeInfos[kDTypeCount + 1] = {
#define LORRY_WHOLE_DTYPE(name, Name, text, type, dlpack, safetensors) \
  {text, sizeof(type), std::is_same_v<type, bool> ? Category::boolean : Category::whole},
#define LORRY_FLOATING_DTYPE(name, Name, text, type, dlpack, safetensors) {text, sizeof(type), Category::floating},
#include "lorry/layout/dtypes.def"
    {"no dtype", 0, Category::none},  // a number cast to DType
};
constexpr const DTypeInfo& info(DType t) {
  const auto number = static_cast<int>(t);
  return kDTypeInfos[number < kDTypeCount ? number : kDTypeCount];
}
inline constexpr char kListed[] = ""
#define LORRY_FLOATING_DTYPE(name, Name, text, type, dlpack, safetensors) ", " text
#include "lorry/layout/dtypes.def"
    ;
[[noreturn]] void refuse_not_floating(DType t);
}  // namespace detail

/// "f32", "i64", "bool", ...
constexpr std::string_view name(DType t) { return detail::info(t).name; }
std::ostream& operator<<(std::ostream& out, DType t);
/// Bytes of one element.
constexpr int64_t size_of(DType t) { return detail::info(t).size; }
/// Whether it is one of kFloatingNames.
constexpr bool is_floating(DType t) { return detail::info(t).category == detail::Category::floating; }
/// Whether it is an integer type other than bool.
constexpr bool is_integral(DType t) { return detail::info(t).category == detail::Category::whole; }
/// "f16, bf16, f32, f64", for messages.
inline constexpr std::string_view kFloatingNames = std::string_view(detail::kListed).substr(2);

/// The dtype called `text` ("f32", "bf16", ...). Throws ValueError that lists the names.
DType parse_dtype(std::string_view text);

/// `visit` for floating types. Throws DTypeError for the others.
template <class F>
decltype(auto) visit_floating(DType t, F&& f) {
  return visit(t, [&]<class T>(Type<T> type) -> decltype(f(Type<float>{})) {
    if constexpr (kFloatingType<T>)
      return f(type);
    else
      detail::refuse_not_floating(t);
  });
}

/// Converts to an integer, rounding toward zero. Values outside 64 bits give the nearest 64-bit value, NaN gives 0.
constexpr int64_t to_whole(double x) {
  if (x != x) return 0;
  if (x >= 0x1p63) return INT64_MAX;
  return x < -0x1p63 ? INT64_MIN : static_cast<int64_t>(x);
}

/// The common type of both: the first row of dtypes.def that can represent either. This is PyTorch's lattice:
/// bool < u8/i8 < i16 < i32 < i64 < floats; u8 with i8 is i16, f16 with bf16 is f32.
DType promote(DType a, DType b);

/// True when PyTorch allows an in-place result of `from` to be stored in `to` (never float to integral, nor integral to
/// bool).
constexpr bool can_store(DType from, DType to) { return detail::info(from).category <= detail::info(to).category; }

}  // namespace lorry

template <>
struct fmt::formatter<lorry::DType> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(lorry::DType t, Context& context) const {
    return fmt::format_to(context.out(), "{}", lorry::name(t));
  }
};
