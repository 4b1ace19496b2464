// Running sums and products.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"

namespace lorry::test {
namespace {

/// Whether the running totals of x's rows, in f64 and rounded to f32, are those of a loop to the bit.
template <class F>
::testing::AssertionResult are_running_totals(const Tensor& got, const Tensor& x, double start, F add) {
  for (int64_t row = 0; row < x.size(0); ++row) {
    double total = start;
    for (int64_t i = 0; i < x.size(1); ++i) {
      total = add(total, element(x, row * x.size(1) + i));
      const double expected = static_cast<float>(total), here = element(got, row * x.size(1) + i);
      if (here != expected && !(std::isnan(here) && std::isnan(expected)))
        return ::testing::AssertionFailure()
               << "row " << row << " at " << i << ": " << here << " instead of " << expected;
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(Scan, of_long_lines_is_that_of_a_loop_to_the_bit_whatever_comes_up_in_them) {
  manual_seed(5);
  for (const int64_t length : {127, 128, 600, 1500}) {
    const Tensor x = randn({17, length}, {.device = kCPU}).mul(3);
    set_element(x, 2 * length + 70, INFINITY);
    set_element(x, 3 * length + 100, NAN);
    set_element(x, 4 * length + 90, 1e30);
    set_element(x, 5 * length + 90, 1e-30);
    set_element(x, 6 * length + 5, 0);
    for (int64_t i = 0; i < length; ++i) set_element(x, 7 * length + i, 1e20);  // products that overflow
    EXPECT_TRUE(are_running_totals(x.cumsum(1), x, 0, std::plus<>())) << length;
    EXPECT_TRUE(are_running_totals(x.cumprod(1), x, 1, std::multiplies<>())) << length;
  }
}

/// How many running totals of the lines of x differ from those that add(total, line, position) gives.
template <class F>
int64_t wrong_totals(const Tensor& got, int64_t start, F add) {
  return visit(got.dtype(), [&]<class T>(Type<T>) {
    const T* const totals = host<T>(got);
    int64_t wrong = 0;
    for (int64_t i = 0; i < got.size(0); ++i)
      for (int64_t k = 0, total = start; k < got.size(1); ++k) {
        total = add(total, i, k);
        using C = Accumulate<T>;
        wrong += static_cast<C>(totals[i * got.size(1) + k]) != static_cast<C>(static_cast<T>(static_cast<C>(total)));
      }
    return wrong;
  });
}

TEST(Scan, of_lines_of_up_to_millions_is_that_of_a_loop) {
  for (const auto& [lines, length] :
       {std::pair<int64_t, int64_t>{1, 5'000'003}, {1, 1'000'003}, {3, 1'400'000}, {40, 70'001}, {2, 9'000}})
    for (const DType dtype : {kF32, kF64, kBF16, kI64, kI32}) {
      SCOPED_TRACE(testing::Message() << lines << " x " << length << " " << name(dtype));
      const Tensor i = arange(0, lines * length).mul(7919).reshape({lines, length});
      const Tensor terms = i.remainder(7).sub(3).to(dtype), signs = i.remainder(2).mul(2).sub(1).to(dtype);
      for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(wrong_totals(terms.cumsum(1), 0,
                               [&, n = length](int64_t total, int64_t line, int64_t k) {
                                 return total + (line * n + k) * 7919 % 7 - 3;
                               }),
                  0);
        EXPECT_EQ(wrong_totals(signs.cumprod(1), 1,
                               [&, n = length](int64_t total, int64_t line, int64_t k) {
                                 return total * ((line * n + k) * 7919 % 2 * 2 - 1);
                               }),
                  0);
      }
    }
}

TEST(Scan, of_a_line_of_many_millions_is_that_of_a_loop) {
  const int64_t length = 17'000'003;
  const Tensor terms = arange(0, length).mul(7919).remainder(7).sub(3).reshape({1, length});
  const auto add = [](int64_t total, int64_t, int64_t k) { return total + k * 7919 % 7 - 3; };
  EXPECT_EQ(wrong_totals(terms.cumsum(1), 0, add), 0);
}

TEST(Scan, of_long_lines_in_any_layout_is_that_of_their_copy) {
  manual_seed(6);
  for (const DType dtype : {kF32, kF64, kBF16, kI64}) {
    const Tensor values = randint(-9, 9, {2, 100'003}).to(dtype);
    const Tensor expected = values.cumsum(1);
    const Tensor every_second = stack({values, values.mul(5)}, 2).select(2, 0),
                 by_columns = values.t().contiguous().t(),
                 from_the_second = cat({values.narrow(1, 0, 1), values}, 1).narrow(1, 1, values.size(1));
    for (const Tensor& x : {every_second, from_the_second, by_columns}) {
      EXPECT_TRUE(equal(x.cumsum(1), expected)) << name(dtype);
      const Tensor out = zeros({2, 100'004}, {.dtype = dtype}).narrow(1, 1, 100'003);
      cumsum_out(out, x, 1);
      EXPECT_TRUE(equal(out, expected)) << name(dtype);
      EXPECT_TRUE(equal(x.clone().cumsum_(1), expected)) << name(dtype);
    }
  }
}

TEST(Scan, gives_the_same_bits_every_time) {
  manual_seed(7);
  const Tensor x = randn({2, 1'500'000}, {.dtype = kF64});
  const Tensor factors = x.mul(1e-3).add(1), sums = x.cumsum(1), products = factors.cumprod(1);
  for (int round = 0; round < 10; ++round) {
    EXPECT_TRUE(equal(x.cumsum(1), sums));
    EXPECT_TRUE(equal(factors.cumprod(1), products));
  }
}

TEST(Scan, of_many_long_lines_is_that_of_a_loop) {
  const int64_t lines = 100, length = 200'001;
  const Tensor x = arange(0, lines * length).remainder(5).sub(2).to(kF64).reshape({lines, length});
  const auto add = [](int64_t total, int64_t line, int64_t k) { return total + (line * length + k) % 5 - 2; };
  EXPECT_EQ(wrong_totals(x.cumsum(1), 0, add), 0);
}

TEST(Scan, by_several_threads_and_streams_at_once_is_that_of_each) {
  const Device device = default_device();
  const OwnedStream shared(device);
  std::atomic<int64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const OwnedStream own(device);
      const StreamScope scope(t < 2 ? shared : own);
      for (int64_t round = 0; round < 20; ++round) {
        const Tensor x = full({1, 50'000 + 10'000 * round}, 1 + t + round, {.dtype = kI64, .device = device});
        const auto add = [&](int64_t total, int64_t, int64_t) { return total + 1 + t + round; };
        wrong += wrong_totals(x.cumsum(1).to(kCPU), 0, add);  // mirrors of device memory are for one thread
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Scan, in_place_agrees_with_the_functions) {
  const Tensor x = sample({3, 4}, kF32, 1), a = x.clone(), b = x.clone();
  EXPECT_TRUE(a.cumsum_(1).is_same(a));
  EXPECT_TRUE(equal(a, cumsum(x, 1)));
  EXPECT_TRUE(equal(b.cumprod_(0), cumprod(x, 0)));
}

}  // namespace
}  // namespace lorry::test
