#pragma once

// Optimizer rules over one run of elements, in the two types in which the CPU computes; compiled once for each instruction set.

#include <cstdint>

#include "lorry/formula/adamw.h"
#include "lorry/formula/sgd.h"

namespace lorry::kernels::cpu {

/// Steps n elements of a parameter. All addresses are of the same element type, float or double.
template <class Hyper>
using StepRun = void (*)(void* param, const void* grad, void* const* states, int64_t n, const Hyper& hyper);

struct OptimRuns {
  StepRun<formula::AdamWHyper<double>> adamw[2], adamw_amsgrad[2];  ///< [0] float, [1] double
  StepRun<formula::SgdHyper<double>> sgd[2], sgd_momentum[2];
  /// The sum of |x|, the sum of x^2 and the largest |x| (NaN when one is), in f64. Element i is added to sum i % 16, and the 16
  /// sums form a fixed tree, so that every instruction set gives the same bits.
  double (*sum_abs[2])(const void* x, int64_t n);
  double (*sum_square[2])(const void* x, int64_t n);
  double (*max_abs[2])(const void* x, int64_t n);
  /// x * factor, the factor rounded to the element type.
  void (*scale[2])(void* x, int64_t n, double factor);
};

/// The functions for the instruction set of this process.
const OptimRuns& optim_runs();

}  // namespace lorry::kernels::cpu
