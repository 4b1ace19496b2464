#include "lorry/ops/sort.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

/// True when a comes before b: NaN above every number.
bool before(double a, double b, bool descending) {
  const bool less = std::isnan(b) ? !std::isnan(a) : a < b, greater = std::isnan(a) ? !std::isnan(b) : a > b;
  return descending ? greater : less;
}

/// The element of x at row-major position `line` of the other dimensions and index i along `dim`.
int64_t position(const Tensor& x, int64_t dim, int64_t line, int64_t i) {
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t n = x.dim() == 0 ? 1 : x.size(dim);
  return (line / inner * n + i) * inner + line % inner;
}

/// The stable order of a line.
std::vector<int64_t> order_of(const Tensor& x, int64_t dim, int64_t line, bool descending) {
  std::vector<int64_t> order(static_cast<size_t>(x.dim() == 0 ? 1 : x.size(dim)));
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int64_t i) { return element(x, position(x, dim, line, i)); };
  std::ranges::sort(order, [&](int64_t a, int64_t b) {
    if (before(at(a), at(b), descending)) return true;
    return !before(at(b), at(a), descending) && a < b;
  });
  return order;
}

Tensor with_nans(Tensor x) {
  if (is_floating(x.dtype()))
    for (int64_t i = 0; i < x.numel(); i += 7) set_element(x, i, i % 2 ? kNaN : (i % 3 ? -0.0 : kInf));
  return x;
}

TEST(sort, orders_every_dimension_of_every_dtype_and_layout_stably_with_nan_last) {
  for (const Dims& sizes :
       {Dims{}, Dims{1}, Dims{9}, Dims{700}, Dims{5, 31}, Dims{3, 300, 2}, Dims{2, 1, 3, 2, 1, 2, 2, 3}})
    for (const DType dtype : kDTypes)
      for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::expanded}) {
        const Tensor x = with_nans(sample(sizes, dtype, 17, memory, 20));
        for (int64_t dim = 0; dim < std::max<int64_t>(1, x.dim()); ++dim)
          for (const bool descending : {false, true}) {
            auto [values, indices] = x.sort(dim, descending);
            ASSERT_EQ(values.sizes(), sizes);
            ASSERT_EQ(values.dtype(), dtype);
            ASSERT_EQ(indices.dtype(), kI64);
            const int64_t n = x.dim() == 0 ? 1 : x.size(dim);
            for (int64_t line = 0; line < x.numel() / n; ++line) {
              const std::vector<int64_t> order = order_of(x, dim, line, descending);
              for (int64_t i = 0; i < n; ++i) {
                const int64_t at = position(x, dim, line, i);
                ASSERT_EQ(element(indices, at), static_cast<double>(order[i]))
                    << sizes.size() << " dims, along " << dim;
                const double want = element(x, position(x, dim, line, order[i])), got = element(values, at);
                ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)));
              }
            }
            EXPECT_TRUE(same_bits(x.argsort(dim, descending), indices));
          }
      }
}

TEST(sort, extreme_values_of_every_whole_dtype_keep_their_order) {
  for (const DType dtype : kShortDTypes)
    visit(dtype, [&]<class T>(Type<T>) {
      const double low = static_cast<double>(std::numeric_limits<T>::lowest()),
                   high = static_cast<double>(std::numeric_limits<T>::max());
      EXPECT_EQ(elements(std::get<0>(tensor_of({4}, dtype, {high, low, 0, 1}).sort())),
                low < 0 ? (std::vector<double>{low, 0, 1, high}) : (std::vector<double>{0, 0, 1, high}));
    });
  const Tensor x = from_data(std::vector<int64_t>{INT64_MAX, INT64_MIN, INT64_MAX - 1});
  EXPECT_EQ(elements(x.argsort()), (std::vector<double>{1, 2, 0}));
}

