#pragma once

// Sample tensors of every dtype and memory layout, and their elements read back without any operator: what the tests of
// reductions, norms, losses and sorting compare with loops of their own.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/ops/creation.h"
#include "tests/support/dtypes.h"
#include "tests/support/host.h"
#include "tests/support/message.h"

namespace lorry::test {
inline namespace samples {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

/// The offset of element i, in row-major order.
inline int64_t offset_of(const Layout& l, int64_t i) {
  int64_t offset = 0;
  for (int d = l.rank - 1; d >= 0; --d) {
    offset += i % l.sizes[d] * l.strides[d];
    i /= l.sizes[d];
  }
  return offset;
}

inline void set_element(const Tensor& x, int64_t i, double value) {
  visit(x.dtype(), [&]<class T>(Type<T>) {
    const T stored = static_cast<T>(static_cast<Accumulate<T>>(value));
    write_element(x, offset_of(x.layout(), i), &stored);
  });
}

inline double element(const Tensor& x, int64_t i) {
  return visit(x.dtype(), [&]<class T>(Type<T>) {
    return static_cast<double>(static_cast<Accumulate<T>>(host<T>(x)[offset_of(x.layout(), i)]));
  });
}

inline std::vector<double> elements(const Tensor& x) {
  std::vector<double> out(static_cast<size_t>(x.numel()));
  for (int64_t i = 0; i < x.numel(); ++i) out[static_cast<size_t>(i)] = element(x, i);
  return out;
}

/// The ways in which the same sizes may lie in memory.
enum class Memory { contiguous, transposed, sliced, expanded };
inline constexpr Memory kMemories[] = {Memory::contiguous, Memory::transposed, Memory::sliced, Memory::expanded};

inline Tensor allocate(const Dims& sizes, DType dtype, Memory memory) {
  if (memory == Memory::contiguous) return empty(sizes, {dtype});
  Dims strides = sizes;
  int64_t stride = memory == Memory::sliced ? 2 : 1;
  for (int k = 0; k < sizes.size(); ++k) {
    const int d = memory == Memory::transposed ? k : sizes.size() - 1 - k;
    const bool repeats = memory == Memory::expanded && k == sizes.size() / 2;
    strides[d] = repeats ? 0 : stride;
    if (!repeats) stride *= std::max<int64_t>(1, sizes[d]) + (memory == Memory::sliced ? 1 : 0);
  }
  return empty_strided(sizes, strides, {dtype});
}

/// Pseudo-random elements in [-limit, limit]: whole numbers for integral dtypes, 0 or 1 for bool, multiples of 1/64
/// else, so that ties occur. The seed is the caller's to print.
inline Tensor sample(const Dims& sizes, DType dtype, uint64_t seed, Memory memory = Memory::contiguous,
                     double limit = 3) {
  Tensor x = allocate(sizes, dtype, memory);
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    double v = (2 * u - 1) * limit;
    if (dtype == kBool)
      v = u < 0.6;
    else if (!is_floating(dtype))
      v = std::floor(is_unsigned(dtype) ? std::fabs(v) : v);
    else
      v = std::round(v * 64) / 64;
    set_element(x, i, v);
  }
  return x;
}

inline Tensor tensor_of(const Dims& sizes, DType dtype, const std::vector<double>& data) {
  Tensor x = empty(sizes, {dtype});
  for (size_t i = 0; i < data.size(); ++i) set_element(x, static_cast<int64_t>(i), data[i]);
  return x;
}

/// The error allowed to a result of `dtype`, relative to its magnitude (at least 1).
inline double tolerance(DType dtype) {
  return visit(dtype, []<class T>(Type<T>) {
    if constexpr (kNarrowType<T>) return std::ldexp(1.0, 1 - std::numeric_limits<T>::digits);
    return std::is_same_v<T, double> ? 1e-13 : std::is_same_v<T, float> ? 2e-6 : 0;
  });
}

inline testing::AssertionResult near(const Tensor& got, const std::vector<double>& want, double relative) {
  if (got.numel() != static_cast<int64_t>(want.size()))
    return testing::AssertionFailure() << got.numel() << " elements instead of " << want.size();
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double a = element(got, i), b = want[static_cast<size_t>(i)];
    if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
    if (!(std::fabs(a - b) <= relative * std::max(1.0, std::fabs(b))))
      return testing::AssertionFailure() << "element " << i << " is " << a << " instead of " << b;
  }
  return testing::AssertionSuccess();
}

inline testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return testing::AssertionFailure() << "shapes or dtypes differ";
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = element(a, i), y = element(b, i);
    if (std::bit_cast<uint64_t>(x) != std::bit_cast<uint64_t>(y))
      return testing::AssertionFailure() << "element " << i << ": " << x << " and " << y;
  }
  return testing::AssertionSuccess();
}

/// Runs f with 1, 2, 3 and 5 threads; every result must be the same to the bit.
inline void expect_same_for_all_thread_counts(const std::function<std::vector<Tensor>()>& f) {
  const int before = cpu::threads();
  cpu::set_threads(1);
  const std::vector<Tensor> expected = f();
  for (const int threads : {2, 3, 5}) {
    cpu::set_threads(threads);
    const std::vector<Tensor> got = f();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], expected[i])) << "result " << i << " with " << threads << " threads";
  }
  cpu::set_threads(before);
}

/// Expects an error of type E whose message contains `text`.
template <class E>
void expect_error(const std::function<void()>& f, const std::string& text) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one with: " << text;
  } catch (const E& e) {
    EXPECT_NE(as_on_the_cpu(e.what()).find(text), std::string::npos) << e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "an error of another type: " << e.what();
  }
}

}  // namespace samples
}  // namespace lorry::test
