#pragma once

// Threaded code for chains of f32 operators. Each step is a function that works on eight vector registers and passes
// them to the next step in a tail call, which compilers turn into a jump. So values stay in registers from step to
// step, and nothing is compiled at run time. (Bell, "Threaded code", CACM 16(6), 1973.)

#include <cstdint>

#include "lorry/formula/pointwise.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"

namespace lorry::kernels::cpu {

/// The number of vectors that functions receive in registers.
inline constexpr int64_t kThreadedVectors = 8;

/// A step, in the form that the functions of the table read.
struct ThreadedStep {
  void (*function)() = nullptr;  ///< a function of the table; its real type depends on the instruction set
  /// The operands that are not in the vector registers: for element i they are at in[k] + (i & mask). The mask is -1
  /// for a contiguous run, 0 for a fixed place.
  float* in[kMaxArity - 1] = {};
  int64_t mask[kMaxArity - 1] = {};
};

struct ThreadedFunctions {
  /// Row functions by operator and by the number of the operand in the vector registers; null if the operator does not
  /// compute f32 from f32.
  void (*rows[kPointwiseCount][kMaxArity])() = {};
  void (*load)() = nullptr;   ///< loads in[0] into the vector registers
  void (*store)() = nullptr;  ///< stores the vector registers to in[0]
  /// The same, bypassing the caches, for memory that is read much later: the old contents need not be loaded. `flush`
  /// orders these stores before what follows it on the thread.
  void (*store_past_cache)() = nullptr;
  void (*flush)() = nullptr;
  void (*end)() = nullptr;  ///< the last step
  /// Runs the steps for elements begin to end, `width` at a time; end - begin is a multiple of `width`.
  void (*run)(const ThreadedStep* steps, int64_t begin, int64_t end) = nullptr;
  int64_t width = 0;
};

/// The functions for this process's instruction set.
const ThreadedFunctions& threaded_functions();

}  // namespace lorry::kernels::cpu
