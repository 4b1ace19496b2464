// Norms of lists against their definition: the stated order of additions to the bit, and long double for what it means.

#include "lorry/kernels/list.h"

#include <cmath>
#include <random>

#include "lorry/device/launches.h"
#include "lorry/formula/clip.h"
#include "lorry/kernels/backend.h"
#include "lorry/ops/ops.h"
#include "tests/support/on_cuda.h"

namespace lorry::kernels {
namespace {

using lorry::test::Copied;
using lorry::test::kGPU;

// ---- the order of kernels/list.h, written out ------------------------------------------------------------------

double join(NormOrder order, double a, double b) { return order == NormOrder::inf ? (b > a || b != b ? b : a) : a + b; }

double in_order(NormOrder order, const std::vector<double>& terms) {
  double sums[128] = {};
  for (size_t i = 0; i < terms.size(); ++i) sums[i % 128] = join(order, sums[i % 128], terms[i]);
  for (int half = 64; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) sums[k] = join(order, sums[k], sums[k + half]);
  return sums[0];
}

std::vector<double> in_pieces(NormOrder order, const std::vector<double>& terms, size_t piece) {
  std::vector<double> sums;
  for (size_t i = 0; i < terms.size(); i += piece)
    sums.push_back(in_order(order, {terms.begin() + static_cast<int64_t>(i),
                                    terms.begin() + static_cast<int64_t>(std::min(terms.size(), i + piece))}));
  return sums;
}

double root(NormOrder order, double sum) {
  return order == NormOrder::two ? std::sqrt(sum) : order == NormOrder::power ? std::pow(sum, 1 / 3.0) : sum;
}

double term(NormOrder order, double x) {
  return order == NormOrder::two ? x * x : order == NormOrder::power ? std::pow(std::fabs(x), 3.0) : std::fabs(x);
}

// ---- lists ----------------------------------------------------------------------------------------------------------

struct Sample {
  std::vector<std::vector<float>> f32;
  std::vector<std::vector<BFloat16>> bf16;
  std::vector<std::vector<double>> f64;
};

template <class T>
std::vector<T> random_values(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<T> values(static_cast<size_t>(count));
  for (T& x : values) x = T(normal(random));
  return values;
}

Sample sample(uint32_t seed) {
  std::mt19937 random(seed);
  Sample s;
  for (const int64_t count : {1, 0, 127, 128, 129, 4'095, 4'096, 4'097, 12'345, 100'000}) {
    s.f32.push_back(random_values<float>(count, random));
    s.bf16.push_back(random_values<BFloat16>(count + 3, random));
    s.f64.push_back(random_values<double>(count / 2, random));
  }
  s.f32.push_back(random_values<float>(4'096 * 1'030, random));  // more than a group
  for (int i = 0; i < 300; ++i) s.f32.push_back(random_values<float>(static_cast<int64_t>(random() % 70), random));
  return s;
}

struct Results {
  std::vector<double> total, per_tensor, factor;
};

template <class T>
void put(const std::vector<std::vector<T>>& values, Device device, std::vector<Copied<T>>& memory, List& list) {
  for (size_t e = 0; e < values.size(); ++e) {
    memory.emplace_back(device, values[e], static_cast<int64_t>(e % 5 == 4 ? e % 3 : 0));
    list.add({{memory.back().data()}, static_cast<int64_t>(values[e].size())});
  }
}

Results run(const Sample& s, Device device, NormOrder order, Strategy strategy, double scale = 1,
            double max_norm = INFINITY, bool skip = false, bool twice = false) {
  const DType f32[] = {kF32}, bf16[] = {kBF16}, f64[] = {kF64};
  List lists[] = {List(device, f32, strategy), List(device, bf16, strategy), List(device, f64, strategy)};
  std::vector<Copied<float>> f32s;
  std::vector<Copied<BFloat16>> bf16s;
  std::vector<Copied<double>> f64s;
  put(s.f32, device, f32s, lists[0]);
  put(s.bf16, device, bf16s, lists[1]);
  put(s.f64, device, f64s, lists[2]);
  const List* const all[] = {&lists[0], &lists[1], &lists[2]};
  const Copied<double> total(device, std::vector<double>{-1}), factor(device, std::vector<double>{-1}),
      scales(device, std::vector<double>{scale});
  const Copied<double> per_tensor(device, std::vector<double>(s.f32.size() + s.bf16.size() + s.f64.size(), -1));
  for (int i = 0; i <= twice; ++i)
    backend(device).list_norm->norm(
        {all, order, 3, nullptr, total.data(), per_tensor.data(), {max_norm, scales.data(), skip, factor.data()}},
        current_stream(device));
  return {total.read(), per_tensor.read(), factor.read()};
}

class ListNorm : public testing::TestWithParam<NormOrder> {};

TEST_P(ListNorm, keeps_the_stated_order_to_the_bit) {
  const NormOrder order = GetParam();
  const Sample s = sample(1);
  const Results got = run(s, kCPU, order, Strategy::automatic);
  std::vector<double> tiles;
  size_t at = 0;
  const auto check = [&](const auto& tensors) {
    for (const auto& x : tensors) {
      std::vector<double> terms;
      long double sum = 0;
      for (const auto& e : x) {
        terms.push_back(term(order, static_cast<double>(static_cast<float>(e))));
        if constexpr (std::is_same_v<std::decay_t<decltype(e)>, double>) terms.back() = term(order, e);
        sum = order == NormOrder::inf ? std::max<long double>(sum, terms.back()) : sum + terms.back();
      }
      const std::vector<double> own = in_pieces(order, terms, kNormTile);
      tiles.insert(tiles.end(), own.begin(), own.end());
      ASSERT_EQ(got.per_tensor[at], root(order, in_order(order, in_pieces(order, own, kNormGroup)))) << at;
      ASSERT_NEAR(got.per_tensor[at], root(order, static_cast<double>(sum)), 1e-13 * (1 + got.per_tensor[at]));
      ++at;
    }
  };
  check(s.f32), check(s.bf16), check(s.f64);
  EXPECT_EQ(got.total[0], root(order, in_order(order, in_pieces(order, tiles, kNormGroup))));
}

TEST_P(ListNorm, is_the_same_on_cuda_to_the_bit) {
  LORRY_SKIP_WITHOUT_CUDA();
  const NormOrder order = GetParam();
  const Sample s = sample(2);
  const Results want = run(s, kCPU, order, Strategy::automatic);
  for (int k = 0; k < kStrategies; ++k)
    for (const bool twice : {false, true}) {
      SCOPED_TRACE(testing::Message() << name(static_cast<Strategy>(k)) << (twice ? " twice" : ""));
      const Results got = run(s, kGPU, order, static_cast<Strategy>(k), 1, INFINITY, false, twice);
      if (order == NormOrder::power) {
        EXPECT_NEAR(got.total[0], want.total[0], 1e-12 * want.total[0]);
        for (size_t e = 0; e < want.per_tensor.size(); ++e)
          EXPECT_NEAR(got.per_tensor[e], want.per_tensor[e], 1e-12 * (1 + want.per_tensor[e]));
      } else {
        EXPECT_EQ(got.total, want.total);
        EXPECT_EQ(got.per_tensor, want.per_tensor);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Orders, ListNorm,
                         testing::Values(NormOrder::one, NormOrder::two, NormOrder::inf, NormOrder::power));

TEST(ListNormEnd, clips_unscales_and_skips) {
  Sample s;
  s.f32 = {{3}, {}, {0, 4}};
  for (const Device device : {kCPU, kGPU}) {
    if (!device.is_cpu() && !device::available(DeviceType::cuda)) continue;
    const auto end = [&](double scale, double max_norm, bool skip) {
      return run(s, device, NormOrder::two, Strategy::automatic, scale, max_norm, skip);
    };
    EXPECT_EQ(end(1, INFINITY, false).total[0], 5.0);
    EXPECT_EQ(end(1, INFINITY, false).factor[0], 1.0);
    EXPECT_EQ(end(1, 10, false).factor[0], 1.0);
    EXPECT_EQ(end(1, 1, false).factor[0], 1 / (5 + 1e-6));
    EXPECT_EQ(end(2, 1, false).total[0], 2.5);
    EXPECT_EQ(end(2, 1, false).factor[0], 0.5 * (1 / (2.5 + 1e-6)));
    EXPECT_EQ(end(1024, INFINITY, true).factor[0], 1.0 / 1024);
    s.f32[0][0] = INFINITY;
    EXPECT_TRUE(std::isnan(end(1, INFINITY, true).factor[0]));
    EXPECT_EQ(end(1, INFINITY, true).total[0], INFINITY);
    EXPECT_EQ(end(1, INFINITY, false).factor[0], 1.0);
    EXPECT_EQ(end(1, 1, false).factor[0], 0.0);
    s.f32[0][0] = NAN;
    EXPECT_TRUE(std::isnan(end(1, 1, true).factor[0]));
    EXPECT_EQ(end(1, 1, false).factor[0], INFINITY) << "NaN would leave the step out";
    EXPECT_TRUE(std::isnan(end(1, 1, false).total[0]));
    EXPECT_TRUE(std::isnan(run(s, device, NormOrder::inf, Strategy::automatic).total[0]));
    s.f32[0][0] = 3;
    const Sample nothing{{{}}, {}, {}};
    EXPECT_EQ(run(nothing, device, NormOrder::two, Strategy::automatic, 2, 1, true).total[0], 0.0);
    EXPECT_EQ(run(nothing, device, NormOrder::two, Strategy::automatic, 2, 1, true).factor[0], 0.5);
    EXPECT_EQ(run(nothing, device, NormOrder::two, Strategy::automatic).per_tensor, std::vector<double>{0});
  }
}

TEST(ListNormEnd, a_list_that_is_not_floating_is_refused_on_cuda) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Copied<int64_t> memory(kGPU, std::vector<int64_t>(8, 1));
  const Copied<double> total(kGPU, std::vector<double>{-1});
  const DType i64[] = {kI64};
  std::vector<List> list;
  list.emplace_back(kGPU, i64, Strategy::automatic);
  list[0].add({{memory.data()}, 8});
  const List* const all[] = {&list[0]};
  EXPECT_THROW(
      backend(kGPU).list_norm->norm({all, NormOrder::two, 2, nullptr, total.data(), nullptr, {}}, current_stream(kGPU)),
      DTypeError);
}

/// A report of an earlier kernel arrives, and is thrown, while the launches of a norm are under way.
TEST(ListNormEnd, a_norm_that_threw_half_way_leaves_the_next_one_right) {
  LORRY_SKIP_WITHOUT_CUDA();
  constexpr int64_t kEntries = 2'000;
  const DType f32[] = {kF32};
  for (const Strategy strategy : {Strategy::per_tensor, Strategy::kernel_args_4k}) {
    const Copied<float> memory(kGPU, std::vector<float>(static_cast<size_t>(4 * kEntries), 0.5f));
    std::vector<List> list;
    list.emplace_back(kGPU, f32, strategy);
    for (int64_t e = 0; e < kEntries; ++e) list[0].add({{memory.data() + 4 * e}, 4});
    const List* const all[] = {&list[0]};
    const auto norm = [&](double* total, double* factor) {
      backend(kGPU).list_norm->norm({all, NormOrder::two, 2, nullptr, total, nullptr, {1.0, nullptr, false, factor}},
                                    current_stream(kGPU));
    };
    const auto measured = [&] {
      const Copied<double> total(kGPU, std::vector<double>{-1}), factor(kGPU, std::vector<double>{-1});
      norm(total.data(), factor.data());
      return std::pair(total.read()[0], factor.read()[0]);
    };
    const auto want = measured();
    EXPECT_EQ(want.first, std::sqrt(static_cast<double>(kEntries)));
    const int64_t each = [&] {
      const device::LaunchCount count;
      measured();
      return count.kernels();
    }();
    const Tensor busy = zeros({64 << 20}, {.device = kGPU}), five = ones({5}, {.device = kGPU}),
                 wrong = tensor({7}, {.dtype = kI64, .device = kGPU});
    const Copied<double> nowhere(kGPU, std::vector<double>{0, 0});
    bool half_way = false;
    for (int attempt = 0; attempt < 50 && !half_way; ++attempt) {
      for (int i = 0; i < 4; ++i) busy.add_(1);
      index_select(five, 0, wrong);
      const device::LaunchCount count;
      EXPECT_THROW(for (int i = 0; i < 100'000; ++i) norm(nowhere.data(), nowhere.data() + 1), IndexError);
      half_way = count.kernels() % each != 0;
    }
    ASSERT_TRUE(half_way) << "every report arrived between two norms";
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(measured(), want) << name(strategy) << ", " << i << " norms after the one that threw";
  }
}

template <class T>
void check_scale(Device device, Strategy strategy) {
  SCOPED_TRACE(testing::Message() << name(dtype_of<T>) << " " << name(strategy));
  std::mt19937 random(3);
  const DType dtypes[] = {dtype_of<T>};
  for (const double factor : {0.3, 1.0, double{INFINITY}}) {
    std::vector<std::vector<T>> values;
    for (int e = 0; e < 40; ++e)
      values.push_back(random_values<T>(e == 7 ? 70'001 : static_cast<int64_t>(random() % 9'000), random));
    List list(device, dtypes, strategy);
    std::vector<Copied<T>> memory;
    put(values, device, memory, list);
    const Copied<double> by(device, std::vector<double>{factor});
    backend(device).list_norm->scale(list, by.data(), current_stream(device));
    for (size_t e = 0; e < values.size(); ++e) {
      const std::vector<T> got = memory[e].read();
      if (std::isinf(factor)) {
        for (const T& x : got) ASSERT_TRUE(std::isnan(static_cast<double>(static_cast<Accumulate<T>>(x)))) << e;
        continue;
      }
      for (T& x : values[e]) x = T(static_cast<Accumulate<T>>(x) * static_cast<Accumulate<T>>(factor));
      ASSERT_TRUE(lorry::test::same_bits(got, values[e])) << e;
    }
  }
}

TEST(ListScale, multiplies_every_element) {
  for (const Device device : {kCPU, kGPU})
    for (int k = 0; k < kStrategies; ++k) {
      if (!device.is_cpu() && !device::available(DeviceType::cuda)) continue;
      check_scale<float>(device, static_cast<Strategy>(k));
      check_scale<double>(device, static_cast<Strategy>(k));
      check_scale<Float16>(device, static_cast<Strategy>(k));
      check_scale<BFloat16>(device, static_cast<Strategy>(k));
    }
}

}  // namespace
}  // namespace lorry::kernels
