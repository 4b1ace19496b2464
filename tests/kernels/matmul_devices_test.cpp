// Products on CUDA against the CPU's: of small whole numbers, whose sums every accumulator holds exactly, so that
// results are equal whatever the order of adding up. 16-bit results are rounded once on either side.

#include <array>
#include <limits>

#include "lorry/kernels/backend.h"
#include "lorry/memory/memory.h"
#include "tests/support/dtypes.h"
#include "tests/support/on_cuda.h"
#include "tests/support/product_layouts.h"

namespace lorry::kernels {
namespace {

using test::Copied;
using test::kGPU;
using test::Random;

/// A call before it has memory.
struct Product {
  Layout out, a, b, c = {};
  bool adds = false, in_place = false;
  double alpha = 1, beta = 0;
};

template <class T>
std::vector<T> small_numbers(Random& random, const Layout& layout, int64_t most) {
  std::vector<T> values(static_cast<size_t>(std::max<int64_t>(1, layout.extent())));
  for (T& x : values) {
    const int64_t number = random.number(std::is_unsigned_v<T> ? 0 : -most, most);
    if constexpr (std::is_integral_v<T> || sizeof(T) > 2) {
      x = static_cast<T>(number);
    } else {
      x = T(static_cast<float>(number));
    }
  }
  return values;
}

/// Runs the product on both devices, operands `shift` elements into their memory, and compares all of out's memory.
template <class T>
void expect_same(Random& random, const Product& product, int64_t most = 3, int64_t shift = 0) {
  const auto a = small_numbers<T>(random, product.a, most), b = small_numbers<T>(random, product.b, most);
  const auto c = small_numbers<T>(random, product.c, most), before = small_numbers<T>(random, product.out, most);
  const auto run = [&](Device device) {
    const Copied out(device, before, shift), on_a(device, a, shift), on_b(device, b, shift), on_c(device, c, shift);
    MatmulArgs args{.out = {out.data(), dtype_of<T>, product.out},
                    .a = {on_a.data(), dtype_of<T>, product.a},
                    .b = {on_b.data(), dtype_of<T>, product.b},
                    .c = {},
                    .alpha = product.alpha,
                    .beta = product.beta};
    if (product.adds) args.c = product.in_place ? args.out : Array{on_c.data(), dtype_of<T>, product.c};
    backend(device).matmul->matmul(args, current_stream(device));
    return out.read();
  };
  EXPECT_TRUE(run(kCPU) == run(kGPU)) << name(dtype_of<T>) << " out " << to_string(product.out.size_list())
                                      << " strides " << to_string(product.out.stride_list()) << ", a strides "
                                      << to_string(product.a.stride_list()) << ", b strides "
                                      << to_string(product.b.stride_list()) << ", alpha " << product.alpha << ", beta "
                                      << product.beta << ", c strides " << to_string(product.c.stride_list())
                                      << ", shift " << shift;
}

void expect_same(DType dtype, Random& random, const Product& product, int64_t most = 3, int64_t shift = 0) {
  visit(dtype, [&]<class T>(Type<T>) {
    if constexpr (!std::is_same_v<T, bool>) expect_same<T>(random, product, most, shift);
  });
}

Product contiguous(const Dims& batch, int64_t m, int64_t n, int64_t k) {
  const auto layout = [&](int64_t rows, int64_t columns) {
    Dims sizes = batch;
    sizes.push_back(rows), sizes.push_back(columns);
    return Layout::contiguous(sizes);
  };
  return {.out = layout(m, n), .a = layout(m, k), .b = layout(k, n), .c = layout(m, n)};
}

class Settings {
 public:
  ~Settings() {
    matmul_settings().precision = precision_;
    matmul_settings().tuning = tuning_;
  }

