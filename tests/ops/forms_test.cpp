// Options that operators take beside their usual form. Expected values are PyTorch's.

#include <gtest/gtest.h>

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"

namespace lorry::test {
namespace {

using Values = std::vector<double>;

TEST(Round, to_decimals_rounds_halves_to_even_digits) {
  const Tensor x = tensor_of({4}, kF64, {0.125, 1.235, -2.5, 17.3});
  EXPECT_TRUE(near(round(x, 2), {0.12, 1.24, -2.5, 17.3}, 1e-15));
  EXPECT_EQ(elements(x.round(0)), (Values{0, 1, -2, 17}));
  EXPECT_EQ(elements(round(tensor_of({4}, kF32, {123, 125, 135, -1250}), -1)), (Values{120, 120, 140, -1250}));
  const Tensor out = empty({4}, {kF64}), y = x.clone();
  EXPECT_TRUE(same_bits(round_out(out, x, 2), x.round(2)));
  EXPECT_TRUE(y.round_(1).is_same(y));
  EXPECT_TRUE(same_bits(y, x.round(1)));
  EXPECT_TRUE(same_bits(x.clone().round_(-1), x.round(-1)));
  EXPECT_EQ(x.to(kF16).round(1).dtype(), kF16);
  expect_error<DTypeError>([] { round(tensor({123}), -1); }, "round: decimals of whole numbers");
  EXPECT_THROW(round(Tensor(), 1), Error);
}

TEST(Round, to_decimals_has_gradient_zero) {
  const Tensor x = tensor_of({2}, kF32, {0.13, 5.7}).requires_grad_();
  x.round(1).sum().backward();
  EXPECT_EQ(elements(x.grad()), (Values{0, 0}));
}

TEST(Diff, joins_what_comes_before_and_after) {
  const Tensor x = tensor({1, 3, 6});
  EXPECT_EQ(elements(diff(x, 1, -1, tensor({0}))), (Values{1, 2, 3}));
  EXPECT_EQ(elements(x.diff(1, -1, {}, tensor({10, 11}))), (Values{2, 3, 4, 1}));
  EXPECT_EQ(elements(diff(x, 2, 0, tensor({0}), tensor({10}))), (Values{1, 1, 1}));
  EXPECT_EQ(elements(diff(x, 1, 0, tensor({0.5}))), (Values{0.5, 2, 3})) << "types are promoted";
  EXPECT_EQ(elements(diff(x, 0, 0, tensor({0}))), (Values{1, 3, 6})) << "of order 0 nothing is joined";
  EXPECT_EQ(diff(x, 9).sizes(), Dims{0});
  EXPECT_EQ(elements(diff(tensor({true, false}), 1, 0, tensor({true}))), (Values{0, 1}));
  const Tensor square = tensor({{1, 2}, {4, 8}});
  EXPECT_EQ(elements(diff(square, 1, 0, tensor({{0, 0}}))), (Values{1, 2, 3, 6}));
  EXPECT_THROW(diff(square, 1, 0, tensor({0, 0})), ShapeError);
  EXPECT_THROW(diff(square, 1, 0, {}, tensor({{0, 0, 0}})), ShapeError);
  EXPECT_THROW(diff(x, 1, 0, tensor({1}).squeeze(0)), ShapeError);
}

TEST(Meshgrid, exchanges_the_first_two_dimensions_for_xy) {
  const std::vector<Tensor> vectors{tensor({0, 1}), tensor({0, 1, 2}), tensor({0, 1, 2, 3})};
  const std::vector<Tensor> ij = meshgrid(vectors), xy = meshgrid(vectors, "xy");
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(ij[k].sizes(), (Dims{2, 3, 4}));
    EXPECT_EQ(xy[k].sizes(), (Dims{3, 2, 4}));
    EXPECT_TRUE(equal(xy[k], ij[k].transpose(0, 1)));
  }
  EXPECT_EQ(elements(meshgrid({vectors[0]}, "xy")[0]), (Values{0, 1}));
  EXPECT_EQ(meshgrid({tensor({2}).squeeze(0), vectors[1]}, "xy")[0].sizes(), (Dims{3, 1}));
  EXPECT_THROW(meshgrid(vectors, "yx"), ValueError);
  EXPECT_THROW(meshgrid({}), ValueError);
  EXPECT_THROW(meshgrid({vectors[0], vectors[1].to(kF32)}), DTypeError);
  EXPECT_THROW(meshgrid(std::vector<Tensor>(9, vectors[0])), ShapeError);
}

TEST(Narrow, takes_its_start_from_a_tensor) {
  const Tensor x = arange(5), start = tensor({2}).squeeze(0);
  EXPECT_EQ(elements(narrow(x, 0, start, 2)), (Values{2, 3}));
  EXPECT_EQ(elements(x.narrow(0, start.neg().to(kI32), 2)), (Values{3, 4}));
  EXPECT_TRUE(x.narrow(0, start, 2).is_view());
  EXPECT_THROW(x.narrow(0, start.unsqueeze(0), 2), ShapeError);
  EXPECT_THROW(x.narrow(0, start.to(kF32), 2), DTypeError);
  EXPECT_THROW(x.narrow(0, start.to(kBool), 2), DTypeError);
  EXPECT_THROW(x.narrow(0, Tensor(), 2), Error);
  EXPECT_THROW(x.narrow(0, start, 4), IndexError);
}

TEST(IndexFill, takes_its_value_from_a_tensor) {
  const Tensor x = zeros({5}), index = tensor({1, -1, 1}), value = full({}, 2.5).requires_grad_();
  const Tensor y = x.index_fill(0, index, value);
  EXPECT_EQ(elements(y), (Values{0, 2.5, 0, 0, 2.5}));
  y.mul(tensor({1.0, 2.0, 3.0, 4.0, 5.0})).sum().backward();
  EXPECT_EQ(element(value.grad(), 0), 7) << "an element filled twice counts once";
  EXPECT_EQ(elements(arange(5).index_fill_(0, index, full({}, 2.7))), (Values{0, 2, 2, 3, 2}));
  EXPECT_THROW(x.index_fill(0, index, tensor({2.5})), ShapeError);
  EXPECT_THROW(x.index_fill(0, index, Tensor()), Error);
  EXPECT_EQ(elements(full({}, 1.0).index_fill(0, tensor({0}), value)), Values{2.5});
}

TEST(RepeatInterleave, is_a_method_for_counts_of_each_slice_too) {
  EXPECT_EQ(elements(tensor({4, 5}).repeat_interleave(tensor({1, 2}))), (Values{4, 5, 5}));
}

TEST(Normal, with_tensors_draws_every_element_with_its_own_mean_and_deviation) {
  const int64_t n = 20000;
  const Tensor mean = tensor_of({2, 1}, kF64, {5, -3}), deviation = tensor_of({2, 1}, kF64, {0.5, 2});
  Generator generator(3);
  const Tensor x = normal(mean.expand({2, n}), deviation.expand({2, n}), &generator);
  EXPECT_TRUE(near(x.mean({1}), {5, -3}, 0.05));
  EXPECT_TRUE(near(x.std({1}), {0.5, 2}, 0.05));
  EXPECT_EQ(normal(zeros({2, 1}), ones({3})).sizes(), (Dims{2, 3}));
  EXPECT_EQ(normal(zeros({2}, {kF64}), ones({2})).dtype(), kF64);
  EXPECT_EQ(normal(zeros({2}), ones({2}, {kF64})).dtype(), kF32);
  EXPECT_EQ(normal(0.0, ones({2}, {kF64})).dtype(), kF64);
  EXPECT_TRUE(near(normal(full({3}, 7.0), zeros({3})), {7, 7, 7}, 0));
  EXPECT_TRUE(near(normal(full({3}, 7.0), 0.0), {7, 7, 7}, 0));
  EXPECT_FALSE(normal(zeros({2}).requires_grad_(), ones({2})).requires_grad());
  EXPECT_THROW(normal(zeros({2}), tensor({1.0, -1.0})), ValueError);
  EXPECT_THROW(normal(zeros({2}), -1.0), ValueError);
  EXPECT_THROW(normal(zeros({2}, {kI64}), ones({2})), DTypeError);
  EXPECT_THROW(normal(0.0, ones({2}, {kI64})), DTypeError);
  EXPECT_THROW(normal(zeros({2}), Tensor()), Error);
  EXPECT_THROW(normal(zeros({2}), ones({3})), ShapeError);
}

}  // namespace
}  // namespace lorry::test
