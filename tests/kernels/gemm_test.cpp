// The tile products against a double loop, for each engine: the packed kernel stands behind oneDNN and must be as
// right.

#include "lorry/kernels/cpu/matmul/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kProductSizes[] = {1, 2, 5, 12, 13, 31, 33, 64, 100};

/// Rounding units of one product of inputs of this type: sums are in f32 or f64.
template <class T>
double tolerance(int64_t k) {
  return (std::is_same_v<T, double> ? 1e-15 : 1e-6) * static_cast<double>(k + 4);
}

template <class S, class T>
class Case {
 public:
  Case(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b) : g_{m, n, k} {
    std::mt19937 random(static_cast<uint32_t>(m * 10007 + n * 101 + k));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (auto* x : {&a_, &b_}) {
      x->resize(static_cast<size_t>(x == &a_ ? m * k : k * n));
      for (S& v : *x) v = static_cast<S>(uniform(random));
    }
    c_.resize(static_cast<size_t>(m * (n + 3)));
    for (T& v : c_) v = static_cast<T>(uniform(random));
    g_.a = a_.data(), g_.b = b_.data(), g_.c_row = n + 3;
    g_.a_row = transpose_a ? 1 : k, g_.a_col = transpose_a ? m : 1;
    g_.b_row = transpose_b ? 1 : n, g_.b_col = transpose_b ? k : 1;
  }

  void check(void (*engine)(const Gemm<S, T>&), T alpha, T beta) {
    std::vector<T> c = c_;
    Gemm<S, T> g = g_;
    g.c = c.data(), g.alpha = alpha, g.beta = beta;
    engine(g);
    for (int64_t i = 0; i < g.m; ++i) {
      for (int64_t j = 0; j < g.c_row; ++j) {
        const double before = static_cast<double>(c_[static_cast<size_t>(i * g.c_row + j)]),
                     after = static_cast<double>(c[static_cast<size_t>(i * g.c_row + j)]);
        if (j >= g.n) {
          ASSERT_EQ(after, before) << "wrote past the columns, at row " << i;
          continue;
        }
        double sum = 0;
        for (int64_t p = 0; p < g.k; ++p)
          sum +=
              static_cast<double>(g.a[i * g.a_row + p * g.a_col]) * static_cast<double>(g.b[p * g.b_row + j * g.b_col]);
        ASSERT_NEAR(after, static_cast<double>(alpha) * sum + static_cast<double>(beta) * before, tolerance<T>(g.k))
            << g.m << "x" << g.n << "x" << g.k << " at " << i << ", " << j;
      }
    }
  }

 private:
  std::vector<S> a_, b_;
  std::vector<T> c_;
  Gemm<S, T> g_;
};

template <class S, class T>
void check_all(void (*engine)(const Gemm<S, T>&)) {
  for (const int64_t m : kProductSizes)
    for (const int64_t n : kProductSizes)
      for (const int64_t k : {int64_t{1}, int64_t{7}, int64_t{300}})
        for (const int transposes : {0, 1, 2, 3})
          Case<S, T>(m, n, k, transposes & 1, transposes & 2).check(engine, T(1), transposes == 3 ? T(0.5) : T(0));
  Case<S, T>(37, 41, 700, true, false).check(engine, T(-0.5), T(2));
  Case<S, T>(9, 65, 0, false, false).check(engine, T(3), T(2));
}

TEST(Gemm, the_packed_product_is_right_in_f32) { check_all<float, float>(packed::gemm); }
TEST(Gemm, the_packed_product_is_right_in_f64) { check_all<double, double>(packed::gemm); }
TEST(Gemm, the_packed_product_is_right_in_bf16) { check_all<BFloat16, float>(packed::gemm); }
TEST(Gemm, the_packed_product_is_right_in_f16) { check_all<Float16, float>(packed::gemm); }
TEST(Gemm, the_product_in_use_is_right_in_f32) { check_all<float, float>(gemm); }
TEST(Gemm, the_product_in_use_is_right_in_bf16) { check_all<BFloat16, float>(gemm); }

TEST(Gemm, a_zero_beta_overwrites_nan) {
  const std::vector<double> a = {1, 2}, b = {3, 4};
  double c = std::numeric_limits<double>::quiet_NaN();
  gemm(Gemm<double, double>{1, 1, 2, a.data(), 2, 1, b.data(), 1, 1, &c, 1});
  EXPECT_EQ(c, 11.0);
}

TEST(Gemm, an_element_has_the_same_bits_at_an_edge_and_inside) {
  constexpr int64_t n = 64, k = 300;
  std::vector<float> a(n * k), b(k * n), whole(n * n), part(n * n);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto* x : {&a, &b})
    for (float& v : *x) v = normal(random);
  packed::gemm(Gemm<float, float>{n, n, k, a.data(), k, 1, b.data(), n, 1, whole.data(), n});
  for (int64_t i = 0; i < n; i += 7)
    packed::gemm(Gemm<float, float>{std::min<int64_t>(7, n - i), n - 1, k, a.data() + i * k, k, 1, b.data() + 1, n, 1,
                                    part.data() + i * n + 1, n});
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 1; j < n; ++j) ASSERT_EQ(whole[i * n + j], part[i * n + j]) << i << ", " << j;
}

}  // namespace
}  // namespace lorry::kernels::cpu
