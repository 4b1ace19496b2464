#pragma once

// Steps of AdamW by what it keeps beside the parameters, as what, and where (optim/memory.h).

#include <memory>

#include "lorry/cli/model_cases.h"
#include "lorry/optim/optimizer.h"

namespace lorry::cli {

/// Parameters of a model with gradients, on the default device.
std::vector<Tensor> parameters(const ModelShapes& model, DType dtype = kF32);

/// The choices that the suite measures over the larger models, and the rate of the link to the device beside them.
void kept_cases(ModelCases& cases, const ModelShapes& model);

/// A momentum step that a user of the library wrote (optim/custom.h), compiled for the device.
std::unique_ptr<optim::Optimizer> make_own_momentum(const std::vector<Tensor>& params, double lr);

}  // namespace lorry::cli
