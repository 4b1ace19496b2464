#pragma once

// Trading time for memory: a checkpointed function saves nothing for the backward pass and runs again when its
// gradients are computed. Chen et al. 2016, "Training deep nets with sublinear memory cost".

#include <functional>

#include "lorry/tensor/tensor.h"

namespace lorry::autograd {

/// Runs `function` without saving tensors for the backward pass. The first gradient runs it once more, with the random
/// numbers of the first run; the tensors that this saves live until the gradients are computed. The function must do
/// the same in both runs, take its random numbers from the default generator, and not write its captures in place.
/// Works with closures over parameters, grad(), nested checkpoints and create_graph.
Tensor checkpoint(const std::function<Tensor()>& function);

}  // namespace lorry::autograd
