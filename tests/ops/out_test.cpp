// The contract of out= (ops/dispatch/out.h) for pointwise rows, and what all forms share. Rows of
// ops/dispatch/operators.def are tested with their samples (operator_table_test.cpp).

#include <gtest/gtest.h>

#include <limits>

#include "lorry/autograd/grad_mode.h"
#include "lorry/formula/pointwise.h"
#include "tests/ops/operands.h"

namespace lorry::test {
namespace {

/// Values over the whole range of a type of whole numbers; small ones of both signs for a floating type.
Tensor wide_range(const Dims& sizes, DType t, uint64_t seed) {
  const Tensor x = random_tensor(sizes, t, seed);
  std::mt19937_64 random(seed);
  visit(t, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      for (int64_t i = 0; i < x.numel(); ++i) {
        const T value = static_cast<T>(random());
        write_element(x, i, &value);
      }
  });
  return x;
}

/// Stores `want` in every dtype: converted where that holds its kind of number, refused elsewhere.
template <class Out>
void check_stored(const Tensor& want, const Out& out) {
  for (const DType stored : kDTypes) {
    SCOPED_TRACE(std::string(name(want.dtype())) + " into " + std::string(name(stored)));
    const Tensor given = empty(want.sizes(), {stored}), grown = empty({0}, {stored});
    if (!can_store(want.dtype(), stored)) {
      EXPECT_THROW(out(given), DTypeError);
      EXPECT_THROW(out(grown), DTypeError);
      EXPECT_EQ(grown.sizes(), Dims{0});
      continue;
    }
    const uint32_t version = given.version();
    EXPECT_TRUE(out(given).is_same(given));
    EXPECT_TRUE(same_values(given, want.to(stored)));
    EXPECT_GT(given.version(), version);
    EXPECT_TRUE(same_values(out(grown), want.to(stored))) << "an empty out gets the result's sizes";
  }
}

TEST(Out, every_pointwise_row_stores_the_converted_result_of_its_plain_form) {
  for (const DType t : kDTypes) {
    const Tensor x = wide_range({3, 5}, t, 1), y = random_tensor({5}, t, 2);
#define LORRY_UNARY(name, Formula, result, domain)                                                 \
  if (ops::accepts(Domain::domain, t)) {                                                           \
    SCOPED_TRACE(#name);                                                                           \
    check_stored(name(x), [&](const Tensor& out) -> const Tensor& { return name##_out(out, x); }); \
  }
#define LORRY_BINARY(name, Formula, result, domain)                                                      \
  if (ops::accepts(Domain::domain, t)) {                                                                 \
    SCOPED_TRACE(#name);                                                                                 \
    check_stored(name(x, y), [&](const Tensor& out) -> const Tensor& { return name##_out(out, x, y); }); \
  }
#include "lorry/formula/pointwise.def"
    if (!ops::accepts(Domain::floating, t)) continue;
    check_stored(add(x, y, 3), [&](const Tensor& out) -> const Tensor& { return add_out(out, x, y, 3); });
    check_stored(clamp(x, -1, 1), [&](const Tensor& out) -> const Tensor& { return clamp_out(out, x, -1, 1); });
    check_stored(lerp(x, y, 0.3), [&](const Tensor& out) -> const Tensor& { return lerp_out(out, x, y, 0.3); });
    check_stored(addcmul(x, x, y, 0.3),
                 [&](const Tensor& out) -> const Tensor& { return addcmul_out(out, x, x, y, 0.3); });
    check_stored(addcdiv(x, x, y, 0.3),
                 [&](const Tensor& out) -> const Tensor& { return addcdiv_out(out, x, x, y, 0.3); });
    check_stored(softplus(x), [&](const Tensor& out) -> const Tensor& { return softplus_out(out, x); });
    check_stored(elu(x), [&](const Tensor& out) -> const Tensor& { return elu_out(out, x); });
    check_stored(where(x.gt(0), x, y),
                 [&](const Tensor& out) -> const Tensor& { return where_out(out, x.gt(0), x, y); });
  }
}

TEST(Out, wrapping_and_rounding_happen_in_the_results_dtype) {
  EXPECT_EQ(neg_out(empty({1}), tensor({1}).to(kU8)).item<double>(), 255);
  EXPECT_EQ(square_out(empty({1}, {kI64}), tensor({100}).to(kI8)).item<int64_t>(), 16);
  EXPECT_EQ(exp_out(empty({1}), tensor({1.0}).to(kBF16)).item<double>(), 2.71875);
}

TEST(Out, an_operand_may_be_out_itself_but_not_share_a_part_of_it) {
  const Tensor x = tensor({1.0, 2.0, 4.0}), want = x.mul(x);
  EXPECT_TRUE(same_values(mul_out(x, x, x), want));
  const Tensor before = x.clone();
  EXPECT_THROW(neg_out(x.narrow(0, 1, 2), x.narrow(0, 0, 2)), ShapeError);
  EXPECT_TRUE(same_values(x, before));
}

TEST(Out, other_sizes_are_refused_and_nothing_is_written) {
  const Tensor x = ones({2, 3}), out = full({3, 2}, 7.0);
  EXPECT_THROW(exp_out(out, x), ShapeError);
  EXPECT_THROW(sum_out(out, x), ShapeError);
  EXPECT_THROW(matmul_out(out, x, x.t()), ShapeError);
  EXPECT_TRUE(same_values(out, full({3, 2}, 7.0)));
}

TEST(Out, a_refused_call_leaves_an_empty_tensor_empty) {
  const Tensor out = empty({0}, {kI64}), leaf = empty({0}).requires_grad_();
  EXPECT_THROW(floor_divide_out(out, tensor({1, 2}), 0), ValueError);
  EXPECT_EQ(out.sizes(), (Dims{0}));
  const NoGrad quiet;
  EXPECT_THROW(ones_out(leaf, {3}), ShapeError);  // whoever holds its gradient knows its sizes
  EXPECT_EQ(leaf.sizes(), (Dims{0}));
}

TEST(Out, an_empty_tensor_gets_the_sizes_of_the_result) {
  const Tensor x = random_tensor({2, 3}, kF32, 1);
  for (const Dims& sizes : {Dims{0}, Dims{0, 4}, Dims{3, 0, 2}}) {
    EXPECT_TRUE(same_values(matmul_out(empty(sizes), x, x.t()), matmul(x, x.t())));
    EXPECT_TRUE(same_values(addmm_out(empty(sizes, {kF64}), x, ones({2, 2}), x), addmm(x, ones({2, 2}), x).to(kF64)));
    EXPECT_TRUE(same_values(sum_out(empty(sizes), x, {1}), x.sum({1})));
    const Tensor values = empty(sizes), indices = empty(sizes, {kI64});
    sort_out(values, indices, x);
    EXPECT_TRUE(same_values(values, std::get<0>(sort(x))));
    EXPECT_TRUE(same_values(indices, std::get<1>(sort(x))));
  }
  const Tensor base = empty({4}), view = base.narrow(0, 2, 0);
  EXPECT_THROW(exp_out(view, x), ShapeError) << "an empty view would leave its base";
  const Tensor values = empty({0}), other = empty({5}, {kI64});
  EXPECT_THROW(sort_out(values, other, x), ShapeError);
  EXPECT_EQ(values.sizes(), Dims{0}) << "neither is touched when one does not fit";
}

TEST(Out, is_not_differentiable) {
  const Tensor x = ones({2, 2}).requires_grad_(), out = empty({2, 2});
  EXPECT_THROW(exp_out(out, x), GradError);
  EXPECT_THROW(matmul_out(out, x, x), GradError);
  EXPECT_THROW(cumsum_out(out, x, 0), GradError);
  EXPECT_THROW(exp_out(x, out), GradError);
  const NoGrad quiet;
  EXPECT_NO_THROW(exp_out(out, x));
  EXPECT_NO_THROW(matmul_out(out, x, x));
  EXPECT_NO_THROW(cumsum_out(out, x, 0));
}

}  // namespace
}  // namespace lorry::test
