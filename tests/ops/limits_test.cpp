// Sizes, strides and numbers at the edge of what 64 bits hold: refused by type, never wrapped around.

#include <gtest/gtest.h>

#include <cmath>

#include "lorry/ops/ops.h"

namespace lorry {
namespace {

constexpr int64_t kHuge = int64_t{1} << 60;

TEST(Limits, strides_that_reach_beyond_64_bits_are_refused) {
  EXPECT_THROW(empty_strided({3}, {kHuge}), ShapeError);
  EXPECT_THROW(empty_strided({kHuge, 2}, {1, kHuge}), ShapeError);
  EXPECT_THROW(empty_strided({2}, {-1}), ShapeError);
  float x = 0;
  EXPECT_THROW(from_blob(&x, {3}, Dims{kHuge}), ShapeError);
}

TEST(Limits, sizes_that_overflow_are_refused_in_empty_tensors_too) {
  EXPECT_THROW(zeros({kHuge, kHuge}), ShapeError);
  EXPECT_THROW(zeros({0, kHuge, kHuge}), ShapeError);
  EXPECT_THROW(zeros({0}).view({0, kHuge, kHuge}), ShapeError);
  EXPECT_THROW(zeros({kHuge / 64}), OutOfMemory);
  EXPECT_EQ(zeros({2}).sum().item<double>(), 0);
}

TEST(Limits, repeats_that_add_up_to_more_than_64_bits_are_refused) {
  const int64_t quarter = int64_t{1} << 62;
  EXPECT_THROW(repeat_interleave(arange(4), tensor({quarter, quarter, quarter, quarter}), 0), ShapeError);
  EXPECT_THROW(repeat_interleave(arange(4), tensor({quarter, quarter, quarter, quarter + 5}), 0), ShapeError);
  EXPECT_THROW(repeat_interleave(arange(2), tensor({1, -1}), 0), ValueError);
}

TEST(Limits, numbers_saturate_on_their_way_to_whole_dtypes_alike_on_every_path) {
  EXPECT_EQ(full({}, NAN).item<int64_t>(), 0);
  EXPECT_EQ(full({}, 1e30, {.dtype = kF64}).item<int64_t>(), INT64_MAX);
  EXPECT_EQ(full({}, -INFINITY).item<int64_t>(), INT64_MIN);
  EXPECT_EQ(full({}, 1e300, {.dtype = kI64}).item<int64_t>(), full({}, 1e300, {.dtype = kF64}).to(kI64).item<int64_t>());
  EXPECT_EQ(linspace(0, 1e30, 2, {kI64}).to_vector<int64_t>()[1], INT64_MAX);
}

TEST(Limits, factors_of_whole_products_must_fit_the_dtype) {
  const Tensor i8 = ones({2, 2}, {kI8}), u8 = ones({2, 2}, {kU8}), i64 = ones({2, 2}, {kI64});
  EXPECT_THROW(addmm(i8, i8, i8, 1, 300), ValueError);
  EXPECT_THROW(addmm(u8, u8, u8, -1), ValueError);
  EXPECT_THROW(addmm(i64, i64, i64, 1, (int64_t{1} << 53) + 1), ValueError);
  EXPECT_EQ(addmm(i8, i8, i8, -1, 3).to_vector<int>()[0], 5);
}

TEST(Limits, bytes_seen_as_another_dtype_must_be_aligned) {
  alignas(8) uint8_t bytes[24] = {};
  const Tensor odd = from_blob(bytes + 1, {16}, {kU8, kCPU});
  EXPECT_THROW(odd.view(kI64), ValueError);
  EXPECT_EQ(from_blob(bytes, {16}, {kU8, kCPU}).view(kI64).numel(), 2);
}

TEST(Limits, undefined_tensors_are_refused_by_type) {
  const Tensor none, x = ones({2});
  EXPECT_THROW(view_as(x, none), ValueError);
  EXPECT_THROW(expand_as(x, none), ValueError);
  EXPECT_THROW(broadcast_tensors({x, none}), ValueError);
  EXPECT_THROW(none.tril_(), ValueError);
  EXPECT_THROW(none.requires_grad_(), ValueError);
  EXPECT_THROW(empty_like(none), ValueError);
}

}  // namespace
}  // namespace lorry
