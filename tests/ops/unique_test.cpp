// Distinct slices and runs against sets of rows; small cases are PyTorch's own values.

#include <gtest/gtest.h>

#include <map>

#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"

namespace lorry::test {
namespace {

using Values = std::vector<double>;

/// The slices of x along dim, as rows of numbers.
std::vector<Values> slices(const Tensor& x, int64_t dim) {
  std::vector<Values> rows;
  for (int64_t i = 0; i < x.size(dim); ++i) rows.push_back(elements(x.select(dim, i)));
  return rows;
}

TEST(UniqueSlices, agree_with_an_ordered_map_of_rows) {
  for (const DType dtype : {kF32, kF64, kI64, kU8, kBool, kBF16})
    for (const Dims& sizes :
         {Dims{40, 1}, Dims{40, 2}, Dims{30, 3}, Dims{60, 5}, Dims{8, 9}, Dims{3, 20, 2}, Dims{1, 4}, Dims{7}})
      for (int64_t dim = 0; dim < sizes.size(); ++dim)
        for (const Memory memory : {Memory::contiguous, Memory::transposed}) {
          const Tensor drawn = sample(sizes, dtype, 11, memory, 1), x = dtype == kBool ? drawn : drawn.round();
          SCOPED_TRACE(std::string(name(dtype)) + " " + to_string(sizes) + " along " + std::to_string(dim));
          std::map<Values, double> counts;
          const std::vector<Values> rows = slices(x, dim);
          for (Values row : rows) {
            for (double& v : row) v += 0;  // -0 equals 0
            counts[row] += 1;
          }
          const Unique found = unique(x, true, true, true, dim);
          const std::vector<Values> got = slices(found.values, dim);
          ASSERT_EQ(got.size(), counts.size());
          size_t k = 0;
          for (const auto& [row, count] : counts) {
            EXPECT_EQ(got[k], row);
            EXPECT_EQ(element(found.counts, static_cast<int64_t>(k)), count);
            ++k;
          }
          ASSERT_EQ(found.inverse.sizes(), Dims{x.size(dim)});
          for (int64_t i = 0; i < x.size(dim); ++i)
            EXPECT_EQ(got[static_cast<size_t>(element(found.inverse, i))], rows[static_cast<size_t>(i)]);
          EXPECT_EQ(found.values.dtype(), dtype);
        }
}

TEST(UniqueSlices, of_truth_values_and_with_nans) {
  const Tensor truth = tensor_of({4, 2}, kBool, {1, 0, 0, 1, 1, 0, 0, 0});
  EXPECT_EQ(elements(truth.unique(true, false, false, 0).values), (Values{0, 0, 0, 1, 1, 0}));
  const Tensor x = tensor_of({5, 2}, kF32, {1, kNaN, 1, kNaN, 0, 2, 0, 2, -0.0, 2});
  const Unique found = x.unique(true, true, true, 0);
  EXPECT_TRUE(near(found.values, {0, 2, 1, kNaN, 1, kNaN}, 0));
  EXPECT_EQ(elements(found.inverse), (Values{1, 2, 0, 0, 0}));
  EXPECT_EQ(elements(found.counts), (Values{3, 1, 1}));
}

TEST(UniqueSlices, of_empty_tensors) {
  const Unique none = unique(zeros({0, 3}), true, true, true, 0);
  EXPECT_EQ(none.values.sizes(), (Dims{0, 3}));
  EXPECT_EQ(none.inverse.sizes(), Dims{0});
  EXPECT_EQ(none.counts.sizes(), Dims{0});
  expect_error<ShapeError>(
      [] {
        unique(zeros({3, 0}), true, false, false, 0);
      },
      "unique: the slices along dimension 0 are empty");
  EXPECT_THROW(unique(tensor({1}).squeeze(0), true, false, false, 0), IndexError);
  EXPECT_THROW(unique(zeros({3}), true, false, false, 1), IndexError);
}

TEST(UniqueSlices, give_only_what_is_asked_for_and_take_leaves) {
  const Unique found = unique(ones({3, 2}).requires_grad_(), true, false, false, 1);
  EXPECT_FALSE(found.inverse.defined());
  EXPECT_FALSE(found.counts.defined());
  EXPECT_FALSE(found.values.requires_grad());
  EXPECT_EQ(found.values.sizes(), (Dims{3, 1}));
}

TEST(UniqueConsecutive, keeps_the_first_of_each_run) {
  const Tensor x = tensor({1, 1, 2, 2, 2, 1, 3, 3});
  const Unique found = x.unique_consecutive(true, true);
  EXPECT_EQ(elements(found.values), (Values{1, 2, 1, 3}));
  EXPECT_EQ(elements(found.inverse), (Values{0, 0, 1, 1, 1, 2, 3, 3}));
  EXPECT_EQ(elements(found.counts), (Values{2, 3, 1, 2}));
  EXPECT_FALSE(x.unique_consecutive().counts.defined());
  const Unique square = unique_consecutive(x.reshape({2, 4}), true, true);
  EXPECT_EQ(square.inverse.sizes(), (Dims{2, 4}));
  EXPECT_EQ(elements(square.values), elements(found.values));
}

TEST(UniqueConsecutive, compares_slices_and_tells_nans_apart) {
  const Tensor x = tensor_of({5, 2}, kF32, {1, kNaN, 1, kNaN, 0, 2, 0, 2, -0.0, 2});
  const Unique found = unique_consecutive(x, true, true, 0);
  EXPECT_TRUE(near(found.values, {1, kNaN, 1, kNaN, 0, 2}, 0));
  EXPECT_EQ(elements(found.inverse), (Values{0, 1, 2, 2, 2}));
  EXPECT_EQ(elements(found.counts), (Values{1, 1, 3}));
  EXPECT_EQ(elements(unique_consecutive(tensor({{1, 1, 2}, {5, 5, 5}}), false, false, 1).values), (Values{1, 2, 5, 5}));
}

TEST(UniqueConsecutive, of_few_elements) {
  const Unique none = unique_consecutive(zeros({0}), true, true);
  EXPECT_EQ(none.values.sizes(), Dims{0});
  EXPECT_EQ(none.inverse.sizes(), Dims{0});
  EXPECT_EQ(none.counts.sizes(), Dims{0});
  const Unique one = unique_consecutive(full({}, 3.0), true, true);
  EXPECT_EQ(elements(one.values), Values{3});
  EXPECT_EQ(one.inverse.sizes(), Dims());
  EXPECT_EQ(elements(one.counts), Values{1});
  EXPECT_EQ(unique_consecutive(zeros({0, 3}), true, true, 0).values.sizes(), (Dims{0, 3}));
  EXPECT_THROW(unique_consecutive(zeros({3, 0}), false, false, 0), ShapeError);
}

}  // namespace
}  // namespace lorry::test
