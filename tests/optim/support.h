#pragma once

// Parameters with gradients from a seed, and what they hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "lorry/ops/ops.h"
#include "lorry/optim/optimizers.h"
#include "tests/support/host.h"
#include "tests/support/message.h"

namespace lorry::optim::test {

inline Tensor tensor_of(const std::vector<double>& values, const Dims& sizes, DType dtype = kF32) {
  return from_data(values, sizes).to(dtype).clone();
}

/// Standard normal values times `scale`.
inline Tensor random_tensor(std::mt19937_64& random, const Dims& sizes, DType dtype, double scale = 1) {
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(checked_numel(sizes)));
  for (double& v : values) v = normal(random) * scale;
  return tensor_of(values, sizes, dtype);
}

inline Tensor parameter(const Tensor& x) { return x.requires_grad_(); }

inline Tensor parameter(const std::vector<double>& values, DType dtype = kF32) {
  return parameter(tensor_of(values, {static_cast<int64_t>(values.size())}, dtype));
}

inline std::vector<double> values(const Tensor& x) { return x.detach().to(kF64).to_vector<double>(); }

/// All elements in row-major order, as stored.
inline std::string bits(const Tensor& x) { return lorry::test::bytes_of(x.detach().contiguous()); }

using lorry::test::message;

}  // namespace lorry::optim::test
