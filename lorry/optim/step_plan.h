#pragma once

// How the lists of a step lie: a foreach::ListPlan with an entry a parameter. A group's arrays are the parameters,
// their gradients, the states of their rule, and the masters, which lists of 16-bit parameters always have: null
// addresses where there are none.

#include <span>

#include "lorry/foreach/list_plan.h"
#include "lorry/optim/memory.h"

namespace lorry::optim {

/// Array k of a parameter, a state or the master, has the role kStates + k.
enum StepRole : uint32_t { kParam, kGrad, kStates };
inline constexpr int kStepRoles = static_cast<int>(kStates) + kMaxStates + 1;
static_assert(kStepRoles <= foreach::ListPlan::kMaxRoles);

foreach::ListPlan new_step_plan(Strategy strategy);

/// The group of parameters of a dtype, with these dtypes of gradients, states and masters (kF32 where there are none).
uint32_t step_group(foreach::ListPlan& plan, Device device, DType param, DType grad, std::span<const DType> states,
                    DType master, uint64_t tag = 0);

/// Adds a parameter to a group. arrays: its states, then its master if there is one.
void add_step_entry(foreach::ListPlan& plan, uint32_t group, const Tensor& param, const Tensor& grad,
                    std::span<const Tensor> arrays, foreach::ListPlan::Words words);

}  // namespace lorry::optim
