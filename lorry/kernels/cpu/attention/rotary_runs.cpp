// Compiled once for each instruction set: LORRY_SIMD.

#include "lorry/kernels/cpu/attention/rotary_runs.h"

#include <cstring>

#include "lorry/formula/rotary.h"
#include "lorry/kernels/cpu/common/vec.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

template <class C>
LORRY_INLINE void turn(C* to_a, C* to_b, const C* a, const C* b, const C* cos, const C* sin, Vec<C> sign) {
  Vec<C> first = Vec<C>::load(a), second = Vec<C>::load(b);
  formula::Rotary()(first, second, Vec<C>::load(cos), Vec<C>::load(sin) * sign);
  first.store(to_a);
  second.store(to_b);
}

template <class C>
void rotary(const RotaryRun<C>& run) {
  constexpr int64_t kLanes = Vec<C>::kLanes;
  const int64_t half = run.half, whole = half - half % kLanes;
  const size_t rest_bytes = static_cast<size_t>(half - whole) * sizeof(C);
  const Vec<C> sign(run.inverse ? -1.0 : 1.0);
  // The last coordinates of a half, which do not fill a register, are padded with zeros.
  alignas(64) C a[kLanes] = {}, b[kLanes] = {}, cos[kLanes] = {}, sin[kLanes] = {};
  std::memcpy(cos, run.cos + whole, rest_bytes);
  std::memcpy(sin, run.sin + whole, rest_bytes);
  for (int64_t h = 0; h < run.heads; ++h) {
    const C* x = run.x + h * run.step;
    C* out = run.out + h * 2 * half;
    for (int64_t i = 0; i < whole; i += kLanes)
      turn(out + i, out + half + i, x + i, x + half + i, run.cos + i, run.sin + i, sign);
    if (rest_bytes == 0) continue;
    std::memcpy(a, x + whole, rest_bytes);
    std::memcpy(b, x + half + whole, rest_bytes);
    turn(a, b, a, b, cos, sin, sign);
    std::memcpy(out + whole, a, rest_bytes);
    std::memcpy(out + half + whole, b, rest_bytes);
  }
}

}  // namespace

void fill_rotary_runs(RotaryRuns& runs) { runs = {.f32 = rotary<float>, .f64 = rotary<double>}; }

}  // namespace lorry::kernels::cpu::LORRY_SIMD
