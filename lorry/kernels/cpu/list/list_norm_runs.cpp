// Compiled once for each instruction set: LORRY_SIMD.

#include "lorry/kernels/cpu/list/list_norm_runs.h"

#include <cstring>

#include "lorry/formula/clip.h"
#include "lorry/kernels/cpu/common/vec.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

struct SumAbs {
  static LORRY_INLINE Vec<double> fold(Vec<double> total, Vec<double> x) { return total + abs(x); }
  static LORRY_INLINE double join(double a, double b) { return a + b; }
};
struct SumSquare {
  static LORRY_INLINE Vec<double> fold(Vec<double> total, Vec<double> x) { return total + x * x; }
  static LORRY_INLINE double join(double a, double b) { return a + b; }
};
struct MaxAbs {
  static LORRY_INLINE Vec<double> fold(Vec<double> total, Vec<double> x) {
    const Vec<double> size = abs(x);
    return select((size > total) | (size != size), size, total);
  }
  static LORRY_INLINE double join(double a, double b) { return b > a || b != b ? b : a; }
};

LORRY_INLINE Vec<double> widened(const double* x) { return Vec<double>::load(x); }
LORRY_INLINE Vec<double> widened(const float* x) {
  const hn::ScalableTag<double> d;
  return Vec<double>(hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, decltype(d)>(), x)));
}

template <class Reduction, class T>
double reduce(const void* from, int64_t n) {
  constexpr int64_t kSums = 128, kLanes = Vec<double>::kLanes, kRegisters = kSums / kLanes;
  const T* x = static_cast<const T*>(from);
  Vec<double> sums[kRegisters];
  for (auto& sum : sums) sum = Vec<double>(0.0);
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t r = 0; r < kRegisters; ++r) sums[r] = Reduction::fold(sums[r], widened(x + i + r * kLanes));
  if (i < n) {  // nothing is added where the row has ended
    alignas(64) T rest[kSums] = {};
    std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(T));
    for (int64_t r = 0; r < kRegisters; ++r) sums[r] = Reduction::fold(sums[r], widened(rest + r * kLanes));
  }
  alignas(64) double joined[kSums];
  for (int64_t r = 0; r < kRegisters; ++r) sums[r].store(joined + r * kLanes);
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) joined[k] = Reduction::join(joined[k], joined[k + half]);
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
  runs = {.sum_abs = {reduce<SumAbs, float>, reduce<SumAbs, double>},
          .sum_square = {reduce<SumSquare, float>, reduce<SumSquare, double>},
          .max_abs = {reduce<MaxAbs, float>, reduce<MaxAbs, double>},
          .scale = {scale<float>, scale<double>}};
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
