// Reductions whose outputs are split among blocks: the last block adds the parts up, and which one that is shows in no
// bit.

#include <functional>
#include <limits>

#include "lorry/device/launches.h"
#include "lorry/ops/ops.h"
#include "tests/support/dtypes.h"
#include "tests/support/on_cuda.h"

namespace lorry {
namespace {

using test::kGPU;

struct ReduceCase {
  const char* name;
  std::function<Tensor(const Tensor&)> run;
  double tolerance;  ///< of the result's size
};

/// Whose products stay in the range of every type.
Tensor near_1(const Tensor& x) { return x.mul(0.01).add(1); }

const ReduceCase kReduceCases[] = {
    {"sum of all", [](const Tensor& x) { return x.sum(); }, 1e-5},
    {"sum of columns", [](const Tensor& x) { return x.sum({0}); }, 1e-5},
    {"sum of few rows", [](const Tensor& x) { return x.narrow(0, 0, 3).sum({1}); }, 1e-5},
    {"sum of a view with gaps", [](const Tensor& x) { return x.slice(1, 0, x.size(1), 2).sum({0}); }, 1e-5},
    {"largest of columns", [](const Tensor& x) { return x.amax({0}); }, 0},
    {"variance of columns", [](const Tensor& x) { return x.var({0}); }, 1e-5},
    {"index of the largest", [](const Tensor& x) { return x.flatten().argmax(0); }, 0},
    {"index of the largest of rows", [](const Tensor& x) { return x.argmax(1); }, 0},
    {"index of the smallest of columns", [](const Tensor& x) { return x.argmin(0); }, 0},
    {"sum of every second", [](const Tensor& x) { return x.flatten().slice(0, 0, x.numel(), 2).sum(); }, 1e-5},
    {"product of all", [](const Tensor& x) { return near_1(x).prod(); }, 1e-5},
    {"product of columns", [](const Tensor& x) { return near_1(x).prod(0); }, 1e-5},
    {"product of few rows", [](const Tensor& x) { return near_1(x.narrow(0, 0, 3)).prod(1); }, 1e-5},
    {"count of all", [](const Tensor& x) { return x.gt(0.2).count_nonzero(); }, 0},
    {"count of columns", [](const Tensor& x) { return x.gt(0.2).count_nonzero({0}); }, 0},
    {"norm of all", [](const Tensor& x) { return x.norm(); }, 1e-5}};

/// A number for every element, many of them alike, most within [-1, 1].
Tensor values(int64_t rows, int64_t columns, DType dtype) {
  const Tensor x = arange(rows * columns, {kF32, kCPU}).mul(0.7311).sin();
  return x.view({rows, columns}).to(dtype);
}

TEST(CudaReduce, parts_add_up_to_what_the_cpu_says) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const DType dtype : test::kFloatingDTypes)
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{40'000, 24}, {40'003, 33}, {6'000, 700}, {3, 900'001}}) {
      const Tensor x = values(rows, columns, dtype), there = x.to(kGPU);
      for (const ReduceCase& c : kReduceCases) {
        SCOPED_TRACE(testing::Message() << c.name << " of " << name(dtype) << " [" << rows << ", " << columns << "]");
        const Tensor got = c.run(there).cpu().to(kF64), want = c.run(x).to(kF64);
        // Both round once to the result's type, and may fall on either side.
        const double tolerance = c.tolerance == 0 ? 0 : dtype == kBF16 ? 0.01 : dtype == kF16 ? 0.002 : c.tolerance;
        EXPECT_TRUE(allclose(got, want, tolerance, 10 * tolerance));
      }
    }
}

