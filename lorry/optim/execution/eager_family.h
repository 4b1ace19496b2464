#pragma once

// The executions loop and foreach of a family: one EagerStep per hyper block.

#include <memory>
#include <vector>

#include "lorry/optim/execution/eager.h"
#include "lorry/optim/execution/program.h"
#include "lorry/optim/family.h"

namespace lorry::optim {

/// The inputs that select a family's program. in_parts: there is a memory budget.
StepShape shape_of(const FamilyKind& kind, DType grad_dtype, Execution execution, bool by_factor, bool in_parts);
/// The program that steps parameters of a group.
Program program_of(const FamilyKind& kind, const GroupState& group, const StepShape& shape);

class EagerFamily final : public FamilyStep {
 public:
  /// Builds the eager steps; reuses them if still valid. The programs depend on settings, on zero_grads, and on whether
  /// there is a factor.
  void prepare(const Family& family, const StepContext& context, const kernels::StepCall& call,
               const Stream& stream) override;
  std::optional<int64_t> buffer_bytes() const override;
  void take_buffers(const StepBuffers& buffers) override;
  void run(const Family& family, const kernels::StepCall& call, const Stream& stream) override;
  void settings_changed() override { settings_changed_ = true; }

 private:
  struct BlockStep {
    std::unique_ptr<EagerStep> step;
    int group;  ///< of the hyper block
  };
  std::vector<BlockStep> steps_;
  bool is_made_ = false, by_factor_ = false, zero_grads_ = false;
  bool settings_changed_ = false;  ///< since the steps were made; a group may need another program
};

}  // namespace lorry::optim
