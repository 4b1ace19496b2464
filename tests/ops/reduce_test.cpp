#include "lorry/ops/reduce.h"

#include <algorithm>
#include <numeric>

#include "lorry/device/cpu/team.h"
#include "lorry/ops/dispatch/table.h"
#include "lorry/ops/ops.h"
#include "tests/ops/reduction_reference.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

using Group = std::vector<double>;  // the elements that go into one result, in row-major order

/// The elements of x by result: an index of x belongs to the result with its kept coordinates.
std::vector<Group> groups(const Tensor& x, const Dims& dims) {
  int64_t results = 1;
  for (int d = 0; d < x.dim(); ++d)
    if (!dims.contains(d)) results *= x.size(d);
  std::vector<Group> out(static_cast<size_t>(results));
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t rest = i, at = 0, scale = 1;
    for (int d = static_cast<int>(x.dim()) - 1; d >= 0; --d) {
      const int64_t index = rest % x.size(d);
      rest /= x.size(d);
      if (dims.contains(d)) continue;
      at += index * scale;
      scale *= x.size(d);
    }
    out[static_cast<size_t>(at)].push_back(element(x, i));
  }
  return out;
}

Dims result_sizes(const Tensor& x, const Dims& dims, bool keepdim) {
  Dims sizes;
  for (int d = 0; d < x.dim(); ++d) {
    if (!dims.contains(d)) sizes.push_back(x.size(d));
    if (dims.contains(d) && keepdim) sizes.push_back(1);
  }
  return sizes;
}

double total(const Group& g, const std::function<long double(double)>& f) {
  long double sum = 0;
  for (const double v : g) sum += f(v);
  return static_cast<double>(sum);
}
double sum_of(const Group& g) {
  return total(g, [](double v) { return v; });
}
double variance_of(const Group& g, double correction) {
  const long double mean = static_cast<long double>(sum_of(g)) / static_cast<long double>(g.size());
  return total(g, [&](double v) { return (v - mean) * (v - mean); }) /
         std::max(0.0, static_cast<double>(g.size()) - correction);
}
double norm_of(const Group& g, double p) {
  if (p == 0) return total(g, [](double v) { return v != 0; });
  double peak = p > 0 ? 0 : kInf;
  if (std::isinf(p)) {
    for (const double v : g) peak = p > 0 ? std::max(peak, std::fabs(v)) : std::min(peak, std::fabs(v));
    return peak;
  }
  return std::pow(total(g, [&](double v) { return std::pow(std::fabs(static_cast<long double>(v)), p); }), 1 / p);
}

struct Case {
  const char* name;
  std::function<Tensor(const Tensor&, const Dims&, bool)> run;
  std::function<double(const Group&)> expected;
  bool floating_only = false;
  bool needs_elements = false;
  std::function<DType(DType)> dtype = [](DType t) { return t; };
};

DType wide(DType t) { return is_floating(t) ? t : kI64; }
DType truth(DType t) { return t == kU8 ? kU8 : kBool; }

DType dtype_of_result(formula::FoldResult result, DType t) {
  return result == formula::FoldResult::wide ? wide(t) : result == formula::FoldResult::truth ? truth(t) : t;
}

