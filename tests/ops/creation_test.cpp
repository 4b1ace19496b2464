#include "lorry/ops/creation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::element;
using test::expect_elements;
using test::Shapes;

TEST(Creation, constants_fill_every_dtype_and_shape) {
  for (const DType t : kDTypes) {
    for (const Dims& sizes : {Dims{}, Dims{0}, Dims{2, 3}, Dims{1, 1, 1, 1, 2, 1, 1, 3}}) {
      expect_elements(zeros(sizes, {t}), sizes, [](const Coordinates&) { return 0.0; });
      expect_elements(ones(sizes, {t}), sizes, [](const Coordinates&) { return 1.0; });
      expect_elements(full(sizes, 7, {t}), sizes, [&](const Coordinates&) { return t == kBool ? 1.0 : 7.0; });
    }
  }
  EXPECT_EQ(full({1}, true).dtype(), kBool);
  EXPECT_EQ(full({1}, 3).dtype(), kI64);
  EXPECT_EQ(full({1}, 3.0).dtype(), kF32);
  EXPECT_EQ(zeros({1}).dtype(), kF32);
}

TEST(Creation, like_factories_keep_sizes_dtype_and_dense_strides) {
  const Tensor x = zeros({2, 3}, {kF16}).t();
  EXPECT_EQ(ones_like(x).strides(), x.strides());
  EXPECT_EQ(ones_like(x).dtype(), kF16);
  EXPECT_EQ(zeros_like(x, kI32).dtype(), kI32);
  expect_elements(full_like(x, 2.5), {3, 2}, [](const Coordinates&) { return 2.5; });
  EXPECT_TRUE(zeros_like(zeros({1}).expand({4})).is_contiguous());
}

TEST(Creation, managed_tensors_are_tensors_of_their_device_and_too_large_ones_are_refused) {
  const Tensor x = empty_managed({3, 100}, {.dtype = kF32});
  EXPECT_TRUE(x.is_managed());
  EXPECT_EQ(x.device(), default_device());
  x.fill_(2);
  EXPECT_EQ(x.mul(x).sum().item<float>(), 1200);
  EXPECT_EQ(x.t().to(kCPU).to_vector<float>(), std::vector<float>(300, 2));
  x.record_stream(current_stream(default_device()));
  EXPECT_EQ(empty_managed({0}).numel(), 0);
  EXPECT_THROW(empty_managed({int64_t{1} << 46}), OutOfMemory);
  EXPECT_EQ(empty_managed({8}).zero_().sum().item<float>(), 0) << "the next call works";
}

