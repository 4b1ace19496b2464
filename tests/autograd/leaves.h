#pragma once

#include "tests/ops/operator_samples.h"

namespace lorry::test {

/// A sample's inputs in f64; those that are differentiable require a gradient.
inline Tensors leaves(const Sample& sample, Memory memory = Memory::contiguous) {
  Tensors inputs = make_inputs(sample, kF64, memory);
  for (size_t k = 0; k < inputs.size(); ++k)
    if (sample.inputs[k].differentiable) inputs[k].requires_grad_();
  return inputs;
}

}  // namespace lorry::test
