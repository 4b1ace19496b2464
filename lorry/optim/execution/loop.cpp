#include "lorry/optim/execution/loop.h"

#include <algorithm>

namespace lorry::optim {
namespace {

int64_t room_for_largest(const std::vector<SteppedParameter>& parameters) {
  int64_t largest = 0;
  for (const SteppedParameter& x : parameters) largest = std::max(largest, room_for(x.entry->count));
  return largest;
}

}  // namespace

LoopStep::LoopStep(const EagerWork& work, const std::vector<SteppedParameter>& parameters, int64_t budget)
    : EagerStep(work, parameters, budget, room_for_largest(parameters), 1) {}

void LoopStep::run_elements() {
  for (const SteppedParameter& x : parameters())
    for (int64_t first = 0; first < x.entry->count; first += capacity()) {
      parts().assign(1, {&x, first, std::min(capacity(), x.entry->count - first), 0});
      fill_lists();
      run_parts();
    }
}

}  // namespace lorry::optim
