#pragma once

// Heads of one position turned, in the two types in which the CPU computes; compiled once for each instruction set.

#include <cstdint>

namespace lorry::kernels::cpu {

template <class C>
struct RotaryRun {
  C* out;  ///< heads of 2 * half elements, one behind the other; may be x itself where `step` is 2 * half
  const C* x;
  const C *cos, *sin;  ///< `half` of each
  int64_t heads, half;
  int64_t step;  ///< from one head of x to the next
  bool inverse;  ///< turns by the opposite angles
};

struct RotaryRuns {
  void (*f32)(const RotaryRun<float>&);
  void (*f64)(const RotaryRun<double>&);
};

/// The functions for the instruction set of this process.
const RotaryRuns& rotary_runs();

}  // namespace lorry::kernels::cpu