// The order of a row's sums depends on its length alone: neither on how many rows there are, nor on where it begins.
TEST(CudaReduce, a_row_has_the_same_total_alone_and_at_any_address) {
  LORRY_SKIP_WITHOUT_CUDA();
  const auto folds = [](const Tensor& x) {
    return cat({x.sum({1}), x.mean({1}), x.amax({1}), x.amin({1}), x.norm(2, {1})}, 0);
  };
  for (const DType dtype : test::kFloatingDTypes)
    for (const int64_t n : {8, 24, 64, 256, 264, 1'000, 1'032, 4'096, 8'192, 8'200, 16'384, 16'392}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ", " << n);
      const int64_t rows = n < 300 ? 5'000 : 40;
      const Tensor x = values(rows, n, dtype).to(kGPU), all = folds(x).view({5, rows});
      const Tensor shifted = empty({rows * n + 1}, {dtype, kGPU}).slice(0, 1).view({rows, n});
      shifted.copy_(x);
      EXPECT_TRUE(folds(shifted).view({5, rows}).equal(all));
      for (const int64_t row : {int64_t{0}, int64_t{7}, rows - 1})
        EXPECT_TRUE(folds(x.narrow(0, row, 1)).equal(all.select(1, row))) << row;
      const Tensor want = folds(x.cpu().to(kF64)).view({5, rows});
      const double tolerance = dtype == kBF16 ? 0.01 : dtype == kF16 ? 0.002 : 1e-5;
      EXPECT_TRUE(allclose(all.cpu().to(kF64), want, tolerance, 10 * tolerance));
    }
}

TEST(CudaReduce, nan_and_infinities_are_folded_as_on_the_cpu) {
  LORRY_SKIP_WITHOUT_CUDA();
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : test::kFloatingDTypes)
    for (const int64_t n : {8, 256, 2'048}) {
      const Tensor x = values(6, n, dtype);
      x.select(0, 1).select(0, n - 1).fill_(kNaN);
      x.select(0, 2).select(0, 3).fill_(kInfinity);
      x.select(0, 3).select(0, 0).fill_(-kInfinity);
      x.select(0, 4).fill_(-0.0);
      x.select(0, 5).fill_(-kInfinity);
      for (const auto& fold :
           {+[](const Tensor& t) { return t.sum({1}); }, +[](const Tensor& t) { return t.amax({1}); },
            +[](const Tensor& t) { return t.amin({1}); }}) {
        const Tensor got = fold(x.to(kGPU)).cpu().to(kF64), want = fold(x).to(kF64);
        EXPECT_TRUE(allclose(got, want, 0.01, 0.01, true)) << name(dtype) << ", " << n << "\n" << got << want;
      }
    }
}

TEST(CudaReduce, a_product_leaves_the_range_of_f32_and_comes_back) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const int64_t length : {16, 64, 120})
    for (const int64_t others : {1, 5, 700}) {
      const Tensor x = empty({length, others}, {kF32, kGPU});
      x.narrow(0, 0, length / 2).fill_(1e4);
      x.narrow(0, length / 2, length / 2).fill_(1e-4);
      for (const Tensor& y : {x.prod(0), x.t().prod(1), x.t().contiguous().prod(1), x.t().contiguous().t().prod(0)})
        EXPECT_TRUE(allclose(y.cpu(), ones({others}, {kF32, kCPU}), 1e-4, 0)) << length << " x " << others;
    }
}

TEST(CudaReduce, a_split_reduction_is_one_launch) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Tensor x = values(40'000, 64, kBF16).to(kGPU);
  for (const ReduceCase& c : {kReduceCases[0], kReduceCases[1]}) {
    const device::LaunchCount count;
    c.run(x);
    EXPECT_EQ(count.kernels(), 1) << c.name;
  }
}

TEST(CudaReduce, the_same_bits_come_from_every_stream_at_once) {
  LORRY_SKIP_WITHOUT_CUDA();
  std::vector<OwnedStream> owned;
  for (int i = 0; i < 6; ++i) owned.emplace_back(kGPU);
  for (const DType dtype : {kBF16, kF32}) {
    const Tensor x = values(20'000, 96, dtype).to(kGPU);
    device::synchronize(kGPU);
    for (const ReduceCase& c : kReduceCases) {
      const Tensor first = c.run(x);
      device::synchronize(kGPU);
      std::vector<Tensor> results;
      for (int round = 0; round < 20; ++round)
        for (const OwnedStream& stream : owned) {
          const StreamScope scope(stream);
          results.push_back(c.run(x));
        }
      device::synchronize(kGPU);
      for (const Tensor& got : results) ASSERT_TRUE(got.equal(first)) << c.name << " of " << name(dtype);
    }
  }
}

}  // namespace
}  // namespace lorry
