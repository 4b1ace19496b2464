#pragma once

// Trading time for memory: a checkpointed function keeps nothing for the backward pass and runs again when its
// gradients are wanted. Chen et al. 2016, "Training deep nets with sublinear memory cost".

#include <functional>

#include "lorry/tensor/tensor.h"

namespace lorry::autograd {

/// Runs `function` so that what its operators would keep for the backward pass is dropped; the first gradient asked for
/// runs it once more, with the random numbers of the first run, and keeps it until the gradients are done. The function
/// must do the same on both runs, take its random numbers from the default generator, and not write its captures in
/// place. Works with closures over parameters, grad(), nested checkpoints and create_graph.
Tensor checkpoint(const std::function<Tensor()>& function);

}  // namespace lorry::autograd
