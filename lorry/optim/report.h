#pragma once

// Optimizer::memory_report: the bytes that an optimizer holds, and what a step of each execution needs beside them. The
// figures come from a step on the device meta, where memory and kernel calls are only counted.

#include <cstdint>
#include <string>
#include <vector>

#include "lorry/optim/execution.h"

namespace lorry::optim {

struct MemoryReport {
  /// Bytes in each kind of memory. For parameters on a CPU all count as `device`.
  struct BytesByPlacement {
    int64_t device = 0, pinned = 0, managed = 0;
    int64_t total() const { return device + pinned + managed; }
  };
  /// A step of one execution.
  struct Step {
    Execution execution;
    int64_t intermediates = 0;  ///< the most bytes that the step has at a time, beside all below
    int64_t calls = 0;          ///< kernel calls. Each is one launch, or several for a list that one launch cannot take
  };

  int64_t parameters = 0, gradients = 0;
  int64_t copies = 0;  ///< of non-dense parameters, and of gradients in another layout or dtype than the step takes
  BytesByPlacement states, masters;
  int64_t chunks = 0;  ///< on the device: through them fused steps stream pinned states (optim/execution/streamed.h)
  int64_t budget = 0;  ///< Optimizer::memory_budget
  std::vector<Step> steps = {};  ///< loop, foreach, fused; then compiled, if the rules can be compiled

  /// A table of lines.
  std::string text() const;
};

}  // namespace lorry::optim