TEST(sort, every_byte_of_a_truth_value_but_0_is_true) {
  for (const int64_t n : {5, 50, 3000, 100'000}) {
    const Tensor bytes = arange(n, {kI64}).mul(7919).remainder(5).to(kU8), truth = bytes.ne(0), x = bytes.view(kBool);
    for (const bool descending : {false, true}) {
      const auto [values, indices] = x.sort(0, descending);
      const auto [want, order] = truth.sort(0, descending);
      EXPECT_TRUE(same_bits(values, want) && same_bits(indices, order)) << n;
      EXPECT_TRUE(same_bits(std::get<1>(x.topk(3, 0, descending)), order.narrow(0, 0, 3))) << n;
    }
    const Unique distinct = unique(x, true, true, true), wanted = unique(truth, true, true, true);
    EXPECT_TRUE(same_bits(distinct.values, wanted.values) && same_bits(distinct.inverse, wanted.inverse)) << n;
    EXPECT_TRUE(same_bits(distinct.counts, wanted.counts)) << n;
  }
}

TEST(sort, topk_gives_the_first_k_of_the_stable_order) {
  for (const Dims& sizes : {Dims{50}, Dims{4, 9}, Dims{3, 400, 2}})
    for (const DType dtype : {kF32, kF64, kBF16, kI64, kU8})
      for (const bool largest : {true, false}) {
        const Tensor x = with_nans(sample(sizes, dtype, 19, Memory::sliced, 30));
        for (int64_t dim = 0; dim < x.dim(); ++dim)
          for (const int64_t k : {int64_t{0}, int64_t{1}, std::min<int64_t>(5, x.size(dim)), x.size(dim)}) {
            auto [values, indices] = x.topk(k, dim, largest);
            auto [all, order] = x.sort(dim, largest);
            EXPECT_TRUE(same_bits(values, all.narrow(dim, 0, k)));
            EXPECT_TRUE(same_bits(indices, order.narrow(dim, 0, k)));
          }
      }
}

/// Numbers of very different size, many of them equal: the keys of a line differ in all their bits.
Tensor wide_sample(const Dims& sizes, DType dtype) {
  const Tensor x = with_nans(sample(sizes, dtype, 41, Memory::contiguous, 1000));
  if (dtype == kI64)
    for (int64_t i = 0; i < x.numel(); i += 11) set_element(x, i, i % 2 ? -0x1p63 : 0x1p62 + 0x1p20 * (i % 3));
  if (dtype == kF64) x.narrow(1, 0, sizes[1] / 2).mul_(0x1p-50).add_(1);
  return x;
}

TEST(sort, lines_of_every_length_follow_the_stable_order_whatever_their_keys_are) {
  for (const int64_t n : {63, 64, 65, 127, 1023, 4099, 70001})
    for (const DType dtype : {kF32, kF64, kI64, kI32, kBF16, kU8, kBool})
      for (const bool descending : {false, true}) {
        const Tensor x = wide_sample({2, n}, dtype);
        auto [values, indices] = x.sort(1, descending);
        for (int64_t line = 0; line < 2; ++line) {
          const std::vector<int64_t> order = order_of(x, 1, line, descending);
          ASSERT_EQ(indices.select(0, line).to_vector<int64_t>(), order) << n << " of " << dtype;
        }
        EXPECT_TRUE(same_bits(values, x.gather(1, indices)));
        for (const int64_t k : {int64_t{1}, n / 70 + 1, n / 20, n / 2, n - 1}) {
          auto [top, at] = x.topk(k, 1, descending);
          EXPECT_TRUE(same_bits(top, values.narrow(1, 0, k))) << k << " of " << n << " of " << dtype;
          EXPECT_TRUE(same_bits(at, indices.narrow(1, 0, k))) << k << " of " << n << " of " << dtype;
        }
      }
}

TEST(sort, topk_of_long_lines_keeps_the_order_of_equal_elements) {
  for (const DType dtype : {kF32, kI64, kBF16, kU8}) {
    const Tensor wide = wide_sample({3, 40001}, dtype);
    wide.select(0, 1).fill_(1);
    for (const int64_t n : {4097, 8191, 8192, 8193, 40001})
      for (const bool largest : {true, false}) {
        const Tensor x = wide.narrow(1, 0, n);
        auto [all, order] = x.sort(1, largest);
        for (const int64_t k : {1, 2, 50, 1025, 4095, 4096, 4097}) {
          auto [top, at] = x.topk(k, 1, largest);
          EXPECT_TRUE(same_bits(top, all.narrow(1, 0, k))) << k << " of " << n << " of " << dtype;
          EXPECT_TRUE(same_bits(at, order.narrow(1, 0, k))) << k << " of " << n << " of " << dtype;
        }
      }
  }
}

TEST(sort, topk_of_one_line_of_many_chunks) {
  const int64_t n = (int64_t{1} << 20) + 77;
  const Tensor whole = arange(n).mul(7919).remainder(1009);  // every value a thousand times
  for (const Tensor& x : {whole, whole.to(kF32).mul(0x1p-140)}) {
    auto [all, order] = x.sort(0, true);
    for (const int64_t k : {int64_t{1}, int64_t{3000}, int64_t{4096}}) {
      auto [top, at] = x.topk(k);
      EXPECT_TRUE(same_bits(top, all.narrow(0, 0, k))) << k;
      EXPECT_TRUE(same_bits(at, order.narrow(0, 0, k))) << k;
    }
  }
}

TEST(sort, kthvalue_and_median_agree_with_the_sorted_line) {
  const Tensor x = sample({5, 8, 3}, kF32, 23);
  for (int64_t dim = 0; dim < 3; ++dim) {
    auto [sorted, order] = x.sort(dim);
    for (int64_t k = 1; k <= x.size(dim); ++k) {
      auto [value, index] = kthvalue(x, k, dim);
      EXPECT_TRUE(same_bits(value, sorted.select(dim, k - 1)));
      EXPECT_TRUE(same_bits(index, order.select(dim, k - 1)));
    }
    auto [value, index] = median(x, dim, true);
    EXPECT_TRUE(same_bits(value, sorted.narrow(dim, (x.size(dim) - 1) / 2, 1)));
    EXPECT_TRUE(same_bits(x.gather(dim, index), value));
  }
  auto [poisoned, at] = median(tensor_of({2, 3}, kF32, {1, kNaN, 2, 5, 4, 6}), 1);
  EXPECT_TRUE(near(poisoned, {kNaN, 5}, 0));
  EXPECT_EQ(elements(at), (std::vector<double>{1, 0}));
}

TEST(sort, unique_gives_distinct_values_their_places_and_their_counts) {
  for (const DType dtype : kDTypes)
    for (const Memory memory : kMemories) {
      const Tensor x = sample({7, 60}, dtype, 29, memory, 12);
      const Unique u = unique(x, true, true, true);
      std::map<double, double> counts;
      for (const double v : elements(x)) ++counts[v];
      std::vector<double> values, occurrences;
      for (const auto& [value, count] : counts) {
        values.push_back(value);
        occurrences.push_back(count);
      }
      EXPECT_EQ(elements(u.values), values);
      EXPECT_EQ(u.values.dtype(), dtype);
      EXPECT_EQ(elements(u.counts), occurrences);
      ASSERT_EQ(u.inverse.sizes(), x.sizes());
      for (int64_t i = 0; i < x.numel(); ++i)
        ASSERT_EQ(values[static_cast<size_t>(element(u.inverse, i))], element(x, i));
      EXPECT_FALSE(unique(x).inverse.defined());
    }
  EXPECT_EQ(unique(empty({0, 4})).values.sizes(), (Dims{0}));
  EXPECT_EQ(unique(tensor_of({3}, kF32, {kNaN, 1, kNaN})).values.numel(), 3);
}

/// unique(x) against the runs of the sorted vector; of equal elements, the first counts.
void expect_distinct(const Tensor& x, const std::string& what) {
  auto [sorted, order] = x.sort();
  const std::vector<double> v = elements(sorted);
  const std::vector<int64_t> places = order.to_vector<int64_t>();
  std::vector<int64_t> heads, counts, inverse(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    if (i == 0 || v[i] != v[i - 1]) heads.push_back(places[i]), counts.push_back(0);
    ++counts.back();
    inverse[static_cast<size_t>(places[i])] = static_cast<int64_t>(heads.size()) - 1;
  }
  const Unique all = unique(x, true, true, true);
  const Tensor values = x.index_select(0, from_data(heads).to(x.device()));
  EXPECT_TRUE(same_bits(all.values, values)) << what;
  EXPECT_EQ(all.counts.to_vector<int64_t>(), counts) << what;
  EXPECT_EQ(all.inverse.to_vector<int64_t>(), inverse) << what;
  EXPECT_TRUE(same_bits(unique(x).values, values)) << what;
  const Unique counted = unique(x, true, false, true);
  EXPECT_TRUE(same_bits(counted.values, values)) << what;
  EXPECT_EQ(counted.counts.to_vector<int64_t>(), counts) << what;
}

TEST(sort, unique_of_many_elements_agrees_with_the_sorted_vector) {
  constexpr int64_t kMany = (1 << 17) + 4097;
  for (const DType dtype : {kF32, kF64, kBF16, kI64, kI32, kI16, kU8, kBool}) {
    const Tensor wide = wide_sample({1, kMany}, dtype).reshape({-1});
    for (const int64_t n : {int64_t{1023}, int64_t{1025}, int64_t{5000}, int64_t{(1 << 17) - 1}, kMany}) {
      const std::string what = fmt::format("{} of {}", n, dtype);
      expect_distinct(wide.narrow(0, 0, n), what);
      expect_distinct(wide.slice(0, 0, n, 3), what + ", every third");
      expect_distinct(full({n}, 1, {dtype}), what + ", all equal");
      expect_distinct(arange(n).remainder(97).to(dtype), what + ", few values");
      if (dtype != kU8 && dtype != kBool)
        expect_distinct(arange(n).remainder(200).sub(100).to(dtype), what + ", signs");
    }
  }
}

TEST(sort, out_forms_write_both_tensors_or_neither) {
  const Tensor x = sample({3, 5}, kF32, 37), values = empty({3, 5}), indices = empty({3, 5}, {kI64}),
               few = empty({3, 2}), few_at = empty({3, 2}, {kI64});
  sort_out(values, indices, x, 1, true);
  EXPECT_TRUE(same_bits(values, std::get<0>(x.sort(1, true))));
  EXPECT_TRUE(same_bits(indices, std::get<1>(x.sort(1, true))));
  topk_out(few, few_at, x, 2);
  EXPECT_TRUE(same_bits(few, std::get<0>(x.topk(2))));
  EXPECT_TRUE(same_bits(few_at, std::get<1>(x.topk(2))));
  const Tensor before = values.clone();
  expect_error<ShapeError>([&] { sort_out(values, few_at, x, 1); }, "sort: out has other sizes");
  EXPECT_TRUE(same_bits(values, before));
}

TEST(sort, empty_lines_stay_empty) {
  auto [values, indices] = empty({3, 0}).sort();
  EXPECT_EQ(values.sizes(), (Dims{3, 0}));
  EXPECT_EQ(indices.sizes(), (Dims{3, 0}));
  EXPECT_EQ(std::get<0>(empty({0, 3}).topk(2)).sizes(), (Dims{0, 2}));
}

TEST(sort, results_do_not_depend_on_the_number_of_threads) {
  const Tensor x = sample({37, 3000}, kF32, 31);
  expect_same_for_all_thread_counts([&] {
    auto [values, indices] = x.sort(1, true);
    auto [top, at] = x.topk(11, 0);
    const Tensor line = x.reshape({-1});
    auto [sorted, order] = line.sort();
    auto [few, few_at] = line.topk(20);
    auto [half, half_at] = line.topk(line.numel() / 2);
    const Unique groups = unique(line, true, true, true);
    return std::vector<Tensor>{values,       indices, top,  at,      sorted,        order,
                               few,          few_at,  half, half_at, groups.values, groups.inverse,
                               groups.counts};
  });
}

TEST(sort, wrong_arguments_are_refused_with_the_operator_named) {
  const Tensor x = sample({3, 4}, kF32, 1);
  expect_error<IndexError>([&] { x.sort(2); }, "sort: dimension out of range");
  expect_error<IndexError>([&] { x.topk(5); }, "topk: k out of range; got k 5 of [3, 4] f32 cpu; expected 0 to 4");
  expect_error<IndexError>([&] { kthvalue(x, 0); }, "kthvalue: k out of range");
  expect_error<IndexError>([&] { median(empty({2, 0}), 1); }, "median: dimension 1 is empty");
}

TEST(sort, the_median_of_all_elements_is_the_lower_one) {
  EXPECT_EQ(median(tensor({{4, 1}, {3, 2}})).item<int64_t>(), 2);
  EXPECT_EQ(tensor({5.0, 1.0, 3.0}).median().item<double>(), 3);
  EXPECT_TRUE(std::isnan(tensor({5.0, static_cast<double>(NAN)}).median().item<double>()));
  EXPECT_EQ(tensor(7).median().dim(), 0);
  EXPECT_TRUE(std::isnan(empty({0}).median().item<double>()));
  EXPECT_THROW(empty({0}, {kI64}).median(), IndexError);
  const Tensor nothing = empty({2, 0}).requires_grad_();
  nothing.median().backward();
  EXPECT_EQ(nothing.grad().sizes(), (Dims{2, 0}));
}

TEST(sort, methods_and_out_forms_agree_with_the_functions) {
  const Tensor x = tensor({{3, 1, 2}, {6, 6, 4}}), values = empty({2}, {kI64}), indices = empty({2}, {kI64});
  EXPECT_TRUE(equal(std::get<0>(x.kthvalue(2)), std::get<0>(kthvalue(x, 2))));
  EXPECT_EQ(std::get<0>(x.median(1)).to_vector<int64_t>(), (std::vector<int64_t>{2, 6}));
  kthvalue_out(values, indices, x, 1);
  EXPECT_EQ(values.to_vector<int64_t>(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(indices.to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  median_out(values, indices, x, 1);
  EXPECT_EQ(values.to_vector<int64_t>(), (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(x.unique().values.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4, 6}));
  EXPECT_EQ(x.unique(true, false, true).counts.to_vector<int64_t>(), (std::vector<int64_t>{1, 1, 1, 1, 2}));
}

}  // namespace
}  // namespace lorry::test
