// Compiled once for each instruction set: LORRY_SIMD.

#include "lorry/kernels/cpu/optim/optim_runs.h"

#include <cstring>

#include "lorry/formula/clip.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/common/vec.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

// ---- steps ----------------------------------------------------------------------------------------------------------

/// Elements of a cache line.
template <class T>
inline constexpr int64_t kLine = 64 / sizeof(T);

/// Steps a cache line of every array, from element `first` on, with the loads of an array together, and its stores:
/// some arrays remove each other's lines from the first-level caches of AMD's processors (memory/cpu_allocator.cpp).
/// Read by turns, register by register, such parameters and states of llama-60m took AdamW 50 to 58 ms on two threads
/// of an EPYC; so they take 33 to 46.
template <class Rule, class T, class H>
LORRY_INLINE void step_line(T* param, const T* grad, T* const* states, int64_t first, const H& hyper, Vec<T> factor) {
  using V = Vec<T>;
  constexpr int kStates = Rule::kStates, kVectors = kLine<T> / V::kLanes;
  static_assert(kLine<T> % V::kLanes == 0);
  V p[kVectors], g[kVectors], s[kVectors][kStates > 0 ? kStates : 1];
  for (int v = 0; v < kVectors; ++v) p[v] = V::load(param + first + v * V::kLanes);
  for (int v = 0; v < kVectors; ++v) g[v] = V::load(grad + first + v * V::kLanes);
  for (int k = 0; k < kStates; ++k)
    for (int v = 0; v < kVectors; ++v) s[v][k] = V::load(states[k] + first + v * V::kLanes);
  for (int v = 0; v < kVectors; ++v) Rule()(p[v], g[v] * factor, s[v], hyper);
  for (int v = 0; v < kVectors; ++v) p[v].store(param + first + v * V::kLanes);
  for (int k = 0; k < kStates; ++k)
    for (int v = 0; v < kVectors; ++v) s[v][k].store(states[k] + first + v * V::kLanes);
}

/// Prefetches kAheadBytes ahead. Intel's hardware prefetcher stops at the end of each page: over 16 M elements AdamW
/// takes 1.1 ns per element and thread on a Xeon with AVX-512, without prefetching 1.3. Within the caches there is no
/// difference, nor is there on an EPYC, where AdamW over llama-60m takes 41 ms with two threads.
LORRY_INLINE void prefetch(const void* from) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + kAheadBytes));
}

template <class Rule, class T>
void step(T* p, const T* g, void* const* states, int64_t n, const formula::HyperOf<Rule, T>& block,
          double grad_factor) {
  constexpr int kStates = Rule::kStates;
  T* s[kStates > 0 ? kStates : 1] = {};  // in registers: stores through `p` might otherwise change them
  for (int k = 0; k < kStates; ++k) s[k] = static_cast<T*>(states[k]);
  const auto hyper = formula::cast_hyper<Vec<T>>(block);
  const Vec<T> factor(formula::multiplier(static_cast<T>(grad_factor)));
  int64_t i = 0;
  for (; i + kLine<T> <= n; i += kLine<T>) {
    prefetch(p + i);
    prefetch(g + i);
    for (int k = 0; k < kStates; ++k) prefetch(s[k] + i);
    step_line<Rule>(p, g, s, i, hyper, factor);
  }
  if (i == n) return;
  // The last elements are stepped in a line that is padded with zeros.
  const size_t bytes = static_cast<size_t>(n - i) * sizeof(T);
  alignas(64) T rest[2 + (kStates > 0 ? kStates : 1)][kLine<T>] = {};
  std::memcpy(rest[0], p + i, bytes);
  std::memcpy(rest[1], g + i, bytes);
  T* rest_states[kStates > 0 ? kStates : 1];
  for (int k = 0; k < kStates; ++k) std::memcpy(rest_states[k] = rest[2 + k], s[k] + i, bytes);
  step_line<Rule>(rest[0], rest[1], rest_states, 0, hyper, factor);
  std::memcpy(p + i, rest[0], bytes);
  for (int k = 0; k < kStates; ++k) std::memcpy(s[k] + i, rest_states[k], bytes);
}

}  // namespace

void fill_optim_runs(OptimRuns& runs) {
  formula::Rules::each([&]<class Rule>() { runs.of<Rule>() = {step<Rule, float>, step<Rule, double>}; });
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
