// Compiled once for each share of the rows: LORRY_SHARE.

#include <bit>

#include "lorry/kernels/cuda/pointwise/pointwise_kernels.h"

namespace lorry::kernels::cuda {
namespace {

template <class Formula, int kArity, class T, bool kTruth, bool kChoice>
void put_contiguous(PointwiseRowKernels& row) {
  constexpr int kSlot = static_cast<int>(dtype_of<T>);
  row.contiguous[kSlot] = reinterpret_cast<const void*>(&contiguous<Formula, kArity, T, kTruth, kChoice>);
  row.contiguous_shift[kSlot] =
      std::countr_zero(static_cast<unsigned>(kPointwiseBlock * kContiguousRuns<Formula, T, kArity>));
}

/// Formulas of reals are computed in floating types only, formulas of bits in integers only.
template <bool kMine, class Formula, int kArity, Result kResult, Domain kDomain>
void put(PointwiseRowKernels& row) {
  if constexpr (kMine) {
    constexpr bool kTruth = kResult == Result::truth, kChoice = std::is_same_v<Formula, formula::Where>;
    if constexpr (kDomain != Domain::whole && kDomain != Domain::integer) {
      for (const DType dtype : kDTypes)
        visit(dtype, [&]<class T>(Type<T>) {
          if constexpr (kFloatingType<T> && sizeof(T) > 1) put_contiguous<Formula, kArity, T, kTruth, kChoice>(row);
        });
      row.strided_f32 = reinterpret_cast<const void*>(&strided<Formula, kArity, float>);
      row.strided_f64 = reinterpret_cast<const void*>(&strided<Formula, kArity, double>);
    }
    if constexpr (kResult != Result::real && kDomain != Domain::floating) {
      put_contiguous<Formula, kArity, int64_t, kTruth, kChoice>(row);
      put_contiguous<Formula, kArity, int32_t, kTruth, kChoice>(row);
      if constexpr (kTruth || kChoice || kDomain == Domain::whole)
        put_contiguous<Formula, kArity, bool, kTruth, kChoice>(row);
      row.strided_i64 = reinterpret_cast<const void*>(&strided<Formula, kArity, int64_t>);
    }
  }
}

}  // namespace

template <>
void fill_pointwise_rows<LORRY_SHARE>(PointwiseRowKernels* table) {
  static_assert(LORRY_SHARE < kPointwiseShares);
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain)                                             \
  put<static_cast<int>(Pointwise::name) % kPointwiseShares == LORRY_SHARE, formula::Formula, arity, Result::result, \
      Domain::domain>(table[static_cast<int>(Pointwise::name)]);
#include "lorry/formula/pointwise.def"
}

}  // namespace lorry::kernels::cuda
