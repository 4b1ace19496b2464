#pragma once

// Running optimizer steps again from their announcement.

#include <vector>

#include "lorry/ops/dispatch/run.h"

namespace lorry::optim {

/// foreach::run, for optimizer steps too: by the fused kernels, whose bits are those of every execution. A user's rule
/// without code for the device is stepped by its recording (Execution::compiled). Throws as foreach::run does, and
/// ValueError for a number that no rule has in this process and for a rule that can be stepped in neither way.
std::vector<Tensor> run(const door::CallView& call);

}  // namespace lorry::optim
