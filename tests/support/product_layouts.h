#pragma once

// Random layouts that a matrix product takes.

#include <algorithm>
#include <random>
#include <vector>

#include "lorry/layout/layout.h"

namespace lorry::test {

struct Random {
  std::mt19937_64 engine;

  explicit Random(uint64_t seed) : engine(seed) {}
  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine); }
  bool one_in(int64_t n) { return number(1, n) == 1; }
};

/// A layout whose matrix has a unit stride, with batch dimensions in any order, gaps here and there, any strides where
/// the size is 1 and, if it `shares`, batch dimensions of stride 0. No two indices name one address otherwise.
inline Layout product_layout(Random& random, const Dims& sizes, bool shares) {
  const int rank = sizes.size();
  std::vector<int> order;  // innermost first
  for (int d = 0; d < rank - 2; ++d)
    order.insert(order.begin() + random.number(0, static_cast<int64_t>(order.size())), d);
  const bool by_columns = random.one_in(2);
  const int inner = by_columns ? rank - 2 : rank - 1, outer = by_columns ? rank - 1 : rank - 2;
  order.insert(order.begin() + random.number(0, static_cast<int64_t>(order.size())), outer);
  Layout layout = Layout::contiguous(sizes);
  layout.strides[inner] = 1;
  int64_t step = std::max<int64_t>(1, sizes[inner]);
  for (const int d : order) {
    if (random.one_in(4)) step += random.number(1, 3);
    const bool shared = d < rank - 2 && shares && random.one_in(3);
    layout.strides[d] = shared ? 0 : step;
    if (!shared) step *= std::max<int64_t>(1, sizes[d]);
  }
  for (int d = 0; d < rank; ++d)
    if (sizes[d] == 1 && random.one_in(2)) layout.strides[d] = random.number(1, 7);
  return layout;
}

/// A layout of an addend: as above, or with any stride in the matrix, such as a bias's 0.
inline Layout addend_layout(Random& random, const Dims& sizes) {
  Layout layout = product_layout(random, sizes, true);
  for (int d = sizes.size() - 2; d < sizes.size(); ++d)
    if (random.one_in(3)) layout.strides[d] = random.one_in(3) ? 2 : 0;
  return layout;
}

}  // namespace lorry::test
