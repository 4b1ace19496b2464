#pragma once

// Lists of element types for tests, from the one in layout/dtypes.def.

#include <algorithm>
#include <array>
#include <type_traits>

#include "lorry/layout/dtype.h"

namespace lorry::test {

/// Whether it is of whole numbers without a sign; bool is not among them.
constexpr bool is_unsigned(DType t) {
  return visit(t, []<class T>(Type<T>) { return std::is_unsigned_v<T> && !std::is_same_v<T, bool>; });
}

constexpr bool is_number(DType t) { return t != kBool; }
constexpr bool is_short(DType t) { return is_integral(t) && size_of(t) < 8; }
constexpr bool is_whole(DType t) { return !is_floating(t); }

/// The dtypes for which kWanted holds.
template <bool (*kWanted)(DType)>
constexpr auto dtypes() {
  std::array<DType, static_cast<size_t>(std::ranges::count_if(kDTypes, kWanted))> some{};
  std::ranges::copy_if(kDTypes, some.begin(), kWanted);
  return some;
}

inline constexpr auto kFloatingDTypes = dtypes<is_floating>();
inline constexpr auto kNarrowDTypes = dtypes<is_narrow>();
inline constexpr auto kNumberDTypes = dtypes<is_number>();
inline constexpr auto kShortDTypes = dtypes<is_short>();
inline constexpr auto kWholeDTypes = dtypes<is_whole>();

}  // namespace lorry::test
