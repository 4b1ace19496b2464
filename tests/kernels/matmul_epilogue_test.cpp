// Products with epilogues on a GPU against double precision: GELU, its gradient and sums, over sizes and layouts that
// are taken; and that what is refused leaves memory as it was.

#include <cmath>
#include <random>

#include "lorry/kernels/backend.h"
#include "tests/support/on_cuda.h"
#include "tests/support/product_layouts.h"

namespace lorry::kernels {
namespace {

using test::Copied;
using test::kGPU;
using test::Random;
using Kind = MatmulEpilogue::Kind;

double gate(double x) { return 1 / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  return gate(x) + x * gate(x) * (1 - gate(x)) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}

template <class T>
std::vector<T> numbers(Random& random, int64_t count, double scale) {
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(T(static_cast<float>(normal(random.engine))));
  return values;
}

/// The largest relative error of rounding to T.
template <class T>
constexpr double kRounding = std::is_same_v<T, BFloat16> ? 1.0 / 256 : 1.0 / 2048;
/// The library's tanh may be a short one, with a relative error of 2^-11.
constexpr double kOfTanh = 1.0 / 1024;

/// A product of [m, k] by [k, n] and what it wrote.
template <class T>
struct Case {
  int64_t m, n, k;
  bool a_by_columns = false, b_by_columns = false, has_bias = false;
  Kind kind = MatmulEpilogue::gelu;

  struct Memory {
    std::vector<T> a, b, bias, aux;
  };
  struct Written {
    bool done = false;
    std::vector<T> out, aux, sums;
  };
  static constexpr float kBefore = 77;

  bool writes_aux() const { return kind == MatmulEpilogue::gelu_and_input; }
  bool reads_aux() const {
    return kind == MatmulEpilogue::gelu_backward || kind == MatmulEpilogue::gelu_backward_and_sums;
  }
  bool has_sums() const { return kind == MatmulEpilogue::gelu_backward_and_sums || kind == MatmulEpilogue::sums_of_a; }
  int64_t sums() const { return kind == MatmulEpilogue::sums_of_a ? m : n; }

  Memory memory(Random& random) const {
    return {numbers<T>(random, m * k, 1), numbers<T>(random, k * n, 1 / std::sqrt(static_cast<double>(k))),
            numbers<T>(random, n, 0.5), numbers<T>(random, m * n, 1)};
  }
  size_t at_a(int64_t i, int64_t l) const { return static_cast<size_t>(a_by_columns ? i + l * m : i * k + l); }
  size_t at_b(int64_t l, int64_t j) const { return static_cast<size_t>(b_by_columns ? l + j * k : l * n + j); }

  /// Runs it with every operand `shift` elements into its memory.
  Written run(const Memory& from, int64_t shift = 0) const {
    const std::vector<T> before(static_cast<size_t>(m * n), T(kBefore)),
        sums_before(static_cast<size_t>(sums()), T(kBefore));
    const Copied<T> a(kGPU, from.a, shift), b(kGPU, from.b, shift), bias(kGPU, from.bias, shift),
        aux(kGPU, reads_aux() ? from.aux : before, shift), out(kGPU, before, shift), sum(kGPU, sums_before, shift);
    MatmulArgs args{.out = out.array({m, n}),
                    .a = {a.data(), dtype_of<T>, Layout::strided({m, k}, a_by_columns ? Dims{1, m} : Dims{k, 1})},
                    .b = {b.data(), dtype_of<T>, Layout::strided({k, n}, b_by_columns ? Dims{1, k} : Dims{n, 1})},
                    .c = {}};
    if (has_bias) args.c = {bias.data(), dtype_of<T>, Layout::strided({m, n}, {0, 1})}, args.beta = 1;
    const MatmulEpilogue epilogue{.kind = kind,
                                  .aux = reads_aux() || writes_aux() ? aux.data() : nullptr,
                                  .sums = has_sums() ? sum.data() : nullptr};
    const bool done = backend(kGPU).matmul->with_epilogue(args, epilogue, current_stream(kGPU));
    return {done, out.read(), aux.read(), sum.read()};
  }

  std::string name() const {
    return fmt::format("{} of [{}, {}] by [{}, {}] {}{}{}{}", kernels::name(kind), m, k, k, n, dtype_of<T>,
                       a_by_columns ? ", a by columns" : "", b_by_columns ? ", b by columns" : "",
                       has_bias ? ", with a bias" : "");
  }

