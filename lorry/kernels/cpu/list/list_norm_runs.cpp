// Compiled once for each instruction set: LORRY_SIMD.

#include "lorry/kernels/cpu/list/list_norm_runs.h"

#include <cstring>

#include "lorry/formula/clip.h"
#include "lorry/kernels/cpu/common/vec.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

LORRY_INLINE Vec<double> widened(const double* x) { return Vec<double>::load(x); }
LORRY_INLINE Vec<double> widened(const float* x) {
  const hn::ScalableTag<double> d;
  return Vec<double>(hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, decltype(d)>(), x)));
}

template <class Sum, class T>
double sum_of(const void* from, int64_t n) {
  constexpr int64_t kSums = 128, kLanes = Vec<double>::kLanes, kRegisters = kSums / kLanes;
  const T* x = static_cast<const T*>(from);
  Vec<double> sums[kRegisters];
  for (auto& sum : sums) sum = Vec<double>(0.0);
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t r = 0; r < kRegisters; ++r) sums[r] = Sum::join(sums[r], Sum::term(widened(x + i + r * kLanes)));
  if (i < n) {  // lanes beyond the end of the row add nothing
    alignas(64) T rest[kSums] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(T));
    for (int64_t r = 0; r < kRegisters; ++r) sums[r] = Sum::join(sums[r], Sum::term(widened(rest + r * kLanes)));
  }
  alignas(64) double joined[kSums];
  for (int64_t r = 0; r < kRegisters; ++r) sums[r].store(joined + r * kLanes);
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) joined[k] = Sum::join(joined[k], joined[k + half]);
  return joined[0];
}

template <class T>
void scale(void* data, int64_t n, double factor) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  T* x = static_cast<T*>(data);
  const T by = formula::multiplier(static_cast<T>(factor));
  const Vec<T> all(by);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) (Vec<T>::load(x + i) * all).store(x + i);
  for (; i < n; ++i) x[i] *= by;
}

}  // namespace

void fill_list_norm_runs(ListNormRuns& runs) {
  runs = {.sum =
              {
#define LORRY_LIST_FOLD(order, Fold) {sum_of<formula::Fold, float>, sum_of<formula::Fold, double>},
#include "lorry/formula/list.def"
              },
          .scale = {scale<float>, scale<double>}};
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
