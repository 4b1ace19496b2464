#pragma once

// Independent values for every pointwise row: long double for reals, 64-bit integers for the rest, and how far a result
// may be off.

#include "lorry/ops/dispatch/table.h"

namespace lorry::test {

using Real = long double;

/// The arguments of a reference: those of the row, already rounded to the type in which it computes.
struct Arguments {
  const Real* values;
  bool single;  ///< that type is f32, not f64
  Real operator[](int i) const { return values[i]; }
  Real round(Real x) const {
    return single ? static_cast<Real>(static_cast<float>(x)) : static_cast<Real>(static_cast<double>(x));
  }
};

struct Reference {
  Real (*real)(const Arguments&) = nullptr;    ///< null where the row takes no floating operands
  int64_t (*whole)(const int64_t*) = nullptr;  ///< null where its result is real or it takes no whole numbers
  /// The error allowed, in units in the last place of the larger of the result and `magnitude`; 0.501 is one rounding.
  double ulps = 0.501;
  Real (*magnitude)(const Arguments&) = nullptr;
  /// Finite operands are kept within this, where intermediate results would overflow.
  double limit = 1e308;
  bool underflows = false;   ///< results below the smallest normal number may come out as 0
  bool either_zero = false;  ///< a zero may have either sign
  bool finite = false;       ///< no infinite operands: they would meet a factor that underflows
};

/// The reference of a row. Throws when it has none: a new row needs one.
const Reference& reference(Op op);

}  // namespace lorry::test