  void expect(const Memory& from, const Written& got) const {
    const double rounding = kRounding<T>;
    std::vector<double> sum(static_cast<size_t>(sums()), 0), tolerance(sum.size(), 0);
    const auto add = [&](int64_t at, double x, double error) {
      sum[static_cast<size_t>(at)] += x, tolerance[static_cast<size_t>(at)] += error;
    };
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<size_t>(i * n + j);
        double p = has_bias ? from.bias[static_cast<size_t>(j)] : 0.0f, size = std::abs(p);
        for (int64_t l = 0; l < k; ++l) {
          const double x = double{from.a[at_a(i, l)]} * double{from.b[at_b(l, j)]};
          p += x, size += std::abs(x);
        }
        const double of_sum = 1e-6 * size;
        double want = p, error = of_sum;
        if (kind == MatmulEpilogue::relu) want = std::max(p, 0.0);
        if (kind == MatmulEpilogue::gelu || writes_aux()) want = p * gate(p), error += kOfTanh * std::abs(p);
        if (reads_aux()) {
          want = p * gelu_slope(from.aux[at]), error += 4 * kOfTanh * std::abs(p);
          if (has_sums()) add(j, want, error + rounding * std::abs(want));
        }
        ASSERT_NEAR(got.out[at], want, error + rounding * std::abs(want)) << name() << " at " << i << ", " << j;
        if (writes_aux()) {
          ASSERT_NEAR(got.aux[at], p, of_sum + rounding * std::abs(p)) << name() << ": input at " << i << ", " << j;
        }
      }
      if (kind == MatmulEpilogue::sums_of_a)
        for (int64_t l = 0; l < k; ++l) add(i, from.a[at_a(i, l)], 1e-6 * std::abs(from.a[at_a(i, l)]));
    }
    if (!has_sums()) return;
    for (size_t i = 0; i < sum.size(); ++i)
      ASSERT_NEAR(got.sums[i], sum[i], tolerance[i] + rounding * std::abs(sum[i])) << name() << ": sum " << i;
  }
};

template <class T>
void expect_right(Random& random, const Case<T>& one, bool must = true) {
  const auto memory = one.memory(random);
  const auto got = one.run(memory);
  EXPECT_TRUE(got.done || !must) << one.name() << " is not computed";
  if (!got.done) {
    for (const auto* x : {&got.out, &got.sums})
      for (const T y : *x) ASSERT_EQ(float{y}, Case<T>::kBefore) << one.name() << " is refused and writes";
    return;
  }
  one.expect(memory, got);
  const auto again = one.run(memory);
  EXPECT_TRUE(test::same_bits(again.out, got.out) && test::same_bits(again.aux, got.aux) &&
              test::same_bits(again.sums, got.sums))
      << one.name() << " is not repeated to the bit";
}

template <class F>
void each_dtype(const F& f) {
  f(Float16());
  f(BFloat16());
}

TEST(MatmulEpilogue, those_of_a_transformer_are_computed) {
  LORRY_SKIP_WITHOUT_CUDA();
  Random random(1);
  each_dtype([&]<class T>(T) {
    for (const int64_t rows : {64, 200, 1000}) {
      for (const Kind kind : {MatmulEpilogue::gelu, MatmulEpilogue::gelu_and_input})
        for (const bool bias : {false, true})
          expect_right<T>(random, {.m = rows, .n = 256, .k = 64, .b_by_columns = true, .has_bias = bias, .kind = kind});
      for (const Kind kind : {MatmulEpilogue::gelu_backward, MatmulEpilogue::gelu_backward_and_sums})
        expect_right<T>(random, {.m = rows, .n = 256, .k = 64, .kind = kind});
      expect_right<T>(random, {.m = 256, .n = 64, .k = rows, .a_by_columns = true, .kind = MatmulEpilogue::sums_of_a});
    }
  });
}

TEST(MatmulEpilogue, other_sizes_are_right_or_refused) {
  LORRY_SKIP_WITHOUT_CUDA();
  Random random(2);
  each_dtype([&]<class T>(T) {
    for (int round = 0; round < 60 && !testing::Test::HasFailure(); ++round) {
      const auto size = [&] { return random.one_in(3) ? random.number(1, 150) : 8 * random.number(1, 20); };
      Case<T> one{.m = size(), .n = size(), .k = size()};
      one.a_by_columns = random.one_in(2), one.b_by_columns = random.one_in(2);
      one.kind = static_cast<Kind>(random.number(MatmulEpilogue::gelu, MatmulEpilogue::sums_of_a));
      one.has_bias = one.kind <= MatmulEpilogue::gelu_and_input && random.one_in(2);
      expect_right(random, one, false);
    }
  });
}

TEST(MatmulEpilogue, memory_that_is_not_aligned_is_refused) {
  LORRY_SKIP_WITHOUT_CUDA();
  Random random(3);
  const Case<BFloat16> one{.m = 64, .n = 64, .k = 64, .kind = MatmulEpilogue::gelu_and_input};
  EXPECT_FALSE(one.run(one.memory(random), 1).done);
  EXPECT_TRUE(one.run(one.memory(random), 8).done);
}

TEST(MatmulEpilogue, timed_algorithms_are_right) {
  LORRY_SKIP_WITHOUT_CUDA();
  Random random(4);
  const bool before = matmul_settings().tuning.exchange(true);
  for (const Kind kind : {MatmulEpilogue::gelu_and_input, MatmulEpilogue::gelu_backward_and_sums})
    expect_right<BFloat16>(random, {.m = 328, .n = 512, .k = 128, .kind = kind});
  matmul_settings().tuning = before;
}

}  // namespace
}  // namespace lorry::kernels
