#include "lorry/optim/optimizer.h"

namespace lorry::optim {

void Optimizer::prepare_streamed(Family& family, const kernels::StepCall&) {
  raise<DeviceError>("{}: fused steps with states in pinned memory are not part of this build; got parameters on {}; take Execution::foreach or loop, or another placement", where_,
                     family.device);
}

void Optimizer::run_streamed(Family& family, const kernels::StepCall& call) { prepare_streamed(family, call); }

}  // namespace lorry::optim
