// Every random kernel gives the same bits on the CPU and on CUDA, whatever the size and the alignment.

#include <cmath>

#include "lorry/kernels/backend.h"
#include "tests/support/dtypes.h"
#include "tests/support/message.h"
#include "tests/support/on_cuda.h"

namespace lorry::kernels {
namespace {

using test::Copied;
using test::kGPU;

constexpr RandomKey kDevicesKey{0xfedcba9876543210, (uint64_t{7} << 32) + 9};
const int64_t kDevicesSizes[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 1023, 4097, 1'000'003};

const RandomKernels& random_on(Device device) { return *backend(device).random; }

/// Runs `fill(kernels, out, stream)` on both devices and compares the elements, which a wrong kernel would leave at 77.
template <class T, class Fill>
void expect_same(const Fill& fill) {
  for (const int64_t n : kDevicesSizes)
    for (const int64_t shift : {0, 1}) {
      const std::vector<uint8_t> bytes(static_cast<size_t>(n) * sizeof(T), 77);
      std::vector<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>> first(static_cast<size_t>(n));
      if (n > 0) std::memcpy(first.data(), bytes.data(), bytes.size());
      const auto run = [&](Device device) {
        const Copied out(device, first, shift);
        fill(random_on(device), Array{out.data(), dtype_of<T>, Layout::contiguous({n})}, current_stream(device));
        return out.read();
      };
      EXPECT_TRUE(test::same_bits(run(kCPU), run(kGPU))) << name(dtype_of<T>) << " n " << n << " shift " << shift;
    }
}

TEST(RandomDevices, floating_fills_agree_to_the_bit) {
  LORRY_SKIP_WITHOUT_CUDA();
  const auto check = [&]<class T>(Type<T>) {
    expect_same<T>([](const RandomKernels& k, const Array& out, Stream s) { k.uniform(out, kDevicesKey, 0, 1, s); });
    expect_same<T>(
        [](const RandomKernels& k, const Array& out, Stream s) { k.uniform(out, kDevicesKey, -3.7, 2.1, s); });
    expect_same<T>([](const RandomKernels& k, const Array& out, Stream s) { k.normal(out, kDevicesKey, 0, 1, s); });
    expect_same<T>([](const RandomKernels& k, const Array& out, Stream s) { k.normal(out, kDevicesKey, 2, 0.3, s); });
  };
  for (const DType dtype : test::kFloatingDTypes) visit_floating(dtype, check);
}

TEST(RandomDevices, whole_numbers_and_coins_agree_in_every_dtype) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const DType dtype : kDTypes)
    visit(dtype, [&]<class T>(Type<T>) {
      expect_same<T>([](const RandomKernels& k, const Array& out, Stream s) { k.integers(out, kDevicesKey, 0, 2, s); });
      expect_same<T>(
          [](const RandomKernels& k, const Array& out, Stream s) { k.integers(out, kDevicesKey, 0, 100, s); });
      for (const double p : {0.0, 1e-9, 0.3, 1 - 1e-12, 1.0})
        expect_same<T>(
            [p](const RandomKernels& k, const Array& out, Stream s) { k.bernoulli(out, kDevicesKey, p, s); });
    });
  expect_same<int64_t>(
      [](const RandomKernels& k, const Array& out, Stream s) { k.integers(out, kDevicesKey, INT64_MIN, 0, s); });
  expect_same<int64_t>([](const RandomKernels& k, const Array& out, Stream s) {
    k.integers(out, kDevicesKey, -5, uint64_t{1} << 63, s);
  });
}

