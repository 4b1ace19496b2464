#include "lorry/layout/dtype.h"

#include <algorithm>
#include <ostream>
#include <string>

namespace lorry {

std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }

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
  require<DTypeError>(larger < kDTypeCount, "no such dtype; got number {}; expected one of the {}, from bool to f64",
                      larger, kDTypeCount);
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  if (is_floating(b)) {
    if (!is_floating(a)) return b;
    return a == kF16 && b == kBF16 ? kF32 : b;
  }
  if (a == kU8 && b == kI8) return kI16;
  return b;
}

}  // namespace lorry
