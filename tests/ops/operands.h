#pragma once

// Tensors for tests of operators: values from a seed, layouts of every kind, and reading back without the kernels under
// test.

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/ops.h"
#include "lorry/ops/pointwise_call.h"
#include "tests/support/host.h"

namespace lorry::test {

/// The offset of the i-th element in row-major order.
inline int64_t offset_of(const Layout& l, int64_t i) {
  int64_t offset = 0;
  for (int d = l.rank - 1; d >= 0; --d) {
    offset += i % l.sizes[d] * l.strides[d];
    i /= l.sizes[d];
  }
  return offset;
}

/// Element i as a double, read from memory.
inline double element(const Tensor& x, int64_t i) {
  return visit(x.dtype(), [&]<class T>(Type<T>) {
    const void* at = static_cast<const char*>(host_data(x)) + offset_of(x.layout(), i) * size_of(x.dtype());
    if constexpr (std::is_same_v<T, bool>)
      return *static_cast<const uint8_t*>(at) != 0 ? 1.0 : 0.0;
    else
      return static_cast<double>(*static_cast<const T*>(at));
  });
}
inline void set_element(const Tensor& x, int64_t i, double value) {
  visit(x.dtype(), [&]<class T>(Type<T>) {
    const T stored = static_cast<T>(static_cast<Accumulate<T>>(value));
    write_element(x, offset_of(x.layout(), i), &stored);
  });
}
inline std::vector<double> elements(const Tensor& x) {
  std::vector<double> values;
  for (int64_t i = 0; i < x.numel(); ++i) values.push_back(element(x, i));
  return values;
}

/// All 65,536 values of f16 or bf16: element i has the bits i.
inline Tensor every_16_bit_float(DType dtype) {
  std::vector<uint16_t> patterns(65536);
  std::iota(patterns.begin(), patterns.end(), uint16_t{0});
  const Tensor all = empty({65536}, {dtype});
  write_all(all, patterns.data());
  return all;
}

/// Small values that every row computes without overflow: 1 to 4 and, for floating types, fractions of both signs.
inline void randomise(const Tensor& x, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < x.numel(); ++i)
    set_element(x, i,
                x.dtype() == kBool       ? static_cast<double>(random() & 1)
                : is_floating(x.dtype()) ? static_cast<double>(random() % 33) / 8 - 2.0625
                                         : 1 + static_cast<double>(random() % 4));
}
inline Tensor random_tensor(const Dims& sizes, DType dtype, uint64_t seed) {
  const Tensor x = empty(sizes, {dtype});
  randomise(x, seed);
  return x;
}
inline Tensor random_strided(const Dims& sizes, const Dims& strides, DType dtype, uint64_t seed) {
  const Tensor x = empty_strided(sizes, strides, {dtype});
  randomise(x, seed);
  return x;
}
/// A row-major copy of x as if it had `sizes`, made element by element.
inline Tensor materialise(const Tensor& x, const Dims& sizes) {
  const Tensor copy = empty(sizes, {x.dtype()});
  const Layout from = expand(x.layout(), sizes);
  for (int64_t i = 0; i < copy.numel(); ++i)
    write_element(copy, i, static_cast<const char*>(host_data(x)) + offset_of(from, i) * size_of(x.dtype()));
  return copy;
}
/// Any view of x's memory.
inline Tensor view_of(const Tensor& x, const Dims& sizes, const Dims& strides, int64_t offset = 0) {
  return door::make_view(x, Layout::strided(sizes, strides), offset);
}

/// Equal to the bit, except that all NaNs are one.
inline testing::AssertionResult same_values(const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype() || got.sizes() != want.sizes())
    return testing::AssertionFailure() << describe(got) << " is not like " << describe(want);
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double a = element(got, i), b = element(want, i);
    if (!(a == b || (a != a && b != b)))
      return testing::AssertionFailure() << "element " << i << " is " << a << ", not " << b;
  }
  return testing::AssertionSuccess();
}

}  // namespace lorry::test
