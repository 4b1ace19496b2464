#include "lorry/optim/execution/fused.h"

namespace lorry::optim {

void FusedStep::prepare(const Family& family, const StepContext&, const kernels::StepCall& call, const Stream& stream) {
  family.blocks->prepare(call, stream);
}

void FusedStep::run(const Family& family, const kernels::StepCall& call, const Stream& stream) {
  family.blocks->step(call, stream);
}

}  // namespace lorry::optim
