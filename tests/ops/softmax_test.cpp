#include "lorry/ops/softmax.h"

#include <algorithm>

#include "lorry/autograd/grad_mode.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

/// Calls f with the row-major positions of the elements of each line along `dim`.
void for_each_line(const Dims& sizes, int64_t dim, const std::function<void(const std::vector<size_t>&)>& f) {
  int64_t inner = 1, numel = 1;
  for (int d = 0; d < sizes.size(); ++d) {
    numel *= sizes[d];
    if (d > dim) inner *= sizes[d];
  }
  const int64_t n = sizes.empty() ? 1 : sizes[static_cast<int>(dim)];
  for (int64_t i = 0; i < numel; ++i) {
    if (i / inner % n != 0) continue;
    std::vector<size_t> line;
    for (int64_t k = 0; k < n; ++k) line.push_back(static_cast<size_t>(i + k * inner));
    f(line);
  }
}

std::vector<double> expected_softmax(const Tensor& x, int64_t dim, bool log) {
  const std::vector<double> v = elements(x);
  std::vector<double> out(v.size());
  for_each_line(x.sizes(), dim, [&](const std::vector<size_t>& line) {
    double peak = -kInf;
    for (const size_t i : line) peak = std::max(peak, v[i]);
    long double sum = 0;
    for (const size_t i : line) sum += std::exp(static_cast<long double>(v[i] - peak));
    for (const size_t i : line)
      out[i] = static_cast<double>(log ? v[i] - peak - std::log(sum)
                                       : std::exp(static_cast<long double>(v[i] - peak)) / sum);
  });
  return out;
}

TEST(softmax, every_dimension_of_every_dtype_and_layout_matches_a_long_double_loop) {
  for (const Dims& sizes :
       {Dims{}, Dims{1}, Dims{77}, Dims{5, 33}, Dims{2, 3, 64}, Dims{3, 70, 5}, Dims{2, 1, 3, 2, 1, 2, 3, 4}})
    for (const DType dtype : kFloatingDTypes)
      for (const Memory memory : kMemories) {
        const Tensor x = sample(sizes, dtype, 4, memory, 6);
        for (int64_t dim = 0; dim < std::max<int64_t>(1, x.dim()); ++dim) {
          const std::string what = fmt::format(" of {} {} along {}", sizes, dtype, dim);
          const Tensor y = x.softmax(dim), z = x.log_softmax(dim - std::max<int64_t>(1, x.dim()));
          EXPECT_EQ(y.sizes(), sizes);
          EXPECT_EQ(y.dtype(), dtype);
          EXPECT_TRUE(near(y, expected_softmax(x, dim, false), tolerance(dtype))) << what;
          EXPECT_TRUE(near(z, expected_softmax(x, dim, true), tolerance(dtype))) << what;
        }
      }
}

TEST(softmax, many_short_rows_of_every_length_match_a_long_double_loop) {
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 17, 31, 33}) {
      const std::string what = fmt::format(" of rows of {} {}", n, dtype);
      const Tensor x = sample({1031, n}, dtype, 5), grad = sample({1031, n}, dtype, 6);
      const Tensor y = x.softmax(1), z = x.log_softmax(1);
      EXPECT_TRUE(near(y, expected_softmax(x, 1, false), tolerance(dtype))) << what;
      EXPECT_TRUE(near(z, expected_softmax(x, 1, true), tolerance(dtype))) << what;
      const std::vector<double> g = elements(grad), p = elements(y), l = elements(z);
      std::vector<double> plain(g.size()), logarithmic(g.size());
      for_each_line(x.sizes(), 1, [&](const std::vector<size_t>& line) {
        double along = 0, total = 0;
        for (const size_t i : line) along += g[i] * p[i], total += g[i];
        for (const size_t i : line) plain[i] = p[i] * (g[i] - along), logarithmic[i] = g[i] - std::exp(l[i]) * total;
      });
      EXPECT_TRUE(near(softmax_backward(grad, y, 1), plain, 4 * tolerance(dtype))) << what;
      EXPECT_TRUE(near(log_softmax_backward(grad, z, 1), logarithmic, 16 * tolerance(dtype))) << what;
    }
}

TEST(softmax, columns_are_contiguous_and_have_the_bits_of_rows) {
  const auto as_rows = [](const Tensor& x) { return x.transpose(1, 2).contiguous(); };
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t n : {1, 2, 5, 16, 17, 64, 65, 200, 513, 1024, 1025, 2500})
      for (const int64_t width : {2, 7, 16, 37, 1024}) {
        if (width == 1024 && n != 17 && n != 1025) continue;
        const Tensor x = randn({3, n, width}).to(dtype), grad = randn({3, n, width}).to(dtype);
        x[0][n / 2].slice(0, 0, 2).copy_(tensor_of({2}, dtype, {kNaN, kInf}));
        x[1][n - 1].fill_(-0.0), x[2].select(1, 1).fill_(-kInf);
        const Tensor y = x.softmax(1), z = x.log_softmax(1), rows_y = as_rows(x).softmax(2),
                     rows_z = as_rows(x).log_softmax(2);
        const auto expect_rows = [&](const Tensor& columns, const Tensor& rows) {
          EXPECT_TRUE(columns.is_contiguous());
          EXPECT_TRUE(same_bits(as_rows(columns).to(kCPU), rows.to(kCPU)))
              << fmt::format("{} columns of {} {}", width, n, dtype);
        };
        expect_rows(y, rows_y);
        expect_rows(z, rows_z);
        expect_rows(softmax_backward(grad, y, 1), softmax_backward(as_rows(grad), rows_y, 2));
        expect_rows(log_softmax_backward(grad, z, 1), log_softmax_backward(as_rows(grad), rows_z, 2));
      }
}

