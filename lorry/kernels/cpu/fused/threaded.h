#pragma once

// Threaded code for chains of f32: each step is a function that works on eight registers and calls the next one with
// them as its last act, which compilers make a jump. So a chain's values travel in registers from step to step, and
// nothing is compiled at run time. (Bell, "Threaded code", CACM 16(6), 1973.)

#include <cstdint>

#include "lorry/formula/pointwise.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"

namespace lorry::kernels::cpu {

/// As many vectors as functions take in registers.
inline constexpr int64_t kThreadedVectors = 8;

/// A step, as the functions of the table read it.
struct ThreadedStep {
  void (*function)() = nullptr;  ///< of the table; its true type depends on the instruction set
  /// Operands beside the one that travels: address (i & mask) floats after `in`, i being where the step's elements
  /// begin. The mask is -1 for a run of memory, 0 for what lies in one place.
  float* in[kMaxArity - 1] = {};
  int64_t mask[kMaxArity - 1] = {};
};

struct ThreadedFunctions {
  /// A row whose operand number `at` travels; null where the operator does not compute f32 from f32.
  void (*rows[kPointwiseCount][kMaxArity])() = {};
  void (*load)() = nullptr;   ///< the travelling value becomes in[0]
  void (*store)() = nullptr;  ///< in[0] becomes the travelling value
  /// The same past the caches, for memory that is read much later: nothing is read to be overwritten. Ordered before
  /// what follows `flush` on the thread.
  void (*store_past_cache)() = nullptr;
  void (*flush)() = nullptr;
  void (*end)() = nullptr;  ///< the last step
  /// Runs the steps for each `width` elements from begin to end, which is a multiple away.
  void (*run)(const ThreadedStep* steps, int64_t begin, int64_t end) = nullptr;
  int64_t width = 0;
};

/// For the instruction set of this process.
const ThreadedFunctions& threaded_functions();

}  // namespace lorry::kernels::cpu