TEST(Creation, arange_stops_before_its_end) {
  EXPECT_EQ(arange(4).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(arange(2, 9, 3).to_vector<int64_t>(), (std::vector<int64_t>{2, 5, 8}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<int64_t>(), (std::vector<int64_t>{5, 3, 1}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_EQ(arange(0, 1, 0.25).dtype(), kF32);
  EXPECT_EQ(arange(0, 1, 0.25).to_vector<double>(), (std::vector<double>{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(3, {kBF16}).dtype(), kBF16);
  EXPECT_EQ(arange(INT64_MAX - 1, INT64_MAX).item<int64_t>(), INT64_MAX - 1);
  EXPECT_EQ(arange(INT64_MIN, INT64_MAX, INT64_MAX).to_vector<int64_t>(),
            (std::vector<int64_t>{INT64_MIN, -1, INT64_MAX - 1}));
  EXPECT_EQ(arange(100'000, {kF64}).to_vector<double>()[99'999], 99'999);
  EXPECT_THROW(arange(0, 5, 0), ValueError);
  EXPECT_THROW(arange(0, 5, -1), ValueError);
  EXPECT_THROW(arange(0.0, HUGE_VAL, 1), ValueError);
  EXPECT_THROW(arange(0, 1, 1e-300), ShapeError);
  EXPECT_THROW(arange(INT64_MIN, INT64_MAX), ShapeError);
  EXPECT_THROW(arange(2, {kBool}), DTypeError);
}

TEST(Creation, linspace_meets_both_ends_exactly) {
  for (const int64_t n : {2, 3, 10, 1001}) {
    const auto values = linspace(-0.1, 0.7, n, {kF64}).to_vector<double>();
    EXPECT_EQ(values.front(), -0.1);
    EXPECT_EQ(values.back(), 0.7);
    for (int64_t i = 0; i < n; ++i)
      EXPECT_NEAR(values[static_cast<size_t>(i)], -0.1 + 0.8 * static_cast<double>(i) / static_cast<double>(n - 1),
                  1e-15);
  }
  EXPECT_EQ(linspace(3, 9, 1).item<double>(), 3);
  EXPECT_EQ(linspace(3, 9, 0).numel(), 0);
  EXPECT_EQ(linspace(0, 10, 5, {kI64}).to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 5, 7, 10}));
  EXPECT_THROW(linspace(0, 1, -1), ValueError);
}

TEST(Creation, ranges_of_whole_numbers_begin_and_step_with_whole_numbers) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(arange(0.5, 5, 1.2, {kI64}).to_vector<int64_t>(), (V{0, 1, 2, 3}));
  EXPECT_EQ(arange(0, 2, 0.5, {kI64}).to_vector<int64_t>(), (V{0, 0, 0, 0}));
  EXPECT_EQ(arange(-0.9, 5.9, 1.9, {kI32}).to_vector<int64_t>(), (V{0, 1, 2, 3}));
  EXPECT_EQ(arange(5.5, 0.2, -1.5, {kI8}).to_vector<int64_t>(), (V{5, 4, 3, 2}));
  EXPECT_EQ(linspace(-3, 8, 6, {kI64}).to_vector<int64_t>(), (V{-3, 0, 1, 3, 5, 8}));
  EXPECT_EQ(linspace(0.9, 9.9, 4, {kI32}).to_vector<int64_t>(), (V{0, 3, 6, 9}));
  EXPECT_EQ(linspace(0.5, 100.7, 9, {kI8}).to_vector<int64_t>(), (V{0, 12, 25, 37, 50, 62, 75, 87, 100}));
  EXPECT_EQ(linspace(-10.5, -1, 8, {kI16}).to_vector<int64_t>(), (V{-10, -8, -7, -6, -4, -3, -2, -1}));
  EXPECT_EQ(linspace(1.5, 7.5, 1, {kU8}).to_vector<int64_t>(), (V{1}));
  EXPECT_THROW(linspace(0, 300, 4, {kU8}), ValueError);
  EXPECT_THROW(linspace(-1, 3, 4, {kU8}), ValueError);
}

TEST(Creation, eye_and_one_hot_place_ones) {
  expect_elements(eye(3, 5), {3, 5}, [](const Coordinates& at) { return at[0] == at[1] ? 1.0 : 0.0; });
  EXPECT_EQ(eye(0).sizes(), (Dims{0, 0}));
  const Tensor x = tensor({{0, 2}, {1, 1}});
  expect_elements(one_hot(x), {2, 2, 3}, [&](const Coordinates& at) {
    return element(x, {at[0], at[1]}) == static_cast<double>(at[2]) ? 1.0 : 0.0;
  });
  EXPECT_EQ(one_hot(x, 5).sizes(), (Dims{2, 2, 5}));
  EXPECT_THROW_IN_TIME(one_hot(x, 2), IndexError);
  EXPECT_THROW_IN_TIME(one_hot(tensor({-1})), Error);
  EXPECT_THROW(one_hot(empty({0}, {kI64})), ValueError);
  EXPECT_THROW(one_hot(tensor({1.0})), DTypeError);
}

TEST(Creation, triangles_keep_one_side_of_a_diagonal) {
  for (uint32_t seed = 0; seed < 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Shapes shapes(seed);
    const Tensor x =
        shapes.tensor(shapes.sizes(static_cast<int>(shapes.number(2, 6))), kDTypes[shapes.number(0, kDTypeCount - 1)]);
    const int64_t k = shapes.coin(0.1) ? INT64_MIN : shapes.number(-5, 5);
    const auto below = [&](const Coordinates& at) { return at.back() - at[at.size() - 2] <= k; };
    const auto above = [&](const Coordinates& at) { return at.back() - at[at.size() - 2] >= k; };
    expect_elements(x.tril(k), x.sizes(), [&](const Coordinates& at) { return below(at) ? element(x, at) : 0.0; });
    expect_elements(x.triu(k), x.sizes(), [&](const Coordinates& at) { return above(at) ? element(x, at) : 0.0; });
    const Tensor y = x.clone();
    y.tril_(k);
    expect_elements(y, x.sizes(), [&](const Coordinates& at) { return below(at) ? element(x, at) : 0.0; });
  }
  EXPECT_THROW(zeros({3}).tril(), ShapeError);
}

TEST(Creation, nested_braces_give_shape_and_dtype) {
  EXPECT_EQ(tensor({{1, 2, 3}, {4, 5, 6}}).sizes(), (Dims{2, 3}));
  EXPECT_EQ(tensor({{1, 2, 3}, {4, 5, 6}}).dtype(), kI64);
  EXPECT_EQ(tensor({1, 2.5}).dtype(), kF32);
  EXPECT_EQ(tensor({true, false}).dtype(), kBool);
  EXPECT_EQ(tensor({true, 2}).dtype(), kI64);
  EXPECT_EQ(tensor(5).sizes(), Dims());
  EXPECT_EQ(tensor({{{1.5}}}).sizes(), (Dims{1, 1, 1}));
  EXPECT_EQ(tensor({{}, {}}).sizes(), (Dims{2, 0}));
  EXPECT_EQ(tensor({1, 2}, {kF16}).to_vector<double>(), (std::vector<double>{1, 2}));
  EXPECT_THROW(tensor({{1, 2}, {3}}), ShapeError);
}

TEST(Creation, data_of_the_host_is_copied) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const Tensor x = from_data(values, {2, 3});
  values[0] = 9;
  EXPECT_EQ(element(x, {0, 0}), 1);
  EXPECT_EQ(element(from_data(values.data() + 1, {2}), {1}), 3);
  EXPECT_EQ(from_data(std::vector<bool>{true, false}).dtype(), kBool);
  EXPECT_EQ(from_data(std::vector<Float16>{Float16(0.5f)}).dtype(), kF16);
  EXPECT_THROW(from_data(values, {7}), ShapeError);
}

TEST(Creation, a_blob_is_shared_and_given_back_once) {
  float memory[6] = {0, 1, 2, 3, 4, 5};
  int given_back = 0;
  {
    const Tensor x = from_blob(memory, {2, 3}, {kF32, kCPU}, [&](void* data) {
      EXPECT_EQ(data, memory);
      ++given_back;
    });
    const Tensor row = x[1];
    EXPECT_EQ(element(row, {2}), 5);
    row.fill_(8);
    EXPECT_EQ(memory[4], 8);
    EXPECT_EQ(given_back, 0);
  }
  EXPECT_EQ(given_back, 1);
  EXPECT_EQ(element(from_blob(memory, {3}, {2}, {kF32, kCPU}), {1}), 2);
  EXPECT_THROW(from_blob(nullptr, {1}), ValueError);
  EXPECT_THROW(from_blob(reinterpret_cast<char*>(memory) + 1, {1}), ValueError);
  EXPECT_THROW(from_blob(memory, {2}, {-1}, {kF32, kCPU}), ShapeError);
}

TEST(Creation, sequences_are_written_into_given_tensors) {
  EXPECT_TRUE(equal(arange_out(empty({4}), 1, 9, 2), arange(1, 9, 2, {kF32})));
  EXPECT_TRUE(equal(arange_out(empty({3}, {kI64}), 3), arange(3)));
  EXPECT_TRUE(equal(linspace_out(empty({5}), 0, 1, 5), linspace(0, 1, 5)));
  EXPECT_THROW(arange_out(empty({3}), 4), ShapeError);
  EXPECT_THROW(linspace_out(Tensor(), 0, 1, 5), ValueError);
}

}  // namespace
}  // namespace lorry
