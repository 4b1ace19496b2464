#pragma once

// Small tensors with known values, for tests of rooms above the factories.

#include <vector>

#include "lorry/ops/creation.h"
#include "tests/support/host.h"

namespace lorry::test {

/// A row-major f64 tensor with these values.
inline Tensor values(const Dims& sizes, const std::vector<double>& data) { return from_data(data, sizes); }

inline Tensor leaf(const Dims& sizes, const std::vector<double>& data) { return values(sizes, data).requires_grad_(); }

/// The values in row-major order, whatever the strides. For f64.
inline std::vector<double> read(const Tensor& x) {
  std::vector<double> out;
  const Layout& l = x.layout();
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t rest = i, offset = 0;
    for (int d = l.rank - 1; d >= 0; --d) {
      offset += rest % l.sizes[d] * l.strides[d];
      rest /= l.sizes[d];
    }
    out.push_back(host<double>(x)[offset]);
  }
  return out;
}

}  // namespace lorry::test