 private:
  Precision precision_ = matmul_settings().precision;
  bool tuning_ = matmul_settings().tuning;
};

TEST(MatmulDevices, any_layouts_addends_and_factors_agree) {
  LORRY_SKIP_WITHOUT_CUDA();
  Random random(20251121);
  for (int round = 0; round < 3000 && !HasFailure(); ++round) {
    const int rank = static_cast<int>(random.number(2, round % 10 == 0 ? 8 : 5));
    Dims sizes;
    for (int d = 0; d < rank; ++d) sizes.push_back(d < rank - 2 ? random.number(1, 3) : random.number(1, 20));
    const int64_t k = random.number(0, 20);
    Dims sizes_a = sizes, sizes_b = sizes;
    sizes_a[rank - 1] = k, sizes_b[rank - 2] = k;
    Product product{.out = test::product_layout(random, sizes, false),
                    .a = test::product_layout(random, sizes_a, true),
                    .b = test::product_layout(random, sizes_b, true),
                    .c = test::addend_layout(random, sizes)};
    product.adds = !random.one_in(3);
    product.in_place = random.one_in(3);
    product.alpha = static_cast<double>(random.one_in(3) ? random.number(0, 2) : 1);
    product.beta = static_cast<double>(random.one_in(3) ? random.number(0, 2) : 1);
    expect_same(test::kNumberDTypes[static_cast<size_t>(random.number(0, std::ssize(test::kNumberDTypes) - 1))], random,
                product, 2, random.one_in(2) ? 0 : random.number(1, 7));
  }
}

TEST(MatmulDevices, large_long_and_narrow_products_agree) {
  LORRY_SKIP_WITHOUT_CUDA();
  Random random(7);
  for (const DType t : test::kNumberDTypes)
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{130, 257, 66},
                                  {1, 3072, 768},
                                  {513, 1, 1000},
                                  {1, 1, 100'000},
                                  {64, 64, 20'000},
                                  {3, 1000, 1},
                                  {2048, 3, 5}})
      expect_same(t, random, contiguous({}, m, n, k), 1);
}

TEST(MatmulDevices, a_linear_layer_agrees_whatever_its_alignment) {
  LORRY_SKIP_WITHOUT_CUDA();
  Random random(8);
  for (const DType t : test::kFloatingDTypes)
    for (const int64_t shift : {0, 1, 4})
      for (const int64_t features : {63, 64}) {
        Product product = contiguous({2, 30}, 5, features, 40);
        product.b = Layout::strided({2, 30, 40, features}, {0, 0, 1, 40});
        product.c = Layout::strided({2, 30, 5, features}, {0, 0, 0, 1});
        product.adds = true;
        product.beta = 1;
        expect_same(t, random, product, 2, shift);
      }
}

TEST(MatmulDevices, more_batches_than_one_call_takes_agree) {
  LORRY_SKIP_WITHOUT_CUDA();
  Random random(9);
  for (const DType t : {kI32, kBF16, kF32}) expect_same(t, random, contiguous({70'000}, 2, 3, 4));
}

TEST(MatmulDevices, what_is_not_added_is_not_read) {
  LORRY_SKIP_WITHOUT_CUDA();
  const std::vector<float> nan(16, std::numeric_limits<float>::quiet_NaN()), ones(16, 1.0f);
  const Layout square = Layout::contiguous({4, 4});
  const auto run = [&](const std::vector<float>& factors, const std::vector<float>& addend, double alpha, double beta) {
    const Copied out(kGPU, nan), a(kGPU, factors), b(kGPU, factors), c(kGPU, addend);
    const auto at = [&](const Copied<float>& x) { return Array{x.data(), kF32, square}; };
    backend(kGPU).matmul->matmul({.out = at(out), .a = at(a), .b = at(b), .c = at(c), .alpha = alpha, .beta = beta},
                                 current_stream(kGPU));
    return out.read();
  };
  EXPECT_EQ(run(ones, nan, 1, 0), std::vector<float>(16, 4.0f));
  EXPECT_EQ(run(nan, ones, 0, 2), std::vector<float>(16, 2.0f));
  EXPECT_EQ(run(nan, nan, 0, 0), std::vector<float>(16, 0.0f));
}

TEST(MatmulDevices, tf32_and_tuning_keep_exact_products_exact) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Settings settings;
  Random random(10);
  matmul_settings().precision = Precision::tf32;
  expect_same(kF32, random, contiguous({3}, 100, 60, 200));
  matmul_settings().tuning = true;
  for (const DType t : test::kFloatingDTypes) {
    Product product = contiguous({2}, 256, 128, 64);
    expect_same(t, random, product, 1);
    product.adds = product.in_place = true;
    product.beta = 1;
    expect_same(t, random, product, 1);
  }
}

/// The first product's bias is gone when the second one of its kind is timed: reading it is a fault of the device.
TEST(MatmulDevices, timing_reads_the_bias_of_the_call_that_is_timed) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Settings settings;
  constexpr int64_t kRows = 4, kFeatures = 3 << 20,
                    kInner = 8;  // a bias of 12 MB has a segment of its own, which goes back
  const Copied a(kGPU, std::vector<float>(kRows * kInner, 1.0f)), b(kGPU, std::vector<float>(kFeatures * kInner, 1.0f));
  const Copied out(kGPU, std::vector<float>(kRows * kFeatures, 0.0f));
  const auto run = [&](const Copied<float>& bias) {
    backend(kGPU).matmul->matmul({.out = {out.data(), kF32, Layout::contiguous({kRows, kFeatures})},
                                  .a = {a.data(), kF32, Layout::contiguous({kRows, kInner})},
                                  .b = {b.data(), kF32, Layout::strided({kInner, kFeatures}, {1, kInner})},
                                  .c = {bias.data(), kF32, Layout::strided({kRows, kFeatures}, {0, 1})},
                                  .alpha = 1,
                                  .beta = 1},
                                 current_stream(kGPU));
    device::synchronize(kGPU);
  };
  const Copied second(kGPU, std::vector<float>(kFeatures, 2.0f));
  matmul_settings().tuning = false;
  run(Copied(kGPU, std::vector<float>(kFeatures, 1.0f)));
  memory::empty_cache(kGPU);
  matmul_settings().tuning = true;
  run(second);
  EXPECT_EQ(out.read(), std::vector<float>(kRows * kFeatures, kInner + 2.0f));
}

TEST(MatmulDevices, full_precision_keeps_what_tf32_rounds_away) {
  LORRY_SKIP_WITHOUT_CUDA();
  const Settings settings;
  const std::vector<float> values(256 * 256, 1.0f + 0x1p-15f);
  const Layout square = Layout::contiguous({256, 256});
  const auto run = [&](Precision precision) {
    matmul_settings().precision = precision;
    const Copied out(kGPU, values), a(kGPU, values), b(kGPU, std::vector<float>(256 * 256, 1.0f));
    const auto at = [&](const Copied<float>& x) { return Array{x.data(), kF32, square}; };
    backend(kGPU).matmul->matmul({.out = at(out), .a = at(a), .b = at(b), .c = {}}, current_stream(kGPU));
    return out.read()[0];
  };
  EXPECT_EQ(run(Precision::full), 256 + 0x1p-7f);
  EXPECT_EQ(run(Precision::tf32), 256.0f);
}

}  // namespace
}  // namespace lorry::kernels