/// The rows of formula/reduce.def.
std::vector<Case> rows() {
  std::vector<Case> all;
  using formula::FoldResult;
#define LORRY_REDUCTION(name, fold, map, finish, result)                                            \
  all.push_back({#name, [](auto& x, auto& d, bool k) { return lorry::name(x, d, k); },              \
                 [](const Group& g) { return reduction_reference(Op::name, g); },                   \
                 FoldResult::result == FoldResult::real, FoldResult::result == FoldResult::element, \
                 [](DType t) { return dtype_of_result(FoldResult::result, t); }});
#include "lorry/formula/reduce.def"
  return all;
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"logsumexp", [](auto& x, auto& d, bool k) { return x.logsumexp(d, k); },
       [](const Group& g) { return std::log(total(g, [](double v) { return std::exp(v); })); }, false, false,
       [](DType t) { return is_floating(t) ? t : kF32; }},
  };
  for (Case& row : rows()) all.push_back(std::move(row));
  for (const double correction : {0.0, 1.0, 2.5}) {
    all.push_back({"var", [=](auto& x, auto& d, bool k) { return x.var(d, correction, k); },
                   [=](const Group& g) { return variance_of(g, correction); }, true});
    all.push_back({"std", [=](auto& x, auto& d, bool k) { return x.std(d, correction, k); },
                   [=](const Group& g) { return std::sqrt(variance_of(g, correction)); }, true});
  }
  for (const double p : {0.0, 1.0, 2.0, 3.0, 0.5, kInf})
    all.push_back({"norm", [=](auto& x, auto& d, bool k) { return x.norm(p, d, k); },
                   [=](const Group& g) { return norm_of(g, p); }, true, std::isinf(p)});
  for (const double p : {-1.0, -kInf})
    all.push_back({"norm", [=](auto& x, auto& d, bool k) { return x.norm(p, d, k); },
                   [=](const Group& g) { return norm_of(g, p); }, true, true});
  return all;
}

/// Every case on x over `dims`, with and without keepdim, dims counted from the front or the back.
void check(const Tensor& x, const Dims& dims, const std::string& what) {
  Dims named = dims;
  for (int i = 0; i < named.size(); i += 2) named[i] -= x.dim();
  const std::vector<Group> expected = groups(x, dims);
  for (const Case& c : cases()) {
    if (c.floating_only && !is_floating(x.dtype())) continue;
    if (c.needs_elements && expected.size() && expected[0].empty()) continue;
    if (c.needs_elements && x.numel() == 0) continue;
    Group want;
    for (const Group& g : expected) want.push_back(c.expected(g));
    for (const bool keepdim : {false, true}) {
      const Tensor got = c.run(x, named, keepdim);
      EXPECT_EQ(got.sizes(), result_sizes(x, dims, keepdim)) << c.name << what;
      EXPECT_EQ(got.dtype(), c.dtype(x.dtype())) << c.name << what;
      EXPECT_TRUE(near(got, want, tolerance(got.dtype()))) << c.name << what;
    }
  }
}

TEST(reduce, every_subset_of_dims_of_every_dtype_and_layout_matches_a_long_double_loop) {
  const Dims sizes{3, 2, 5, 4};
  for (const DType dtype : kDTypes)
    for (const Memory memory : kMemories) {
      const Tensor x = sample(sizes, dtype, 7, memory);
      for (int mask = 1; mask < 16; ++mask) {
        Dims dims;
        for (int d = 0; d < 4; ++d)
          if (mask >> d & 1) dims.push_back(d);
        check(x, dims, fmt::format(" of {} in memory layout {} over {}", dtype, static_cast<int>(memory), dims));
      }
    }
}

TEST(reduce, ranks_zero_to_eight_with_sizes_of_one_and_odd_lengths_match_a_long_double_loop) {
  const Dims shapes[] = {{},
                         {1},
                         {17},
                         {1, 1},
                         {65, 3},
                         {3, 67},
                         {2, 1, 9},
                         {2, 3, 1, 2, 2},
                         {1, 2, 3, 1, 2, 2},
                         {2, 1, 2, 2, 1, 2, 3},
                         {2, 2, 1, 2, 2, 2, 1, 3}};
  for (const Dims& sizes : shapes)
    for (const DType dtype : {kF32, kF64, kI32, kBF16})
      for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::sliced}) {
        const Tensor x = sample(sizes, dtype, 11, memory);
        Dims every, alternate;
        for (int d = 0; d < sizes.size(); ++d) {
          every.push_back(d);
          if (d % 2 == 0) alternate.push_back(d);
        }
        const std::string what = fmt::format(" of {} {}", sizes, dtype);
        if (sizes.empty()) {
          EXPECT_EQ(element(x.sum(), 0), element(x, 0)) << what;
          EXPECT_EQ(element(x.amax({0}), 0), element(x, 0)) << what;
          EXPECT_EQ(element(x.sum({-1}, true), 0), element(x, 0)) << what;
          continue;
        }
        check(x, every, what);
        check(x, alternate, what);
        EXPECT_TRUE(same_bits(x.sum(), x.sum(every))) << what;
      }
}

