#include "lorry/optim/step_plan.h"

#include <array>
#include <numeric>
#include <vector>

namespace lorry::optim {
foreach::ListPlan new_step_plan(Strategy strategy) {
  std::array<int8_t, kStepRoles> arrays;
  std::iota(arrays.begin(), arrays.end(), int8_t{0});
  return {kStepRoles, arrays, strategy};
}

uint32_t step_group(foreach::ListPlan& plan, Device device, DType param, DType grad, std::span<const DType> states,
                    DType master, uint64_t tag) {
  std::vector<DType> dtypes{param, grad};
  dtypes.insert(dtypes.end(), states.begin(), states.end());
  if (is_narrow(param)) dtypes.push_back(master);
  return plan.group(device, dtypes, tag);
}

void add_step_entry(foreach::ListPlan& plan, uint32_t group, const Tensor& param, const Tensor& grad,
                    std::span<const Tensor> arrays, foreach::ListPlan::Words words) {
  const Tensor* roles[kStepRoles] = {&param, &grad};
  for (size_t k = 0; k < arrays.size(); ++k) roles[kStates + k] = &arrays[k];
  plan.add(group, roles, words);
}

}  // namespace lorry::optim