TEST(softmax, far_apart_and_huge_inputs_neither_overflow_nor_vanish) {
  const Tensor x = tensor_of({2, 4}, kF32, {1e30, 1e30, -1e30, 0, -5000, -5001, -5002, -1e38});
  EXPECT_TRUE(near(x.softmax(1), expected_softmax(x, 1, false), 1e-6));
  EXPECT_TRUE(near(x.log_softmax(1), expected_softmax(x, 1, true), 1e-6));
  EXPECT_EQ(element(x.log_softmax(1), 2), static_cast<double>(-2e30f));
}

TEST(softmax, infinities_and_nans_come_out_as_the_plain_formula_has_them) {
  const Tensor x = tensor_of({4, 3}, kF32, {0, -kInf, 0, -kInf, -kInf, -kInf, kInf, 0, 1, kNaN, 0, 1});
  EXPECT_TRUE(near(x.softmax(1), {0.5, 0, 0.5, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN}, 0));
  const double half = std::log(0.5);
  EXPECT_TRUE(near(x.log_softmax(1), {half, -kInf, half, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN}, 1e-7));
}

TEST(softmax, backward_in_one_pass_matches_its_formula) {
  for (const DType dtype : {kBF16, kF32, kF64})
    for (int64_t dim = 0; dim < 2; ++dim) {
      const Tensor x = sample({37, 45}, dtype, 12), grad = sample({37, 45}, dtype, 13, Memory::transposed);
      const Tensor y = x.softmax(dim), z = x.log_softmax(dim);
      const std::vector<double> g = elements(grad), p = elements(y), l = elements(z);
      std::vector<double> plain(g.size()), logarithmic(g.size());
      for_each_line(x.sizes(), dim, [&](const std::vector<size_t>& line) {
        double along = 0, total = 0;
        for (const size_t i : line) along += g[i] * p[i], total += g[i];
        for (const size_t i : line) plain[i] = p[i] * (g[i] - along), logarithmic[i] = g[i] - std::exp(l[i]) * total;
      });
      EXPECT_TRUE(near(softmax_backward(grad, y, dim), plain, 4 * tolerance(dtype)));
      EXPECT_TRUE(near(log_softmax_backward(grad, z, dim), logarithmic, 16 * tolerance(dtype)));
    }
  EXPECT_TRUE(std::isnan(
      element(log_softmax_backward(tensor_of({2}, kF32, {1, 1}), tensor_of({2}, kF32, {kNaN, kNaN}), 0), 0)));
}

TEST(softmax, empty_inputs_give_empty_results) {
  EXPECT_EQ(empty({0, 3}).softmax(1).sizes(), (Dims{0, 3}));
  EXPECT_EQ(empty({3, 0}).log_softmax(1).sizes(), (Dims{3, 0}));
  EXPECT_EQ(empty({3, 0}).softmax(0).sizes(), (Dims{3, 0}));
}

TEST(softmax, a_dtype_converts_first_and_out_takes_the_result) {
  const Tensor x = tensor_of({3}, kI32, {1, 2, 3}), out = empty({3});
  EXPECT_TRUE(same_bits(x.softmax(0, kF32), tensor_of({3}, kF32, {1, 2, 3}).softmax(0)));
  EXPECT_TRUE(same_bits(softmax_out(out, x, 0, kF32), x.softmax(0, kF32)));
  EXPECT_TRUE(same_bits(log_softmax_out(out, x, 0, kF32), x.log_softmax(0, kF32)));
  expect_error<DTypeError>([&] { x.softmax(0); }, "softmax: the input is not floating; got [3] i32");
  expect_error<IndexError>([&] { out.log_softmax(1); }, "log_softmax: dimension out of range");
}

TEST(softmax, results_do_not_depend_on_the_number_of_threads) {
  const Tensor x = sample({301, 173}, kF32, 14), grad = sample({301, 173}, kF32, 15),
               halves = sample({301, 173}, kBF16, 16);
  expect_same_for_all_thread_counts([&] {
    const Tensor y = x.softmax(1), z = x.log_softmax(0), columns = halves.softmax(0);
    return std::vector<Tensor>{
        y, z, halves.softmax(1), columns, softmax_backward(grad, y, 1), log_softmax_backward(grad, z, 0)};
  });
}

}  // namespace
}  // namespace lorry::test