TEST(reduce, empty_dimensions_give_the_identity_or_an_empty_result) {
  const Tensor x = empty({3, 0, 2});
  check(x, {1}, " of an empty dimension");
  check(x, {0}, " beside an empty dimension");
  check(x, {0, 1, 2}, " of nothing");
  EXPECT_EQ(element(x.prod(), 0), 1);
  EXPECT_EQ(elements(x.prod(1)), Group(6, 1));
  EXPECT_TRUE(std::isnan(element(x.mean(), 0)));
  EXPECT_TRUE(std::isnan(element(x.var(), 0)));
  EXPECT_EQ(element(x.logsumexp({0, 1, 2}), 0), -kInf);
  EXPECT_EQ(element(x.count_nonzero(), 0), 0);
  EXPECT_EQ(x.amax({0}).sizes(), (Dims{0, 2}));
  EXPECT_EQ(x.cumsum(1).sizes(), x.sizes());
}

TEST(reduce, choosing_among_nothing_is_refused) {
  const Tensor x = empty({3, 0});
  expect_error<IndexError>([&] { x.amax(); }, "amax: dimension 1 is empty");
  expect_error<IndexError>([&] { x.min(1); }, "min: dimension 1 is empty");
  expect_error<IndexError>([&] { x.argmax(); }, "argmax: dimension 1 is empty");
  expect_error<IndexError>([&] { x.norm(kInf, {1}); }, "norm: dimension 1 is empty");
}

TEST(reduce, prod_cumsum_and_cumprod_match_a_loop_along_every_dimension) {
  for (const DType dtype : kDTypes)
    for (const Memory memory : kMemories) {
      const Tensor x = sample({3, 9, 17}, dtype, 5, memory, 2);
      for (int64_t dim = 0; dim < 3; ++dim) {
        const std::string what =
            fmt::format(" of {} in memory layout {} along {}", dtype, static_cast<int>(memory), dim);
        const DType out = wide(dtype);
        Group product;
        for (const Group& g : groups(x, {dim}))
          product.push_back(static_cast<double>(std::accumulate(g.begin(), g.end(), 1.0L, std::multiplies<>())));
        EXPECT_TRUE(near(x.prod(dim), product, tolerance(out))) << what;
        const Tensor sums = x.cumsum(dim - 3), products = x.cumprod(dim);
        EXPECT_EQ(sums.dtype(), out);
        const std::vector<Group> lines = groups(x, {dim}), got_sums = groups(sums, {dim}),
                                 got_products = groups(products, {dim});
        for (size_t l = 0; l < lines.size(); ++l) {
          long double s = 0, p = 1;
          for (size_t i = 0; i < lines[l].size(); ++i) {
            s += lines[l][i];
            p *= lines[l][i];
            EXPECT_NEAR(got_sums[l][i], static_cast<double>(s),
                        tolerance(out) * std::max(1.0, std::fabs(static_cast<double>(s))))
                << what;
            EXPECT_NEAR(got_products[l][i], static_cast<double>(p),
                        tolerance(out) * std::max(1.0, std::fabs(static_cast<double>(p))))
                << what;
          }
        }
      }
    }
  const Tensor number = tensor_of({}, kF32, {4});
  EXPECT_EQ(element(number.cumsum(0), 0), 4);
  EXPECT_EQ(element(number.cumprod(-1), 0), 4);
}

