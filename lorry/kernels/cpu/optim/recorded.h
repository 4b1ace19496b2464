#pragma once

#include "lorry/kernels/optim.h"

namespace lorry::kernels::cpu {

/// A step by a recorded update; see OptimKernels.
bool prepare_recorded(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call, const Stream& stream);
void step_recorded(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call, const Stream& stream);

}  // namespace lorry::kernels::cpu