TEST(RandomDevices, dropout_agrees_and_so_does_its_mask) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const DType dtype : test::kFloatingDTypes)
    visit_floating(dtype, [&]<class T>(Type<T>) {
      for (const int64_t n : kDevicesSizes)
        for (const int64_t shift : {0, 1}) {
          std::vector<T> x(static_cast<size_t>(n), T(0.0f));
          for (size_t i = 0; i < x.size(); ++i) x[i] = T(static_cast<float>(i % 999) - 500);
          const auto run = [&](Device device) {
            const Copied from(device, x, shift), out(device, x, shift);
            const Copied mask(device, std::vector<uint8_t>(x.size(), 7), shift);
            random_on(device).dropout(out.array(), mask.array(), from.array(), kDevicesKey, 0.8, 1.25,
                                      current_stream(device));
            return std::pair(out.read(), mask.read());
          };
          const auto [out, mask] = run(kCPU);
          const auto [gpu_out, gpu_mask] = run(kGPU);
          EXPECT_TRUE(test::same_bits(out, gpu_out) && mask == gpu_mask)
              << name(dtype) << " n " << n << " shift " << shift;
        }
    });
}

TEST(RandomDevices, coins_of_many_probabilities_agree_and_a_bad_one_is_reported_later) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const int64_t n : kDevicesSizes)
    for (const int64_t shift : {0, 1}) {
      std::vector<float> p(static_cast<size_t>(n));
      for (size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i % 101) / 100;
      const auto run = [&](Device device) {
        const Copied chances(device, p, shift);
        const Copied out(device, std::vector<double>(p.size(), 7), shift);
        EXPECT_TRUE(
            random_on(device).bernoulli_each(out.array(), chances.array(), kDevicesKey, current_stream(device)));
        return out.read();
      };
      EXPECT_TRUE(test::same_bits(run(kCPU), run(kGPU))) << n;
    }
  const Copied bad(kGPU, std::vector<float>{1, 1.5f, 1});
  const Copied out(kGPU, std::vector<float>(3, 7));
  EXPECT_TRUE(random_on(kGPU).bernoulli_each(out.array(), bad.array(), kDevicesKey, current_stream(kGPU)));
  EXPECT_THROW(current_stream(kGPU).synchronize(), ValueError);
  EXPECT_EQ(out.read(), (std::vector<float>{1, 0, 1}));
}

TEST(RandomDevices, permutations_agree) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const int64_t n : {0, 1, 2, 3, 1000, 4096, 65'537, 3'000'001}) {
    const auto run = [&](Device device) {
      const Copied out(device, std::vector<int64_t>(static_cast<size_t>(n), -1));
      random_on(device).permutation(out.array(), kDevicesKey, current_stream(device));
      return out.read();
    };
    EXPECT_EQ(run(kCPU), run(kGPU)) << n;
  }
}

TEST(RandomDevices, multinomial_draws_agree) {
  LORRY_SKIP_WITHOUT_CUDA();
  struct Problem {
    int64_t rows, columns, draws;
    bool replacement;
  };
  for (const Problem& q : std::vector<Problem>{{1, 1, 1, true},
                                               {3, 7, 50, true},
                                               {5, 1000, 9, true},
                                               {2, 100'003, 1000, true},
                                               {1, 1, 1, false},
                                               {4, 100, 1, false},
                                               {70, 33, 3, false},
                                               {2, 50'257, 4, false},
                                               {3, 1000, 400, false},
                                               {1, 100'003, 20'000, false},
                                               {300, 64, 20, false},
                                               {2, 4096, 1, false},
                                               {2, 4097, 1, false},
                                               {64, 50'257, 64, false},
                                               {3, 5000, 4000, false}}) {
    std::vector<double> weights(static_cast<size_t>(q.rows * q.columns));
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = i % 5 == 2 && q.columns > 1 ? 0 : std::exp(static_cast<double>(i * 7919 % 1001) / 40 - 20);
    const auto run = [&](Device device) {
      const Copied from(device, weights);
      const Copied out(device, std::vector<int64_t>(static_cast<size_t>(q.rows * q.draws), -1));
      random_on(device).multinomial(out.array({q.rows, q.draws}), from.array({q.rows, q.columns}), q.replacement,
                                    kDevicesKey, current_stream(device));
      return out.read();
    };
    EXPECT_EQ(run(kCPU), run(kGPU)) << q.rows << " x " << q.columns << ", " << q.draws << " draws, replacement "
                                    << q.replacement;
  }
}

}  // namespace
}  // namespace lorry::kernels
