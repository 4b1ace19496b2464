#pragma once

// What an optimizer's choices cost in memory: Optimizer::memory_report.

#include <cstdint>
#include <string>

#include "lorry/optim/execution.h"

namespace lorry::optim {

struct MemoryReport {
  /// Bytes by where they lie. On a CPU all is on the device.
  struct Placed {
    int64_t device = 0, pinned = 0, managed = 0;
    int64_t total() const { return device + pinned + managed; }
  };
  /// A step of one execution.
  struct Step {
    Execution execution;
    /// Bytes that are taken at most at a time, beside all above. Not counted: up to 25 MB a family that a fused step with pinned states keeps on the
    /// device (optim/streamed.h), and its launches a chunk.
    int64_t intermediates;
    int64_t calls;          ///< of kernels. Each is one launch, or for long lists several
  };

  int64_t parameters = 0, gradients = 0;
  int64_t copies = 0;  ///< aligned ones, of parameters with gaps and gradients of other layouts
  Placed states, masters;
  int64_t budget = 0;  ///< memory_budget
  Step steps[3] = {{Execution::loop, 0, 0}, {Execution::foreach, 0, 0}, {Execution::fused, 0, 0}};

  /// A table of lines.
  std::string text() const;
};

}  // namespace lorry::optim
