#pragma once

// Rotation of the heads of one position, in the two types in which the CPU computes. Compiled once for each instruction
// set.

#include <cstdint>

namespace lorry::kernels::cpu {

template <class C>
struct RotaryRun {
  C* out;  ///< heads of 2 * half elements, contiguous; may be x itself if `step` is 2 * half
  const C* x;
  const C *cos, *sin;  ///< `half` of each
  int64_t heads, half;
  int64_t step;  ///< distance between heads of x
  bool inverse;  ///< rotates by the negative angles
};

struct RotaryRuns {
  void (*f32)(const RotaryRun<float>&);
  void (*f64)(const RotaryRun<double>&);
};

/// The functions for this process's instruction set.
const RotaryRuns& rotary_runs();

}  // namespace lorry::kernels::cpu
