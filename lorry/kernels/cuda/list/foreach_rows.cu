// Compiled once for each share of the rows: LORRY_SHARE.

#include "lorry/kernels/cuda/list/foreach_kernels.h"

namespace lorry::kernels::cuda {
namespace {

/// Formulas of reals are computed in floating types only, formulas of bits in integers only.
template <bool kMine, class Formula, int kArity, Result kResult, Domain kDomain>
void put(ForeachRow& row) {
  if constexpr (kMine) {
    if constexpr (kDomain != Domain::whole && kDomain != Domain::integer) {
      row.f32 = foreach_kernels_of<Formula, kArity, float>();
      row.f64 = foreach_kernels_of<Formula, kArity, double>();
    }
    if constexpr (kResult != Result::real && kDomain != Domain::floating)
      row.i64 = foreach_kernels_of<Formula, kArity, int64_t>();
  }
}

}  // namespace

template <>
void fill_foreach_rows<LORRY_SHARE>(ForeachRow* table) {
  static_assert(LORRY_SHARE < kForeachShares);
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain)                                           \
  put<static_cast<int>(Pointwise::name) % kForeachShares == LORRY_SHARE, formula::Formula, arity, Result::result, \
      Domain::domain>(table[static_cast<int>(Pointwise::name)]);
#include "lorry/formula/pointwise.def"
}

}  // namespace lorry::kernels::cuda
