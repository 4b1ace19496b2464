#include "lorry/layout/dtype.h"

#include <algorithm>
#include <array>
#include <limits>
#include <ostream>
#include <string>

namespace lorry {
namespace {

/// Whether T can represent every value of X. Floating types count as able to represent all integers.
template <class T, class X>
constexpr bool holds() {
  using To = std::numeric_limits<T>;
  using From = std::numeric_limits<X>;
  if (kFloatingType<T> != kFloatingType<X>) return kFloatingType<T>;
  return To::digits >= From::digits && To::max_exponent >= From::max_exponent && To::is_signed >= From::is_signed;
}

constexpr bool holds(DType t, DType x) {
  return visit(t, [&]<class T>(Type<T>) { return visit(x, []<class X>(Type<X>) { return holds<T, X>(); }); });
}

using Promoted = std::array<std::array<DType, kDTypeCount>, kDTypeCount>;
constexpr Promoted kPromoted = [] {
  Promoted table{};
  for (const DType a : kDTypes)
    for (const DType b : kDTypes)
      table[static_cast<size_t>(a)][static_cast<size_t>(b)] =
          *std::ranges::find_if(kDTypes, [&](DType t) { return holds(t, a) && holds(t, b); });
  return table;
}();

}  // namespace

std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }

void detail::refuse_not_floating(DType t) {
  raise<DTypeError>("dtype is not floating; got {}; expected one of {}", name(t), kFloatingNames);
}

DType parse_dtype(std::string_view text) {
  std::string names;
  for (const DType t : kDTypes) {
    if (name(t) == text) return t;
    names += names.empty() ? "" : ", ";
    names += name(t);
  }
  raise<ValueError>("dtype: unknown name; got '{}'; expected one of {}", text, names);
}

DType promote(DType a, DType b) {
  const auto larger = static_cast<int>(std::max(a, b));
  require<DTypeError>(larger < kDTypeCount, "no such dtype; got number {}; expected less than {}", larger, kDTypeCount);
  return kPromoted[static_cast<size_t>(a)][static_cast<size_t>(b)];
}

}  // namespace lorry
