#include "lorry/optim/execution/foreach.h"

#include "lorry/formula/quantize.h"

namespace lorry::optim {
namespace {

int64_t room_for_all(const std::vector<SteppedParameter>& parameters) {
  int64_t all = 0;
  for (const SteppedParameter& x : parameters) all += room_for(x.entry->count);
  return all;
}

}  // namespace

ForeachStep::ForeachStep(const EagerWork& work, const std::vector<SteppedParameter>& parameters, int64_t budget)
    : EagerStep(work, parameters, budget, room_for_all(parameters), parameters.size()),
      is_whole_(room_for_all(parameters) <= capacity()) {}

/// Makes parts of as many elements as fit into the buffers. Returns false if all have been stepped.
bool ForeachStep::next_parts() {
  constexpr int64_t kUnit = formula::kQuantBlock;  // parts of parameters begin at multiples
  parts().clear();
  int64_t room = capacity();
  while (next_parameter_ < parameters().size()) {
    const SteppedParameter& parameter = parameters()[next_parameter_];
    const int64_t left = parameter.entry->count - next_element_;
    const bool fits = room_for(left) <= room;
    if (!parts().empty() && !fits && room < kUnit) break;
    const int64_t count = fits ? left : room / kUnit * kUnit;
    parts().push_back({&parameter, next_element_, count, capacity() - room});
    room -= room_for(count);
    next_element_ += count;
    if (!fits) break;
    ++next_parameter_, next_element_ = 0;
  }
  return !parts().empty();
}

void ForeachStep::prepare_lists(bool buffers_moved) {
  if (!is_whole_) return;
  if (!parts().empty()) return patch_lists(buffers_moved);
  next_parts();
  fill_lists();
}

void ForeachStep::run_elements() {
  if (is_whole_) return run_parts();
  next_parameter_ = 0, next_element_ = 0;
  while (next_parts()) {
    fill_lists();
    run_parts();
  }
}

}  // namespace lorry::optim
