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
  V p = V::load(param + i), s[Rule::kStates > 0 ? Rule::kStates : 1];
  for (int k = 0; k < Rule::kStates; ++k) s[k] = V::load(states[k] + i);
  Rule()(p, V::load(grad + i), s, hyper);
  p.store(param + i);
  for (int k = 0; k < Rule::kStates; ++k) s[k].store(states[k] + i);
}

template <class Rule, class T>
void step(void* param, const void* grad, void* const* states, int64_t n, const void* block) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  constexpr int kStates = Rule::kStates;
  const auto hyper = formula::cast_hyper<Vec<T>>(*static_cast<const formula::HyperOf<Rule, T>*>(block));
  T* p = static_cast<T*>(param);
  const T* g = static_cast<const T*>(grad);
  T* s[kStates > 0 ? kStates : 1] = {};
  for (int k = 0; k < kStates; ++k) s[k] = static_cast<T*>(states[k]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step_register<Rule>(p, g, s, i, hyper);
  if (i == n) return;
  // What is left goes through registers filled up with zeros.
  const size_t bytes = static_cast<size_t>(n - i) * sizeof(T);
  alignas(64) T rest[2 + (kStates > 0 ? kStates : 1)][kLanes] = {};
  std::memcpy(rest[0], p + i, bytes);
  std::memcpy(rest[1], g + i, bytes);
  T* rest_states[kStates > 0 ? kStates : 1];
  for (int k = 0; k < kStates; ++k) std::memcpy(rest_states[k] = rest[2 + k], s[k] + i, bytes);
  step_register<Rule>(rest[0], rest[1], rest_states, 0, hyper);
  std::memcpy(p + i, rest[0], bytes);
  for (int k = 0; k < kStates; ++k) std::memcpy(s[k] + i, rest_states[k], bytes);
}

}  // namespace

void fill_optim_runs(OptimRuns& runs) {
  formula::Rules::each([&]<class Rule>() {
    constexpr int kAt = formula::Rules::index<Rule>();
    runs.rules[kAt][0] = step<Rule, float>;
    runs.rules[kAt][1] = step<Rule, double>;
  });
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
