// The memory budget of the executions loop and foreach.

#include <algorithm>
#include <utility>
#include <vector>

#include "lorry/optim/execution/eager_family.h"
#include "lorry/optim/stepper.h"

namespace lorry::optim {

DType Stepper::grad_dtype_of(const FamilyKind& kind) const {
  std::optional<DType> common;
  for (const Slot& slot : slots_)
    if (const Tensor grad = slot.param.grad(); grad.defined() && kind_of(slot) == kind)
      common = common_grad_dtype(kind.dtype, common, grad.dtype());
  return common.value_or(kind.dtype);
}

void Stepper::set_memory_budget(int64_t bytes) {
  const Running running(where_);
  require<ValueError>(bytes >= 0, "memory_budget is out of range; got {}; expected bytes, or 0 for no bound", bytes);
  const int64_t before = std::exchange(budget_, bytes);
  try {
    require_budget();
  } catch (...) {
    budget_ = before;
    throw;
  }
  if (steps_eagerly())
    for (Family& family : families_) family.step.reset();
}

int64_t Stepper::needed_budget() const {
  int64_t needed = 0;
  std::vector<std::pair<FamilyKind, int>> seen;
  for (const Slot& slot : slots_) {
    const std::pair<FamilyKind, int> own{kind_of(slot), slot.group};
    if (std::ranges::find(seen, own) != seen.end()) continue;
    seen.push_back(own);
    const DType grad_dtype = grad_dtype_of(own.first);
    for (const bool by_factor : {false, true}) {  // every step finds room, whether it clips or not
      const StepShape shape = shape_of(own.first, grad_dtype, execution_, by_factor, budget_ > 0);
      const Program program = program_of(own.first, groups_[static_cast<size_t>(slot.group)], shape);
      needed = std::max(needed, least_budget(program.bytes_per_element()));
    }
  }
  return needed;
}

void Stepper::require_budget() const {
  const Running running(where_);
  if (budget_ == 0 || !steps_eagerly()) return;
  const int64_t needed = needed_budget();
  require<ValueError>(budget_ >= needed,
                      "memory_budget is too small for 256 elements at a time; got {} bytes; expected at least {}",
                      budget_, needed);
}

}  // namespace lorry::optim
