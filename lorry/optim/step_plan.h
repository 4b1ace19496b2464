#pragma once

// The plan of a step: a foreach::ListPlan with an entry for each parameter. The arrays of a list are the parameters,
// their gradients, the states of their rule, and the masters. Lists of 16-bit parameters always have the last array;
// its addresses are null if there are no masters.

#include <span>

#include "lorry/foreach/list_plan.h"
#include "lorry/optim/memory.h"

namespace lorry::optim {

/// Array k of a parameter, a state or the master, has the role kStates + k.
enum StepRole : uint32_t { kParam, kGrad, kStates };
inline constexpr int kStepRoles = static_cast<int>(kStates) + kMaxStates + 1;
static_assert(kStepRoles <= foreach::ListPlan::kMaxRoles);

foreach::ListPlan new_step_plan(Strategy strategy);

/// The group of parameters with these dtypes of parameters, gradients, states and masters (kF32 if there are none).
uint32_t step_group(foreach::ListPlan& plan, Device device, DType param, DType grad, std::span<const DType> states,
                    DType master, uint64_t tag = 0);

/// Adds a parameter to a group. arrays: its states, then its master if there is one.
void add_step_entry(foreach::ListPlan& plan, uint32_t group, const Tensor& param, const Tensor& grad,
                    std::span<const Tensor> arrays, foreach::ListPlan::Words words);

}  // namespace lorry::optim
