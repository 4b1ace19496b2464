#pragma once

#include "lorry/optim/execution/eager.h"

namespace lorry::optim {

/// Execution::foreach: a kernel for each operation of the rule, over all parameters. The buffers hold all their
/// elements; with a smaller budget, as many are stepped at a time as fit. If all fit, the lists are made once, and
/// later only addresses in them change.
class ForeachStep final : public EagerStep {
 public:
  ForeachStep(const EagerWork& work, const std::vector<SteppedParameter>& parameters, int64_t budget);

 private:
  void prepare_lists(bool buffers_moved) override;
  void run_elements() override;
  bool next_parts();

  bool is_whole_;  ///< all elements are stepped at a time
  // Where the next parts begin.
  size_t next_parameter_ = 0;
  int64_t next_element_ = 0;
};

}  // namespace lorry::optim
