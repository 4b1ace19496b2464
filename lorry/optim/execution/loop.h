#pragma once

#include "lorry/optim/execution/eager.h"

namespace lorry::optim {

/// Execution::loop: one parameter after the other, a kernel for each operation of the rule. The buffers hold the
/// largest parameter; with a smaller budget, a parameter is stepped in parts.
class LoopStep final : public EagerStep {
 public:
  LoopStep(const EagerWork& work, const std::vector<SteppedParameter>& parameters, int64_t budget);

 private:
  void run_elements() override;
};

}  // namespace lorry::optim
