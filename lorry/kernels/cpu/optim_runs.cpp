// Compiled once for each instruction set: LORRY_SIMD.

#include "lorry/kernels/cpu/optim_runs.h"

#include <cstring>

#include "lorry/kernels/cpu/vec.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

// ---- steps -----------------------------------------------------------------------------------------------------------

/// One register of every array, from `i` on.
template <class Rule, class T, class H>
LORRY_INLINE void step_register(T* param, const T* grad, T* const* states, int64_t i, const H& hyper) {
  using V = Vec<T>;
  V p = V::load(param + i), s[3];
  for (int k = 0; k < Rule::kStates; ++k) s[k] = V::load(states[k] + i);
  Rule()(p, V::load(grad + i), s, hyper);
  p.store(param + i);
  for (int k = 0; k < Rule::kStates; ++k) s[k].store(states[k] + i);
}

template <class Rule, class T, template <class> class Hyper>
void step(void* param, const void* grad, void* const* states, int64_t n, const Hyper<double>& block) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  const auto hyper = block.template as<Vec<T>>();
  T* p = static_cast<T*>(param);
  const T* g = static_cast<const T*>(grad);
  T* s[3] = {};
  for (int k = 0; k < Rule::kStates; ++k) s[k] = static_cast<T*>(states[k]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step_register<Rule>(p, g, s, i, hyper);
  if (i == n) return;
  // What is left goes through registers filled up with zeros.
  const size_t bytes = static_cast<size_t>(n - i) * sizeof(T);
  alignas(64) T rest[5][kLanes] = {};
  std::memcpy(rest[0], p + i, bytes);
  std::memcpy(rest[1], g + i, bytes);
  T* rest_states[3] = {rest[2], rest[3], rest[4]};
  for (int k = 0; k < Rule::kStates; ++k) std::memcpy(rest_states[k], s[k] + i, bytes);
  step_register<Rule>(rest[0], rest[1], rest_states, 0, hyper);
  std::memcpy(p + i, rest[0], bytes);
  for (int k = 0; k < Rule::kStates; ++k) std::memcpy(s[k] + i, rest_states[k], bytes);
}

// ---- norms -----------------------------------------------------------------------------------------------------------

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
  constexpr int64_t kSums = 16, kLanes = Vec<double>::kLanes, kRegisters = kSums / kLanes;
  const T* x = static_cast<const T*>(from);
  Vec<double> sums[kRegisters];
  for (auto& sum : sums) sum = Vec<double>(0.0);
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t r = 0; r < kRegisters; ++r) sums[r] = Reduction::fold(sums[r], widened(x + i + r * kLanes));
  alignas(64) T rest[kSums] = {};
  if (i < n) std::memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(T));
  for (int64_t r = 0; r < kRegisters; ++r) sums[r] = Reduction::fold(sums[r], widened(rest + r * kLanes));
  alignas(64) double lanes[kSums];
  for (int64_t r = 0; r < kRegisters; ++r) sums[r].store(lanes + r * kLanes);
  for (int64_t half = kSums / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) lanes[k] = Reduction::join(lanes[k], lanes[k + half]);
  return lanes[0];
}

template <class T>
void scale(void* data, int64_t n, double factor) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  T* x = static_cast<T*>(data);
  const Vec<T> f(factor);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) (Vec<T>::load(x + i) * f).store(x + i);
  for (; i < n; ++i) x[i] *= static_cast<T>(factor);
}

}  // namespace

void fill_optim_runs(OptimRuns& runs) {
  using namespace formula;
  runs = {.adamw = {step<AdamW<false>, float, AdamWHyper>, step<AdamW<false>, double, AdamWHyper>},
          .adamw_amsgrad = {step<AdamW<true>, float, AdamWHyper>, step<AdamW<true>, double, AdamWHyper>},
          .sgd = {step<Sgd<false>, float, SgdHyper>, step<Sgd<false>, double, SgdHyper>},
          .sgd_momentum = {step<Sgd<true>, float, SgdHyper>, step<Sgd<true>, double, SgdHyper>},
          .sum_abs = {reduce<SumAbs, float>, reduce<SumAbs, double>},
          .sum_square = {reduce<SumSquare, float>, reduce<SumSquare, double>},
          .max_abs = {reduce<MaxAbs, float>, reduce<MaxAbs, double>},
          .scale = {scale<float>, scale<double>}};
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
