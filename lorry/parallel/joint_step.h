#pragma once

// A step of an optimizer whose gradients are a part of those that are clipped together.

#include <functional>

#include "lorry/optim/optimizer.h"

namespace lorry::parallel {

/// Steps by the norm of all gradients, if an option needs it: sum_of_squares() is theirs, a 0-d f64 on the device of
/// the parameters. Leaves options.zero_grad to the caller. Returns the norm as Optimizer::step does. Throws ValueError
/// for a negative max_norm, and what Optimizer::step throws.
Tensor step_by_joint_norm(optim::Optimizer& optimizer, const optim::StepOptions& options,
                          const std::function<Tensor()>& sum_of_squares);

}  // namespace lorry::parallel
