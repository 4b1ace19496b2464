#pragma once

// Numerical derivatives in f64, against which every rule is checked.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::test {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

struct GradcheckOptions {
  double step = 1e-6;      ///< of the central difference
  double relative = 1e-5;  ///< allowed difference, of the larger magnitude
  double absolute = 1e-7;
};

/// Compares the gradients of f with central differences, for every input that requires a gradient (f64 leaves). The
/// output is weighted with fixed pseudo-random numbers, so every element of it counts.
testing::AssertionResult gradcheck(const Function& f, const std::vector<Tensor>& inputs,
                                   const GradcheckOptions& options = {});

/// The same for the gradients' own gradients: f's gradients, recorded with create_graph, are differentiated once more.
testing::AssertionResult gradgradcheck(const Function& f, const std::vector<Tensor>& inputs,
                                       const GradcheckOptions& options = {});

}  // namespace lorry::test
