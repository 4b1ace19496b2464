#include "lorry/ops/dropout.h"

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

TEST(dropout, elements_are_zero_or_scaled_and_about_a_share_p_is_zero) {
  for (const DType dtype : kFloatingDTypes)
    for (const double p : {0.1, 0.5, 0.9}) {
      Generator generator(7);
      const Tensor x = sample({100, 200}, dtype, 1, Memory::transposed);
      for (int64_t i = 0; i < x.numel(); ++i) set_element(x, i, 1 + std::fabs(element(x, i)));
      const Tensor y = dropout(x, p, true, &generator);
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.sizes(), x.sizes());
      int64_t zeros = 0;
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double got = element(y, i), want = element(x, i) / (1 - p);
        zeros += got == 0;
        if (got != 0) {
          ASSERT_NEAR(got, want, tolerance(dtype) * want) << i;
        }
      }
      // Six standard deviations of a binomial count.
      const double n = static_cast<double>(x.numel());
      EXPECT_NEAR(static_cast<double>(zeros), p * n, 6 * std::sqrt(n * p * (1 - p)));
    }
}

TEST(dropout, a_seed_fixes_the_mask_and_each_call_draws_another) {
  Generator a(3), b(3);
  const Tensor x = sample({1000}, kF32, 2);
  const Tensor first = dropout(x, 0.5, true, &a), second = dropout(x, 0.5, true, &a);
  EXPECT_TRUE(same_bits(first, dropout(x, 0.5, true, &b)));
  EXPECT_TRUE(same_bits(second, dropout(x, 0.5, true, &b)));
  EXPECT_FALSE(same_bits(first, second));
  expect_same_for_all_thread_counts([&] {
    Generator generator(4);
    return std::vector<Tensor>{dropout(sample({300, 701}, kF32, 3), 0.3, true, &generator)};
  });
}

TEST(dropout, nothing_happens_outside_training_or_for_p_of_zero_and_all_goes_for_p_of_one) {
  const Tensor x = sample({50}, kF32, 4);
  EXPECT_TRUE(dropout(x, 0.5, false).is_same(x));
  EXPECT_TRUE(dropout(x, 0).is_same(x));
  EXPECT_EQ(elements(dropout(x, 1)), std::vector<double>(50, 0.0));
  EXPECT_EQ(dropout(empty({0, 3})).sizes(), (Dims{0, 3}));
}

TEST(dropout, the_gradient_passes_where_the_element_did) {
  const Tensor x = sample({400}, kF64, 5).requires_grad_();
  for (int64_t i = 0; i < 400; ++i) set_element(x, i, 2);
  const Tensor y = dropout(x, 0.25);
  const Tensor g = autograd::grad({y.square().sum()}, {x}, {}, {.create_graph = true})[0];
  for (int64_t i = 0; i < 400; ++i)
    ASSERT_DOUBLE_EQ(element(g, i), 2 * element(y, i) * (element(y, i) == 0 ? 0 : 4.0 / 3));
  const Tensor second = autograd::grad({g.sum()}, {x})[0];
  for (int64_t i = 0; i < 400; ++i) ASSERT_DOUBLE_EQ(element(second, i), element(y, i) == 0 ? 0 : 32.0 / 9);
}

/// The one pass of the gradient has the bits of two: signs of zeros, and what is not finite.
TEST(dropout, the_gradient_has_the_bits_of_the_products) {
  for (const DType t : {kF16, kBF16, kF32, kF64}) {
    const Tensor x = ones({5, 101}, {t}).requires_grad_(), y = dropout(x, 0.3);
    const Tensor grad = sample({5, 101}, t, 9).sub(3);
    for (int64_t i = 0; i < 500; i += 50) {
      set_element(grad, i, kNaN);
      set_element(grad, i + 7, -INFINITY);
      set_element(grad, i + 11, -0.0);
      for (int64_t k = 20; k < 40; ++k) set_element(grad, i + k, 60000);  // scaled, no number of f16
    }
    const Tensor got = autograd::grad({y}, {x}, {grad})[0], want = grad.mul(y.detach().ne(0)).mul(1 / (1 - 0.3));
    ASSERT_EQ(got.dtype(), t);
    visit(t, [&]<class T>(Type<T>) {
      for (int64_t i = 0; i < got.numel(); ++i) {
        const T a = host<T>(got)[i], b = host<T>(want)[i];
        const bool both_nan = std::isnan(static_cast<double>(a)) && std::isnan(static_cast<double>(b));
        ASSERT_TRUE(both_nan || std::memcmp(&a, &b, sizeof(T)) == 0) << name(t) << " " << i;
      }
    });
  }
}

TEST(dropout, wrong_arguments_are_refused) {
  expect_error<ValueError>([] { dropout(empty({2}), 1.5); }, "dropout: p is no probability; got 1.5; expected 0 to 1");
  expect_error<ValueError>([] { dropout(empty({2}), kNaN); }, "dropout: p is no probability");
  expect_error<DTypeError>([] { dropout(empty({2}, {kI64})); }, "dropout: the input is not floating; got [2] i64");
}

}  // namespace
}  // namespace lorry::test
