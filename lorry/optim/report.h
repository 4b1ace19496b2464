#pragma once

// What an optimizer's choices cost in memory: Optimizer::memory_report.

#include <cstdint>
#include <string>
#include <vector>

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
    int64_t intermediates = 0;  ///< bytes asked for at most at a time, beside all above: the peak of the step on meta
    /// of kernels. Each is one launch, for long lists several, for pinned states one a chunk and one or two beside
    int64_t calls = 0;
  };

  int64_t parameters = 0, gradients = 0;
  int64_t copies = 0;  ///< contiguous ones, of parameters that are not dense and gradients of other layouts
  Placed states, masters;
  /// on the device, through which fused steps bring pinned states (optim/execution/streamed.h), once a step has been
  /// made
  int64_t chunks = 0;
  int64_t budget = 0;  ///< memory_budget
  /// of loop, foreach and fused; then of compiled, where the rules can be
  std::vector<Step> steps = {};

  /// A table of lines.
  std::string text() const;
};

}  // namespace lorry::optim
