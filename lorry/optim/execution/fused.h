#pragma once

#include "lorry/optim/family.h"

namespace lorry::optim {

/// The executions fused and compiled: one kernel call over the family's list. Intermediate results stay in registers.
/// Execution::fused runs the code that a compiler made of the rule, Execution::compiled a recording of the rule
/// (HyperBlocks::use_recorded).
class FusedStep final : public FamilyStep {
 public:
  void prepare(const Family& family, const StepContext& context, const kernels::StepCall& call,
               const Stream& stream) override;
  void run(const Family& family, const kernels::StepCall& call, const Stream& stream) override;
};

}  // namespace lorry::optim
