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
  EXPECT_EQ(full({}, 1e300, {.dtype = kI64}).item<int64_t>(),
            full({}, 1e300, {.dtype = kF64}).to(kI64).item<int64_t>());
  EXPECT_THROW(linspace(0, 1e30, 2, {kI64}), ValueError);
}

TEST(Limits, factors_of_whole_products_must_fit_the_dtype) {
  const Tensor i8 = ones({2, 2}, {kI8}), u8 = ones({2, 2}, {kU8}), i64 = ones({2, 2}, {kI64});
  EXPECT_THROW(addmm(i8, i8, i8, 1, 300), ValueError);
  EXPECT_THROW(addmm(u8, u8, u8, -256), ValueError);
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

constexpr int64_t kTera = int64_t{1} << 40;

TEST(Limits, more_chunks_than_elements_are_as_many_as_elements) {
  EXPECT_EQ(ones({3}).chunk(kTera).size(), 3u);
  EXPECT_EQ(ones({2, 3}).chunk(INT64_MAX, 1).size(), 3u);
  EXPECT_EQ(ones({0}).chunk(5).size(), 5u);
  EXPECT_EQ(ones({3}).split(INT64_MAX).size(), 1u);
}

TEST(Limits, more_pieces_than_memory_holds_are_refused) {
  const Tensor wide = ones({1}).expand({kTera});
  EXPECT_THROW(ones({0}).chunk(kTera), ValueError);
  EXPECT_THROW(wide.split(1), ValueError);
  EXPECT_THROW(wide.chunk(kTera), ValueError);
  EXPECT_THROW(wide.unbind(), ValueError);
  EXPECT_EQ(wide.chunk(2).size(), 2u);
}

TEST(Limits, more_elements_than_memory_holds_are_out_of_memory) {
  const Tensor x = ones({3});
  EXPECT_THROW(ones({kTera}), OutOfMemory);
  EXPECT_THROW(arange(kTera), OutOfMemory);
  EXPECT_THROW(linspace(0, 1, kTera), OutOfMemory);
  EXPECT_THROW(eye(1 << 21), OutOfMemory);
  EXPECT_THROW(x.repeat({kTera}), OutOfMemory);
  EXPECT_THROW(x.tile({kTera}), OutOfMemory);
  EXPECT_THROW(x.repeat_interleave(kTera), OutOfMemory);
  EXPECT_THROW(one_hot(zeros({3}, {kI64}), kTera), OutOfMemory);
  EXPECT_THROW(randperm(kTera), OutOfMemory);
  EXPECT_THROW(ones({1}).expand({kTera}).clone().contiguous(), OutOfMemory);
  EXPECT_EQ(ones({3}).sum().item<double>(), 3);
}

TEST(Limits, differences_of_an_order_beyond_the_length_are_none) {
  EXPECT_EQ(arange(4).diff(int64_t{1} << 60).numel(), 0);
  EXPECT_EQ(ones({0}).diff(2).numel(), 0);
}

TEST(Limits, a_number_that_is_no_dtype_is_refused_by_whoever_takes_one) {
  const Tensor x = ones({2, 3}), i = zeros({2}, {kI64});
  alignas(8) uint8_t bytes[24] = {};
  for (const auto wrong : {static_cast<DType>(kDTypeCount), static_cast<DType>(77), static_cast<DType>(255)}) {
    EXPECT_EQ(name(wrong), "no dtype");
    EXPECT_EQ(size_of(wrong), 0);
    EXPECT_FALSE(is_floating(wrong) || is_integral(wrong) || can_store(wrong, kF64));
    const Options options{.dtype = wrong};
    EXPECT_THROW(empty({2}, options), DTypeError);
    EXPECT_THROW(zeros({2}, options), DTypeError);
    EXPECT_THROW(ones({2}, options), DTypeError);
    EXPECT_THROW(full({2}, 1, options), DTypeError);
    EXPECT_THROW(empty_strided({2}, {1}, options), DTypeError);
    EXPECT_THROW(empty_pinned({2}, wrong), DTypeError);
    EXPECT_THROW(empty_managed({2}, options), DTypeError);
    EXPECT_THROW(empty_like(x, wrong), DTypeError);
    EXPECT_THROW(zeros_like(x, wrong), DTypeError);
    EXPECT_THROW(full_like(x, 1, wrong), DTypeError);
    EXPECT_THROW(rand({2}, options), DTypeError);
    EXPECT_THROW(randn_like(x, wrong), DTypeError);
    EXPECT_THROW(randint(3, {2}, options), DTypeError);
    EXPECT_THROW(arange(3, options), DTypeError);
    EXPECT_THROW(linspace(0, 1, 3, options), DTypeError);
    EXPECT_THROW(eye(2, options), DTypeError);
    EXPECT_THROW(tensor({1, 2}, options), DTypeError);
    EXPECT_THROW(detail::from_bytes(bytes, 3, wrong, {3}, kCPU), DTypeError);
    EXPECT_THROW(from_blob(bytes, {3}, {wrong, kCPU}), DTypeError);
    EXPECT_THROW(x.to(wrong), DTypeError);
    EXPECT_THROW(x.view(wrong), DTypeError);
    EXPECT_THROW(x.sum({}, false, wrong), DTypeError);
    EXPECT_THROW(x.mean({}, false, wrong), DTypeError);
    EXPECT_THROW(x.prod({}, false, wrong), DTypeError);
    EXPECT_THROW(x.cumsum(0, wrong), DTypeError);
    EXPECT_THROW(x.cumprod(0, wrong), DTypeError);
    EXPECT_THROW(x.softmax(0, wrong), DTypeError);
    EXPECT_THROW(x.log_softmax(0, wrong), DTypeError);
    EXPECT_THROW(cross_entropy(x, i, {}, -100, Reduction::mean, 0, wrong), DTypeError);
    EXPECT_THROW(promote(kF32, wrong), DTypeError);
  }
}

TEST(Limits, a_device_that_is_none_is_refused_by_whoever_takes_one) {
  const Tensor x = ones({2}, {.device = kCPU});
  float number = 0;
  for (const Device wrong : {Device{static_cast<DeviceType>(9), 0}, Device{DeviceType::cpu, 3},
                             Device{DeviceType::cpu, -1}, Device{DeviceType::cuda, 99}}) {
    const Options options{.device = wrong};
    EXPECT_THROW(zeros({2}, options), DeviceError);
    EXPECT_THROW(empty_managed({2}, options), DeviceError);
    EXPECT_THROW(randn({2}, options), DeviceError);
    EXPECT_THROW(tensor({1, 2}, options), DeviceError);
    EXPECT_THROW(from_blob(&number, {1}, options), DeviceError);
    EXPECT_THROW(x.to(wrong), DeviceError);
  }
  EXPECT_THROW(set_default_device({static_cast<DeviceType>(9), 0}), DeviceError);
}

}  // namespace
}  // namespace lorry
