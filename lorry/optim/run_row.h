#pragma once

// Optimizer steps that are made again from what was announced of them.

#include <vector>

#include "lorry/ops/dispatch/run.h"

namespace lorry::optim {

/// foreach::run, for optimizer steps too: by the fused kernels, whose bits are those of every execution. Throws as it
/// does, and ValueError for a rule that is not Lorry's.
std::vector<Tensor> run(const door::CallView& call);

}  // namespace lorry::optim
