#include "lorry/parallel/joint_step.h"

#include <cmath>

#include "lorry/base/error.h"
#include "lorry/foreach/norm.h"

namespace lorry::parallel {

Tensor step_by_joint_norm(optim::Optimizer& optimizer, const optim::StepOptions& options,
                          const std::function<Tensor()>& sum_of_squares) {
  require<ValueError>(options.max_norm >= 0, "step: max_norm is out of range; got {}; expected a number >= 0",
                      options.max_norm);
  if (!std::isfinite(options.max_norm) && !options.skip_nonfinite && !options.scale.defined()) {
    optimizer.step();
    return {};
  }
  const foreach::FinishedNorm finished = foreach::finish_norm(
      sum_of_squares(),
      {.max_norm = options.max_norm, .scale = options.scale, .skip_nonfinite = options.skip_nonfinite});
  optimizer.step(finished.factor);
  return finished.norm;
}

}  // namespace lorry::parallel