TEST(reduce, extremes_along_a_dimension_return_the_first_of_equals_and_its_position) {
  for (const DType dtype : kDTypes)
    for (const Memory memory : kMemories) {
      const Tensor x = sample({4, 19, 11}, dtype, 3, memory);
      for (int64_t dim = 0; dim < 3; ++dim)
        for (const bool keepdim : {false, true}) {
          auto [most, most_at] = x.max(dim, keepdim);
          auto [least, least_at] = x.min(dim - 3, keepdim);
          EXPECT_EQ(most.sizes(), result_sizes(x, {dim}, keepdim));
          EXPECT_EQ(most.dtype(), dtype);
          EXPECT_EQ(most_at.dtype(), kI64);
          Group values, positions, low_values, low_positions;
          for (const Group& g : groups(x, {dim})) {
            const auto top = std::max_element(g.begin(), g.end()), bottom = std::min_element(g.begin(), g.end());
            values.push_back(*top);
            positions.push_back(static_cast<double>(top - g.begin()));
            low_values.push_back(*bottom);
            low_positions.push_back(static_cast<double>(bottom - g.begin()));
          }
          EXPECT_EQ(elements(most), values);
          EXPECT_EQ(elements(most_at), positions);
          EXPECT_EQ(elements(least), low_values);
          EXPECT_EQ(elements(least_at), low_positions);
          EXPECT_TRUE(same_bits(x.argmax(dim, keepdim), most_at));
          EXPECT_TRUE(same_bits(x.argmin(dim, keepdim), least_at));
        }
      const Group all = elements(x);
      EXPECT_EQ(element(x.argmax(), 0), static_cast<double>(std::max_element(all.begin(), all.end()) - all.begin()));
      EXPECT_EQ(element(x.argmin(), 0), static_cast<double>(std::min_element(all.begin(), all.end()) - all.begin()));
      EXPECT_EQ(element(x.max(), 0), *std::max_element(all.begin(), all.end()));
      EXPECT_EQ(element(x.min(), 0), *std::min_element(all.begin(), all.end()));
    }
}

TEST(reduce, a_nan_anywhere_shows_in_the_result) {
  for (const int64_t n : {3, 40, 1000, 66000})
    for (const int64_t at : {int64_t{0}, n / 2, n - 1})
      for (const DType dtype : kFloatingDTypes) {
        const Tensor x = sample({n}, dtype, 9);
        set_element(x, at, kNaN);
        const std::string what = fmt::format(" of {} elements of {} with a NaN at {}", n, dtype, at);
        for (const Tensor& y :
             {x.sum(), x.mean(), x.prod(), x.amax(), x.amin(), x.max(), x.min(), x.var(), x.std(), x.norm(),
              x.norm(kInf), x.norm(-kInf), x.norm(1), x.logsumexp({0}), std::get<0>(x.max(0)), std::get<0>(x.min(0))})
          EXPECT_TRUE(std::isnan(element(y, 0))) << what;
        EXPECT_EQ(element(x.argmax(), 0), static_cast<double>(at)) << what;
        EXPECT_EQ(element(std::get<1>(x.min(0)), 0), static_cast<double>(at)) << what;
        const Tensor columns = sample({n, 9}, dtype, 2);
        set_element(columns, at * 9 + 4, kNaN);
        EXPECT_TRUE(std::isnan(element(columns.amax({0}), 4))) << what;
        EXPECT_FALSE(std::isnan(element(columns.amax({0}), 5))) << what;
        EXPECT_EQ(element(columns.argmin(0), 4), static_cast<double>(at)) << what;
      }
}

