#pragma once

// Oracles by coordinates: elements read and walked in plain loops, without any operator under test.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "lorry/ops/creation.h"
#include "tests/support/host.h"

namespace lorry::test {

using Coordinates = std::vector<int64_t>;

/// Calls body(coordinates) for every element of `sizes` in row-major order.
template <class Body>
void for_each_coordinate(const Dims& sizes, const Body& body) {
  Coordinates at(static_cast<size_t>(sizes.size()), 0);
  for (const int64_t size : sizes)
    if (size == 0) return;
  while (true) {
    body(static_cast<const Coordinates&>(at));
    int d = sizes.size() - 1;
    while (d >= 0 && ++at[static_cast<size_t>(d)] == sizes[d]) at[static_cast<size_t>(d--)] = 0;
    if (d < 0) return;
  }
}

/// The element at coordinates (negative ones count from the end), as a double.
inline double element(const Tensor& x, const Coordinates& at) {
  EXPECT_EQ(static_cast<int64_t>(at.size()), x.dim());
  int64_t offset = 0;
  for (size_t d = 0; d < at.size(); ++d) {
    const int64_t size = x.layout().sizes[d], i = at[d] < 0 ? at[d] + size : at[d];
    EXPECT_TRUE(i >= 0 && i < size) << "coordinate " << at[d] << " of " << describe(x);
    offset += i * x.layout().strides[d];
  }
  return visit(x.dtype(), [&]<class T>(Type<T>) {
    // The bytes of a bool tensor may be any; C++ reads no others than 0 and 1 as bool.
    if constexpr (std::is_same_v<T, bool>)
      return reinterpret_cast<const uint8_t*>(host<bool>(x))[offset] != 0 ? 1.0 : 0.0;
    return static_cast<double>(host<T>(x)[offset]);
  });
}

inline void set_element(const Tensor& x, const Coordinates& at, double value) {
  int64_t offset = 0;
  for (size_t d = 0; d < at.size(); ++d) offset += at[d] * x.layout().strides[d];
  visit(x.dtype(), [&]<class T>(Type<T>) {
    const T stored = static_cast<T>(static_cast<Accumulate<T>>(value));
    write_element(x, offset, &stored);
  });
}

/// Writes value(coordinates) to every element.
template <class F>
void fill_with(const Tensor& x, const F& value) {
  for_each_coordinate(x.sizes(), [&](const Coordinates& at) { set_element(x, at, value(at)); });
}

/// Expects every element of `got` to be expected(coordinates).
template <class F>
void expect_elements(const Tensor& got, const Dims& sizes, const F& expected) {
  ASSERT_EQ(to_string(got.sizes()), to_string(sizes));
  for_each_coordinate(sizes, [&](const Coordinates& at) {
    if (testing::Test::HasFailure()) return;
    std::string where;
    for (const int64_t i : at) where += std::to_string(i) + " ";
    EXPECT_EQ(element(got, at), expected(at)) << "at " << where << "of " << describe(got);
  });
}

/// Random shapes and layouts from a seed that failures print.
class Shapes {
 public:
  explicit Shapes(uint32_t seed) : random_(seed) {}

  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool coin(double p = 0.5) { return std::bernoulli_distribution(p)(random_); }
  /// Small sizes, now and then 0 or 1.
  Dims sizes(int rank) {
    Dims out;
    for (int d = 0; d < rank; ++d) out.push_back(coin(0.06) ? 0 : coin(0.2) ? 1 : number(2, rank > 5 ? 2 : 4));
    return out;
  }
  /// A tensor of distinct small whole numbers: contiguous, with permuted strides, gaps, an offset, or (when allowed)
  /// repeated elements.
  Tensor tensor(const Dims& sizes, DType dtype = kF64, bool may_overlap = true) {
    const int rank = sizes.size();
    std::vector<int> order;
    for (int d = rank - 1; d >= 0; --d) order.push_back(d);
    if (coin()) std::shuffle(order.begin(), order.end(), random_);
    Dims strides = Dims::filled(rank, 0);
    int64_t stride = coin() ? 1 : number(1, 3);
    for (const int d : order) {
      if (may_overlap && coin(0.08)) continue;  // stride 0
      strides[d] = stride;
      stride *= std::max<int64_t>(sizes[d], 1);
      if (coin(0.2)) stride += number(1, 2);
    }
    const Layout layout = Layout::strided(sizes, strides);
    const int64_t offset = coin() ? 0 : number(1, 5);
    const Tensor memory = empty({layout.extent() + offset}, {dtype});
    fill_with(memory, [&](const Coordinates& at) {
      return static_cast<double>(dtype == kBool ? at[0] % 3 == 0 : at[0] % 120);
    });
    return Tensor(make_counted<lorry::detail::TensorNode>(memory.node()->storage, layout, offset, dtype));
  }
  Tensor tensor(int rank) { return tensor(sizes(rank)); }
  std::mt19937& engine() { return random_; }

 private:
  std::mt19937 random_;
};

}  // namespace lorry::test
