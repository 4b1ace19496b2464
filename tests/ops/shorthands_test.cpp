// Forms composed of other operators, which have no row in a table: each against the form that it stands for.

#include <gtest/gtest.h>

#include "lorry/ops/ops.h"
#include "tests/ops/operator_samples.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

/// Operands with values of their own, in f32.
Tensors operands(const std::vector<Dims>& sizes) {
  Sample sample;
  for (const Dims& s : sizes) sample.inputs.push_back(value(s));
  return make_inputs(sample, kF32);
}

bool same_memory(const Tensor& a, const Tensor& b) {
  return a.data_ptr() == b.data_ptr() && a.strides() == b.strides() && a.sizes() == b.sizes();
}

TEST(Shorthands, write_into_a_given_tensor_of_any_layout) {
  const Tensors t = operands({{3, 4}, {4}, {3, 1}});
  for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::sliced}) {
    const Tensor out = allocate({3, 4}, kF32, memory);
    EXPECT_TRUE(same_bits(lerp_out(out, t[0], t[1], 0.25), lerp(t[0], t[1], 0.25)));
    EXPECT_TRUE(same_bits(lerp_out(out, t[0], t[1], t[2]), lerp(t[0], t[1], t[2])));
    EXPECT_TRUE(same_bits(addcmul_out(out, t[0], t[1], t[2], 0.5), addcmul(t[0], t[1], t[2], 0.5)));
    EXPECT_TRUE(same_bits(addcdiv_out(out, t[0], t[1], t[2], 0.5), addcdiv(t[0], t[1], t[2], 0.5)));
    EXPECT_TRUE(same_bits(outer_out(out, t[2].squeeze(1), t[1]), outer(t[2].squeeze(1), t[1])));
  }
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 4; ++j)
      EXPECT_EQ(element(outer(t[2].squeeze(1), t[1]), 4 * i + j), element(t[2], i) * element(t[1], j));
  const Tensor narrow = empty({3, 3});
  EXPECT_THROW(lerp_out(narrow, t[0], t[1], 0.5), ShapeError);
  EXPECT_THROW(addcmul_out(narrow, t[0], t[1], t[2]), ShapeError);
  EXPECT_THROW(addcdiv_out(narrow, t[0], t[1], t[2]), ShapeError);
  EXPECT_THROW(outer_out(narrow, t[2].squeeze(1), t[1]), ShapeError);
  EXPECT_THROW(lerp_out(Tensor(), t[0], t[1], 0.5), ValueError);
  EXPECT_THROW(mv_out(narrow, t[0], t[1]), ShapeError);
  EXPECT_THROW(dot_out(narrow, t[1], t[1]), ShapeError);
  EXPECT_THROW(baddbmm_out(narrow, t[0].unsqueeze(0), t[0].unsqueeze(0), empty({1, 4, 4})), ShapeError);
}

TEST(Shorthands, views_as_large_as_another_tensor_share_memory) {
  const Tensors t = operands({{3, 4}, {2, 6}, {3, 1}});
  EXPECT_TRUE(same_memory(view_as(t[0], t[1]), view(t[0], {2, 6})));
  EXPECT_TRUE(same_memory(t[0].view_as(t[1]), view(t[0], {2, 6})));
  EXPECT_TRUE(same_memory(reshape_as(t[0], t[1]), view(t[0], {2, 6})));
  EXPECT_TRUE(same_bits(reshape_as(t[0].t(), t[1]), t[0].t().reshape({2, 6})));
  EXPECT_TRUE(same_memory(swapdims(t[0], 0, 1), transpose(t[0], 0, 1)));
  EXPECT_TRUE(same_memory(t[0].swapdims(-1, 0), transpose(t[0], 0, 1)));
  EXPECT_TRUE(same_memory(expand_as(t[2], t[0]), expand(t[2], {3, 4})));
  EXPECT_TRUE(same_memory(t[2].expand_as(t[0]), expand(t[2], {3, 4})));
  EXPECT_THROW(view_as(t[0].t(), t[1]), ShapeError);
  EXPECT_THROW(view_as(t[0], t[2]), ShapeError);
  EXPECT_THROW(expand_as(t[0], t[1]), ShapeError);
  EXPECT_THROW(swapdims(t[0], 0, 2), IndexError);
}

TEST(Shorthands, tensors_are_broadcast_to_common_sizes_without_copies) {
  const Tensors t = operands({{4}, {3, 1}, {2, 1, 1}}), wide = broadcast_tensors(t);
  ASSERT_EQ(wide.size(), 3u);
  for (size_t k = 0; k < 3; ++k) EXPECT_TRUE(same_memory(wide[k], expand(t[k], {2, 3, 4})));
  EXPECT_TRUE(broadcast_tensors({}).empty());
  EXPECT_THROW(broadcast_tensors({t[0], empty({3})}), ShapeError);
}

TEST(Shorthands, true_divide_divides_whole_numbers_into_fractions) {
  const Tensor x = tensor({1, -7, 4}), y = tensor({2, 4, -8});
  EXPECT_EQ(true_divide(x, y).to_vector<double>(), (std::vector<double>{0.5, -1.75, -0.5}));
  EXPECT_EQ(true_divide(x, 2).to_vector<double>(), (std::vector<double>{0.5, -3.5, 2}));
  EXPECT_EQ(true_divide(x, y).dtype(), kF32);
}

TEST(Shorthands, random_tensors_like_another_have_its_sizes_and_dtype) {
  for (const DType dtype : kFloatingDTypes) {
    const Tensor x = empty({3, 5}, {dtype}), drawn = rand_like(x, {}, &fresh_generator()),
                 whole = randint_like(x, -3, 4, {}, &fresh_generator());
    EXPECT_TRUE(same_bits(drawn, rand({3, 5}, {dtype}, &fresh_generator())));
    EXPECT_TRUE(same_bits(whole, randint(-3, 4, {3, 5}, {dtype}, &fresh_generator())));
    EXPECT_TRUE(same_bits(randn_like(x, {}, &fresh_generator()), randn({3, 5}, {dtype}, &fresh_generator())));
    for (const double v : elements(whole)) EXPECT_TRUE(v >= -3 && v <= 3 && v == std::floor(v)) << v;
  }
}

TEST(Shorthands, refuse_undefined_tensors) {
  const Tensor x = ones({3}), none;
  EXPECT_THROW(view_as(x, none), Error);
  EXPECT_THROW(reshape_as(x, none), Error);
  EXPECT_THROW(expand_as(x, none), Error);
  EXPECT_THROW(swapdims(none, 0, 0), Error);
  EXPECT_THROW(broadcast_tensors({x, none}), Error);
  EXPECT_THROW(true_divide(none, x), Error);
  EXPECT_THROW(true_divide(x, none), Error);
  for (Tensor (*like)(const Tensor&) :
       {+[](const Tensor& t) { return rand_like(t); }, +[](const Tensor& t) { return randn_like(t); },
        +[](const Tensor& t) { return randint_like(t, 0, 2); }, +[](const Tensor& t) { return empty_like(t); },
        +[](const Tensor& t) { return zeros_like(t); }, +[](const Tensor& t) { return ones_like(t); },
        +[](const Tensor& t) { return empty_like(t, kF32); }, +[](const Tensor& t) { return full_like(t, 2, kF32); }})
    EXPECT_THROW(like(none), Error);
}

}  // namespace
}  // namespace lorry::test