TEST(reduce, every_row_takes_nan_infinities_and_zeros_as_its_reference_does) {
  const std::vector<double> specials[] = {{1, kNaN, 2},     {kNaN, kNaN, kNaN}, {kInf, 1, -2}, {-kInf, 3, 5},
                                          {kInf, -kInf, 0}, {kNaN, kInf, 1},    {0, -0.0, 0},  {0.0, kNaN, 0}};
  for (const DType dtype : {kF16, kBF16, kF32, kF64})
    for (const auto& three : specials)
      for (const int64_t repeats : {1, 7, 90}) {
        std::vector<double> numbers;
        for (int64_t i = 0; i < repeats; ++i) numbers.insert(numbers.end(), three.begin(), three.end());
        const int64_t n = 3 * repeats;
        const Tensor row = tensor_of({n}, dtype, numbers), columns = row.unsqueeze(1).expand({n, 9}).contiguous();
        for (const Case& c : rows()) {
          const double want = c.expected(numbers);
          EXPECT_TRUE(near(c.run(row, {0}, true), {want}, tolerance(dtype))) << c.name << " of " << three[0] << "...";
          EXPECT_TRUE(near(c.run(columns, {0}, false), Group(9, want), tolerance(dtype))) << c.name;
        }
      }
}

TEST(reduce, infinities_follow_arithmetic) {
  const Tensor x = tensor_of({2, 3}, kF32, {1, -kInf, 2, kInf, 5, -kInf});
  EXPECT_TRUE(near(x.sum(1), {-kInf, kNaN}, 0));
  EXPECT_TRUE(near(x.amax({1}), {2, kInf}, 0));
  EXPECT_TRUE(near(x.logsumexp({1}), {std::log(std::exp(1.0) + std::exp(2.0)), kInf}, 1e-6));
  EXPECT_TRUE(near(tensor_of({2}, kF32, {-kInf, -kInf}).logsumexp({0}), {-kInf}, 0));
  EXPECT_TRUE(near(x.norm(-kInf, {1}), {1, 5}, 0));
  EXPECT_TRUE(near(tensor_of({2}, kF32, {-kInf, -kInf}).argmax(), {0}, 0));
}

TEST(reduce, long_sums_stay_accurate) {
  const int64_t n = 3'000'001;
  std::vector<float> numbers(static_cast<size_t>(n), 0.1f);
  Tensor x = from_data(numbers);
  const double exact = static_cast<double>(0.1f) * static_cast<double>(n);
  EXPECT_NEAR(element(x.sum(), 0), exact, exact * 2e-7);
  EXPECT_NEAR(element(x.mean(), 0), 0.1f, 2e-8);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1e4f + static_cast<float>(i % 2);
  x = from_data(numbers);
  EXPECT_NEAR(element(x.var({}, 0), 0), 0.25, 1e-6);
  const Tensor halves = empty({70000}, {kF16});
  for (int64_t i = 0; i < 70000; ++i) set_element(halves, i, 0.5);
  EXPECT_EQ(element(halves.sum({}, false, kF32), 0), 35000);
}

TEST(reduce, large_reductions_of_every_form_match_a_loop) {
  for (const Dims& sizes : {Dims{3, 70001}, Dims{70001, 3}, Dims{600, 1030}, Dims{5, 300, 9}, Dims{2, 257, 1100}})
    for (const DType dtype : {kF32, kF64, kI64, kBF16, kU8}) {
      const Tensor x = sample(sizes, dtype, 21);
      for (int d = 0; d < sizes.size(); ++d) {
        Group sums, tops, squares;
        for (const Group& g : groups(x, {d})) {
          sums.push_back(sum_of(g));
          tops.push_back(*std::max_element(g.begin(), g.end()));
          squares.push_back(is_floating(dtype) ? variance_of(g, 1) : 0);
        }
        const std::string what = fmt::format(" of {} {} along {}", sizes, dtype, d);
        EXPECT_TRUE(near(x.sum({d}), sums, tolerance(wide(dtype)))) << what;
        EXPECT_TRUE(near(x.amax({d}), tops, 0)) << what;
        EXPECT_TRUE(near(std::get<0>(x.max(d)), tops, 0)) << what;
        if (is_floating(dtype)) {
          EXPECT_TRUE(near(x.var({d}), squares, tolerance(dtype))) << what;
        }
      }
    }
}

TEST(reduce, results_do_not_depend_on_the_number_of_threads) {
  const auto rounded = [](const Tensor& x) { return x.mul(0.1); };  // its sums depend on their order
  const Tensor long_row = rounded(sample({1'000'003}, kF32, 31)), matrix = rounded(sample({1031, 517}, kF32, 32)),
               halves = rounded(sample({300, 700}, kBF16, 33));
  expect_same_for_all_thread_counts([&] {
    std::vector<Tensor> out;
    for (const Tensor& x : {long_row, matrix, halves}) {
      for (const Tensor& y : {x.sum(), x.mean(), x.var(), x.norm(), x.norm(3), x.prod(), x.amax(), x.argmax(),
                              x.sum({0}), x.std({0}), x.cumsum(0)})
        out.push_back(y);
      if (x.dim() == 2)
        for (const Tensor& y : {x.sum({1}), x.var({1}), x.argmin(0), x.logsumexp({0}), x.cumsum(1), x.cumprod(0)})
          out.push_back(y);
    }
    return out;
  });
}

TEST(reduce, a_dtype_converts_before_it_adds) {
  const Tensor bytes = tensor_of({3}, kU8, {200, 100, 50});
  EXPECT_EQ(bytes.sum().dtype(), kI64);
  EXPECT_EQ(element(bytes.sum(), 0), 350);
  EXPECT_EQ(bytes.sum({}, false, kF32).dtype(), kF32);
  EXPECT_EQ(element(bytes.mean({}, false, kF64), 0), 350.0 / 3);
  EXPECT_EQ(element(bytes.prod({}, false, kF64), 0), 1e6);
  EXPECT_EQ(element(bytes.cumsum(0, kI32), 2), 350);
  EXPECT_EQ(element(tensor_of({2}, kF32, {1.7, 1.7}).sum({}, false, kI64), 0), 2);
}

TEST(reduce, var_mean_and_count_nonzero_agree_with_their_parts) {
  const Tensor x = sample({4, 5}, kF32, 8);
  auto [variance, average] = var_mean(x, {1}, 1, true);
  EXPECT_TRUE(same_bits(variance, x.var({1}, 1, true)));
  EXPECT_TRUE(same_bits(average, x.mean({1}, true)));
  const Tensor sparse = tensor_of({2, 3}, kF32, {0, -0.0, kNaN, 2, 0, 3});
  EXPECT_EQ(elements(sparse.count_nonzero({1})), (Group{1, 2}));
  EXPECT_EQ(element(sparse.count_nonzero(), 0), 3);
  EXPECT_EQ(sparse.count_nonzero().dtype(), kI64);
}

TEST(reduce, any_byte_of_a_bool_but_zero_is_true) {
  const Tensor x = empty({4}, {kBool});
  const uint8_t bytes[] = {2, 0, 255, 1};
  write_all(x, bytes);
  EXPECT_EQ(element(x.sum(), 0), 3);
  EXPECT_EQ(element(x.count_nonzero(), 0), 3);
  EXPECT_EQ(element(x.any(), 0), 1);
  EXPECT_EQ(element(x.all(), 0), 0);
  EXPECT_EQ(element(x.amax(), 0), 1);
}

TEST(reduce, one_element_that_differs_is_counted_at_every_length_dtype_and_start) {
  for (const DType dtype : kDTypes)
    for (const int64_t length : {1, 3, 15, 16, 17, 63, 65, 1'000, 16'400, 300'001})
      for (const int64_t start : {0, 1, 3}) {
        SCOPED_TRACE(fmt::format("{} elements of {} from {} on", length, dtype, start));
        const Tensor x = zeros({start + length + 2}, {dtype}).fill_(1).slice(0, start, start + length);
        const auto expect = [&](int64_t count) {
          EXPECT_EQ(element(x.count_nonzero(), 0), static_cast<double>(count));
          EXPECT_EQ(element(x.any(), 0), count > 0);
          EXPECT_EQ(element(x.all(), 0), count == length);
        };
        expect(length);
        set_element(x, length / 2, 0);
        expect(length - 1);
        x.fill_(0);
        expect(0);
        set_element(x, length - 1, 1);
        expect(1);
      }
}

TEST(reduce, elements_of_columns_are_counted_as_a_loop_counts_them) {
  for (const DType dtype : kDTypes)
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 40}, {37, 16}, {700, 17}, {5'000, 64}}) {
      const Tensor x = sample({rows, columns}, dtype, 3);
      for (int64_t r = 0; r < rows; ++r) set_element(x, r * columns + 1, 0), set_element(x, r * columns + 2, 1);
      Group counts, any, all;
      for (const Group& g : groups(x, {0})) {
        counts.push_back(static_cast<double>(std::count_if(g.begin(), g.end(), [](double v) { return v != 0; })));
        any.push_back(counts.back() > 0);
        all.push_back(counts.back() == static_cast<double>(rows));
      }
      EXPECT_EQ(elements(x.count_nonzero({0})), counts) << dtype << " " << rows;
      EXPECT_EQ(elements(x.any({0})), any) << dtype << " " << rows;
      EXPECT_EQ(elements(x.all({0})), all) << dtype << " " << rows;
    }
}

TEST(reduce, out_forms_write_the_given_tensor_and_refuse_what_does_not_fit) {
  const Tensor x = sample({3, 4}, kF32, 6), out = empty({3}), whole = empty({3}, {kI64}), table = empty({3, 4});
  EXPECT_TRUE(same_bits(sum_out(out, x, {1}), x.sum({1})));
  EXPECT_TRUE(same_bits(mean_out(out, x, {1}), x.mean({1})));
  EXPECT_TRUE(same_bits(prod_out(out, x, 1), x.prod(1)));
  EXPECT_TRUE(same_bits(amax_out(out, x, {1}), x.amax({1})));
  EXPECT_TRUE(same_bits(amin_out(out, x, {1}), x.amin({1})));
  EXPECT_TRUE(same_bits(var_out(out, x, {1}), x.var({1})));
  EXPECT_TRUE(same_bits(std_out(out, x, {1}), x.std({1})));
  EXPECT_TRUE(same_bits(norm_out(out, x, 2, {1}), x.norm(2, {1})));
  EXPECT_TRUE(same_bits(logsumexp_out(out, x, {1}), x.logsumexp({1})));
  EXPECT_TRUE(same_bits(argmax_out(whole, x, 1), x.argmax(1)));
  EXPECT_TRUE(same_bits(argmin_out(whole, x, 1), x.argmin(1)));
  EXPECT_TRUE(same_bits(cumsum_out(table, x, 1), x.cumsum(1)));
  EXPECT_TRUE(same_bits(cumprod_out(table, x, 0), x.cumprod(0)));
  max_out(out, whole, x, 1);
  EXPECT_TRUE(same_bits(out, x.amax({1})));
  EXPECT_TRUE(same_bits(whole, x.argmax(1)));
  min_out(out, whole, x, 1);
  EXPECT_TRUE(same_bits(out, x.amin({1})));
  EXPECT_TRUE(same_bits(whole, x.argmin(1)));
  const Tensor flags = empty({3}, {kBool});
  EXPECT_TRUE(same_bits(any_out(flags, x, {1}), x.any({1})));
  EXPECT_TRUE(same_bits(all_out(flags, x, {1}), x.all({1})));
  expect_error<ShapeError>([&] { sum_out(out, x); }, "sum: out has other sizes");
  expect_error<DTypeError>([&] { sum_out(whole, x, {1}); }, "sum: the written tensor cannot store");
}

TEST(reduce, wrong_arguments_are_refused_with_the_operator_named) {
  const Tensor x = sample({3, 4}, kF32, 1), whole = sample({3}, kI32, 1);
  expect_error<IndexError>([&] { x.sum({2}); }, "sum: dimension out of range; got dim 2 of a tensor of rank 2");
  expect_error<IndexError>([&] { x.cumsum(-3); }, "cumsum: dimension out of range");
  expect_error<ShapeError>([&] { x.sum({0, -2}); }, "sum: dimension named twice");
  expect_error<DTypeError>([&] { whole.mean(); }, "mean: the input is not floating; got [3] i32");
  expect_error<DTypeError>([&] { whole.var(); }, "var: the input is not floating");
  expect_error<DTypeError>([&] { whole.norm(); }, "norm: the input is not floating");
  expect_error<ValueError>([&] { sum(Tensor()); }, "sum: x is an undefined tensor");
}

TEST(reduce, elements_of_16_bits_are_folded_as_the_f32_that_they_are) {
  for (const DType dtype : {kBF16, kF16})
    for (const Dims& sizes : {Dims{3, 5}, Dims{40, 17}, Dims{9, 100}, Dims{300, 1030}, Dims{2, 4099}}) {
      const Tensor whole = sample({sizes[0], sizes[1] + 1}, dtype, 1), x = whole.narrow(1, 1, sizes[1]),
                   wide = x.to(kF32);
      for (const Dims& dims : {Dims{0}, Dims{1}, Dims{}}) {
        EXPECT_TRUE(same_bits(x.sum(dims), wide.sum(dims).to(dtype)));
        EXPECT_TRUE(same_bits(x.amax(dims), wide.amax(dims).to(dtype)));
        EXPECT_TRUE(same_bits(x.amin(dims), wide.amin(dims).to(dtype)));
        EXPECT_TRUE(same_bits(x.norm(2, dims), wide.norm(2, dims).to(dtype)));
      }
    }
}

TEST(reduce, the_sum_of_every_second_element_is_that_of_a_copy) {
  for (const DType dtype : {kF32, kF64, kI64})
    for (const int64_t n : {1, 2, 16, 17, 31, 33, 1000, 70000}) {
      // These sums are exact in any order: this tells whether the right elements are read.
      const Tensor x = sample({2 * n - 1}, dtype, 1).slice(0, 0, 2 * n - 1, 2);
      EXPECT_TRUE(same_bits(x.sum(), x.contiguous().sum()));
    }
}

TEST(reduce, a_dot_product_is_near_the_exact_sum_for_any_strides_and_threads) {
  const int before = cpu::threads();
  for (const DType dtype : {kF32, kF64, kBF16, kF16, kI64, kI32, kU8})
    for (const int64_t n : {0, 1, 7, 16, 17, 100, 520, 1023, 1025, 1034, 32769, 100000}) {
      const auto matrix = [&](int64_t columns, int seed) {
        const Tensor m = sample({n, columns}, dtype, seed);
        return is_floating(dtype) ? m.mul(0.1) : m;  // with products that are rounded
      };
      const Tensor a = matrix(2, 1).select(1, 1), b = matrix(3, 2).select(1, 0);
      const Tensor x = a.contiguous(), y = b.contiguous(), result = dot(x, y);
      EXPECT_TRUE(same_bits(result, dot(a, y)));
      EXPECT_TRUE(same_bits(result, dot(x, b)));
      cpu::set_threads(before == 1 ? 3 : 1);
      EXPECT_TRUE(same_bits(result, dot(x, y)));
      cpu::set_threads(before);
      if (!is_floating(dtype)) {
        EXPECT_TRUE(same_bits(result, x.mul(y).sum().to(dtype)));
        continue;
      }
      const Tensor products = x.to(kF64).mul(y.to(kF64));
      const double exact = products.sum().item<double>(), scale = products.abs().sum().item<double>();
      const double rounding = dtype == kBF16 ? 0x1p-8 : dtype == kF16 ? 0x1p-11 : dtype == kF32 ? 0x1p-22 : 0x1p-50;
      EXPECT_NEAR(result.item<double>(), exact, rounding * scale) << name(dtype) << " " << n;
    }
}

}  // namespace
}  // namespace lorry::test
