#include "lorry/ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "lorry/autograd/engine.h"
#include "lorry/base/events.h"
#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"
#include "tests/support/coordinates.h"
#include "tests/support/dtypes.h"
#include "tests/support/gradcheck.h"
#include "tests/support/host.h"
#include "tests/support/message.h"

namespace lorry {
namespace {

using test::Coordinates;
using test::element;

/// Small whole numbers, so that every dtype holds the operands, the products and their sums exactly (f16 up to 2048).
Tensor small_numbers(const Dims& sizes, DType dtype, uint32_t seed) {
  Tensor x = empty(sizes, {dtype});
  uint32_t state = seed * 2654435761u + 12345u;
  const int low = test::is_unsigned(dtype) ? 0 : -3;
  test::fill_with(x, [&](const Coordinates&) {
    state = state * 1664525u + 1013904223u;
    return static_cast<double>(low + static_cast<int>((state >> 16) % 7u));
  });
  return x;
}

/// Element `at` of the product by the definition, batches broadcast.
double product_at(const Tensor& a, const Tensor& b, const Coordinates& at) {
  const int64_t rank_a = a.dim(), rank_b = b.dim(), k = a.size(-1);
  const int64_t matrix = (rank_a > 1) + (rank_b > 1), batch = static_cast<int64_t>(at.size()) - matrix;
  const auto coordinates = [&](const Tensor& x, int64_t rank) {
    Coordinates c;
    for (int64_t d = 0; d + 2 < rank; ++d)
      c.push_back(x.size(d) == 1 ? 0 : at[static_cast<size_t>(batch - (rank - 2) + d)]);
    return c;
  };
  Coordinates ca = coordinates(a, rank_a), cb = coordinates(b, rank_b);
  if (rank_a > 1) ca.push_back(at[static_cast<size_t>(batch)]);
  ca.push_back(0);
  cb.push_back(0);
  if (rank_b > 1) cb.push_back(at.back());
  const size_t inner_b = cb.size() - (rank_b > 1 ? 2 : 1);
  double sum = 0;
  for (int64_t p = 0; p < k; ++p) {
    ca.back() = p;
    cb[inner_b] = p;
    sum += element(a, ca) * element(b, cb);
  }
  return sum;
}

void expect_product(const Tensor& a, const Tensor& b, const Dims& sizes) {
  test::expect_elements(matmul(a, b), sizes, [&](const Coordinates& at) { return product_at(a, b, at); });
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return test::as_on_the_cpu(e.what());
  }
  return "no error";
}

class Copies {
 public:
  Copies()
      : before_(events::set_handler(
            [this](const events::Event& event) { count_ += event.kind == events::Kind::hidden_copy; })) {}
  ~Copies() { events::set_handler(before_); }
  int count() const { return count_; }

 private:
  int count_ = 0;
  events::Handler before_;
};

TEST(Matmul, every_dtype_multiplies_matrices_vectors_and_batches) {
  for (const DType t : test::kNumberDTypes) {
    // 3 * 3 * 9 = 81 fits every type.
    expect_product(small_numbers({5, 9}, t, 1), small_numbers({9, 4}, t, 2), {5, 4});
    expect_product(small_numbers({9}, t, 3), small_numbers({9}, t, 4), {});
    expect_product(small_numbers({9}, t, 5), small_numbers({9, 4}, t, 6), {4});
    expect_product(small_numbers({5, 9}, t, 7), small_numbers({9}, t, 8), {5});
    expect_product(small_numbers({3, 5, 9}, t, 9), small_numbers({9, 4}, t, 10), {3, 5, 4});
    expect_product(small_numbers({9}, t, 11), small_numbers({3, 9, 4}, t, 12), {3, 4});
    expect_product(small_numbers({3, 5, 9}, t, 13), small_numbers({9}, t, 14), {3, 5});
  }
}

TEST(Matmul, batches_of_small_products_of_any_size) {
  for (const DType t : test::kNumberDTypes) {
    for (const int64_t m : {1, 4, 13, 25})
      for (const int64_t n : {1, 7, 16, 33})
        for (const int64_t k : {1, 13}) {
          const Tensor a = small_numbers({2, m, k}, t, 1), b = small_numbers({2, k, n}, t, 2);
          expect_product(a, b, {2, m, n});
          expect_product(a, b.mT().contiguous().mT(), {2, m, n});
          expect_product(a.mT().contiguous().mT(), b, {2, m, n});
        }
  }
}

TEST(Matmul, an_infinite_factor_gives_infinite_elements) {
  for (const DType dtype : {kF16, kBF16, kF32, kF64})
    for (const int64_t size : {5, 40, 200}) {
      const Tensor x = ones({size, size}, {dtype});
      x.select(0, 1).select(0, 2).fill_(std::numeric_limits<double>::infinity());
      const Tensor rows = x.matmul(ones_like(x)).isinf().to(kI64).sum({1});
      std::vector<int64_t> want(static_cast<size_t>(size), 0);
      want[1] = size;
      EXPECT_EQ(rows.to_vector<int64_t>(), want) << name(dtype) << " " << size;
    }
}

TEST(Matmul, batches_broadcast_up_to_rank_8) {
  expect_product(small_numbers({2, 1, 3, 4}, kF64, 1), small_numbers({5, 4, 2}, kF64, 2), {2, 5, 3, 2});
  expect_product(small_numbers({3, 4}, kF32, 3), small_numbers({2, 5, 4, 2}, kF32, 4), {2, 5, 3, 2});
  expect_product(small_numbers({2, 1, 2, 1, 2, 1, 3, 4}, kF32, 5), small_numbers({1, 2, 1, 2, 1, 2, 4, 3}, kF32, 6),
                 {2, 2, 2, 2, 2, 2, 3, 3});
  expect_product(small_numbers({4}, kI32, 7), small_numbers({2, 2, 1, 2, 1, 2, 4, 3}, kI32, 8), {2, 2, 1, 2, 1, 2, 3});
}

TEST(Matmul, any_strides_give_the_same_product) {
  test::Shapes random(20240611);
  for (int round = 0; round < 300; ++round) {
    const int64_t m = random.number(1, 5), n = random.number(1, 5), k = random.number(1, 6),
                  batch = random.number(1, 3);
    const DType t = test::kNumberDTypes[static_cast<size_t>(random.number(0, std::ssize(test::kNumberDTypes) - 1))];
    const auto operand = [&](Dims sizes) {
      const Tensor x = random.tensor(sizes, t);
      test::fill_with(x, [&](const Coordinates&) { return static_cast<double>(random.number(0, 3)); });
      return x;
    };
    const Tensor a = operand({batch, m, k}), b = operand({batch, k, n});
    SCOPED_TRACE(fmt::format("round {}: {} {} by {} {}", round, a, a.strides(), b, b.strides()));
    expect_product(a, b, {batch, m, n});
    expect_product(a.select(0, 0), b.select(0, 0).mT().contiguous().mT(), {m, n});
    if (HasFailure()) return;
  }
}

TEST(Matmul, transposes_slices_and_broadcasts_are_not_copied) {
  const Copies copies;
  const Tensor a = small_numbers({6, 8}, kF32, 1), b = small_numbers({8, 10}, kF32, 2);
  matmul(b.mT(), a.mT());
  matmul(a.narrow(1, 2, 4), b.narrow(0, 1, 4));
  matmul(a.narrow(1, 2, 4).slice(0, 0, 6, 2), b.narrow(0, 1, 4).mT().contiguous().mT());
  matmul(a.expand({3, 6, 8}), b);
  linear(a, b.mT().contiguous(), b[0]);
  addmm(b[0], a, b);
  EXPECT_EQ(copies.count(), 0);
  matmul(a.slice(1, 0, 8, 2), b.slice(0, 0, 8, 2));
  EXPECT_EQ(copies.count(), 1);  // every second column has no unit stride; every second row has
}

TEST(Matmul, empty_operands_give_empties_and_zeros) {
  for (const DType t : {kI64, kBF16, kF32, kF64}) {
    expect_product(empty({0, 3}, {t}), empty({3, 4}, {t}), {0, 4});
    expect_product(empty({3, 0}, {t}), empty({0, 4}, {t}), {3, 4});
    expect_product(empty({0}, {t}), empty({0}, {t}), {});
    expect_product(empty({0, 2, 3}, {t}), empty({3, 4}, {t}), {0, 2, 4});
    expect_product(empty({2, 3, 0}, {t}), empty({2, 0, 0}, {t}), {2, 3, 0});
  }
}

TEST(Matmul, large_products_are_close_to_a_double_oracle) {
  for (const DType t : test::kFloatingDTypes) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{300, 530, 70}, {3, 700, 300}, {130, 5, 2000}, {17, 9, 40000}}) {
      const Tensor a = randn({m, k}).to(t), b = randn({n, k}).to(t).mT();
      const Tensor got = matmul(a, b).to(kF64), expected = matmul(a.to(kF64), b.to(kF64));
      const double unit = t == kF64 ? 1e-15 : t == kF32 ? 1e-7 : t == kF16 ? 1e-3 : 8e-3;
      const double error = (got - expected).abs().max().item<double>();
      EXPECT_LT(error, unit * 24 * std::sqrt(static_cast<double>(k))) << name(t) << " " << m << "x" << n << "x" << k;
    }
  }
  // The f64 kernel itself against plain loops.
  const Tensor a = randn({40, 333}, {kF64}), b = randn({333, 50}, {kF64});
  const Tensor product = matmul(a, b);
  test::for_each_coordinate(
      product.sizes(), [&](const Coordinates& at) { EXPECT_NEAR(element(product, at), product_at(a, b, at), 1e-12); });
}

TEST(Matmul, results_do_not_depend_on_the_number_of_threads) {
  const int before = cpu::threads();
  for (const DType t : {kF32, kF64, kBF16, kF16, kI32}) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{2048, 384, 128}, {128, 128, 2048}, {5, 7, 50000}, {1, 1000, 300}, {333, 1, 100}}) {
      const Tensor a = randn({m, k}).mul(8).to(t), b = randn({k, n}).mul(8).to(t);
      std::vector<Tensor> results;
      for (const int threads : {1, 2, 3, 7}) {
        cpu::set_threads(threads);
        results.push_back(matmul(a, b));
        results.push_back(matmul(a.mT().contiguous().mT(), b));
      }
      cpu::set_threads(before);
      for (size_t i = 2; i < results.size(); ++i)
        ASSERT_TRUE(test::bytes_of(results[i]) == test::bytes_of(results[i % 2]))
            << name(t) << " " << m << "x" << n << "x" << k;
    }
  }
}

TEST(Matmul, addmm_scales_and_adds_and_does_not_read_what_it_does_not_need) {
  for (const DType t : test::kNumberDTypes) {
    const Tensor a = small_numbers({4, 5}, t, 1), b = small_numbers({5, 3}, t, 2), c = small_numbers({4, 3}, t, 3);
    const auto expected = [&](const Tensor& addend, double beta, double alpha) {
      return [&, addend, beta, alpha](const Coordinates& at) {
        return beta * element(addend.expand({4, 3}), at) + alpha * product_at(a, b, at);
      };
    };
    test::expect_elements(addmm(c, a, b, 1, 1), {4, 3}, expected(c, 1, 1));
    if (!test::is_unsigned(t)) test::expect_elements(addmm(c, a, b, 2, -1), {4, 3}, expected(c, 2, -1));
    test::expect_elements(addmm(c[0], a, b), {4, 3}, expected(c[0], 1, 1));
    test::expect_elements(addmm(c.narrow(1, 0, 1), a, b), {4, 3}, expected(c.narrow(1, 0, 1), 1, 1));
    const Tensor self = c.clone();
    self.addmm_(a, b, 1, 1);
    test::expect_elements(self, {4, 3}, expected(c, 1, 1));
    const Tensor turned = c.mT().contiguous().mT().clone();
    turned.addmm_(a, b, 1, 1);
    test::expect_elements(turned, {4, 3}, expected(c, 1, 1));
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType t : test::kFloatingDTypes) {
    const Tensor a = ones({2, 2}, {t}), bad = full({2, 2}, nan, {t});
    EXPECT_EQ(addmm(bad, a, a, 0, 1).sum().item<double>(), 8) << name(t);
    EXPECT_EQ(addmm(a, bad, a, 1, 0).sum().item<double>(), 4) << name(t);
    EXPECT_TRUE(std::isnan(addmm(a, bad, a).sum().item<double>())) << name(t);
  }
}

TEST(Matmul, whole_numbers_wrap) {
  const Tensor big = full({1, 3}, int64_t{1} << 62, {kI64}), ones_column = ones({3, 1}, {kI64});
  EXPECT_EQ(matmul(big, ones_column).item<int64_t>(), -(int64_t{1} << 62));
  // 6 * 2^62 = 2^63 modulo 2^64
  EXPECT_EQ(addmm(big.narrow(1, 0, 1), big, ones_column, 3).item<int64_t>(), std::numeric_limits<int64_t>::min());
  const Tensor bytes = full({2, 2}, 200, {kU8});
  EXPECT_EQ(matmul(bytes, bytes)[0][0].item<int64_t>(), (2 * 200 * 200) % 256);
  const Tensor long_row = full({1, 20000}, 1 << 20, {kI32});
  EXPECT_EQ(matmul(long_row, long_row.mT()).item<int64_t>(), 0);  // 20000 * 2^40 is a multiple of 2^32
}

TEST(Matmul, long_products_of_whole_numbers_wrap) {
  const Tensor a = randint(-1000, 1000, {15, 300}), b = randint(-1000, 1000, {300, 35}) * (int64_t{1} << 50);
  const Tensor wide = (a.unsqueeze(2) * b).sum({1});
  EXPECT_TRUE(equal(matmul(a, b), wide));
  for (const DType t : {kU8, kI8, kI16, kI32}) {
    const Tensor x = a.to(t), y = (a.mT() * 7).to(t);
    EXPECT_TRUE(equal(matmul(x, y), matmul(x.to(kI64), y.to(kI64)).to(t))) << name(t);
  }
}

TEST(Matmul, baddbmm_and_addmv_follow_their_definitions) {
  const Tensor a = small_numbers({2, 3, 4}, kF32, 1), b = small_numbers({2, 4, 5}, kF32, 2),
               c = small_numbers({3, 1}, kF32, 3);
  test::expect_elements(baddbmm(c, a, b, 2, 0.5), {2, 3, 5}, [&](const Coordinates& at) {
    return 2 * element(c, {at[1], 0}) + 0.5 * product_at(a, b, at);
  });
  const Tensor self = small_numbers({2, 3, 5}, kF32, 4), before = self.clone();
  self.baddbmm_(a, b);
  test::expect_elements(self, {2, 3, 5},
                        [&](const Coordinates& at) { return element(before, at) + product_at(a, b, at); });
  const Tensor v = small_numbers({4}, kF32, 5), d = small_numbers({3}, kF32, 6);
  test::expect_elements(addmv(d, a[0], v, -1, 2), {3},
                        [&](const Coordinates& at) { return 2 * product_at(a[0], v, at) - element(d, at); });
}

TEST(Matmul, linear_adds_its_bias_to_every_row) {
  for (const DType t : test::kNumberDTypes) {
    const Tensor x = small_numbers({2, 3, 5}, t, 1), w = small_numbers({4, 5}, t, 2), b = small_numbers({4}, t, 3);
    test::expect_elements(linear(x, w, b), {2, 3, 4},
                          [&](const Coordinates& at) { return product_at(x, w.mT(), at) + element(b, {at[2]}); });
    test::expect_elements(linear(x, w), {2, 3, 4}, [&](const Coordinates& at) { return product_at(x, w.mT(), at); });
    test::expect_elements(linear(x[0][0], w, b), {4},
                          [&](const Coordinates& at) { return product_at(x[0][0], w.mT(), at) + element(b, at); });
  }
}

TEST(Matmul, linear_with_one_feature_takes_a_vector_and_gives_no_dimension_to_it) {
  const Tensor x = small_numbers({2, 3, 5}, kF64, 1).requires_grad_(), w = small_numbers({5}, kF64, 2).requires_grad_(),
               b = small_numbers({}, kF64, 3).requires_grad_();
  test::expect_elements(linear(x, w, b), {2, 3}, [&](const Coordinates& at) {
    double sum = element(b, {});
    for (int64_t k = 0; k < 5; ++k) sum += element(x, {at[0], at[1], k}) * element(w, {k});
    return sum;
  });
  EXPECT_EQ(linear(x[0][0], w).dim(), 0);
  EXPECT_TRUE(test::gradcheck([](const std::vector<Tensor>& v) { return linear(v[0], v[1], v[2]); }, {x, w, b}));
}

TEST(Matmul, coefficients_of_whole_numbers_lose_their_fractions) {
  for (const DType t : {kI64, kI32, kU8}) {
    const Tensor c = full({1, 1}, 10, {t}), a = full({1, 1}, 3, {t}), b = full({1, 1}, 5, {t});
    EXPECT_EQ(addmm(c, a, b, 0.5).item<int64_t>(), 15);
    EXPECT_EQ(addmm(c, a, b, 1, 2.7).item<int64_t>(), 40);
    EXPECT_EQ(baddbmm(c.unsqueeze(0), a.unsqueeze(0), b.unsqueeze(0), 2.7).item<int64_t>(), 35);
    EXPECT_EQ(addmv(c[0], a, b[0], 0.5, 2.7).item<int64_t>(), 30);
    EXPECT_EQ(addmm(c, a, b, -1).item<int64_t>(), 5);
  }
}

TEST(Matmul, mm_bmm_mv_dot_and_outer_are_matmul_for_their_ranks) {
  const Tensor a = small_numbers({2, 3, 4}, kF64, 1), b = small_numbers({2, 4, 5}, kF64, 2),
               v = small_numbers({4}, kF64, 3), w = small_numbers({4}, kF64, 4);
  EXPECT_TRUE(mm(a[0], b[0]).eq(matmul(a[0], b[0])).all().item<bool>());
  EXPECT_TRUE(a.bmm(b).eq(matmul(a, b)).all().item<bool>());
  EXPECT_TRUE(a[0].mv(v).eq(matmul(a[0], v)).all().item<bool>());
  EXPECT_EQ(dot(v, w).item<double>(), v.mul(w).sum().item<double>());
  test::expect_elements(v.outer(w), {4, 4},
                        [&](const Coordinates& at) { return element(v, {at[0]}) * element(w, {at[1]}); });
  EXPECT_THROW(mm(a, b), ShapeError);
  EXPECT_THROW(bmm(a[0], b), ShapeError);
  EXPECT_THROW(bmm(a.narrow(0, 0, 1), b), ShapeError);
  EXPECT_THROW(mv(v, w), ShapeError);
  EXPECT_THROW(dot(a, v), ShapeError);
}

TEST(Matmul, out_forms_write_any_layout_and_take_their_operands_as_result) {
  const Tensor a = small_numbers({3, 3}, kF32, 1), b = small_numbers({3, 3}, kF32, 2), expected = matmul(a, b);
  for (const Tensor& out :
       {empty({3, 3}), empty({3, 3}).mT(), empty({3, 6}).slice(1, 0, 6, 2), empty({5, 3}).narrow(0, 1, 3)}) {
    matmul_out(out, a, b);
    EXPECT_TRUE(out.eq(expected).all().item<bool>()) << out.strides().size();
  }
  const Tensor same = a.clone();
  matmul_out(same, same, b);
  EXPECT_TRUE(same.eq(expected).all().item<bool>());
  const Tensor sum = a.clone();
  addmm_out(sum, sum, sum, b);
  EXPECT_TRUE(sum.eq(expected + a).all().item<bool>());
  EXPECT_THROW(matmul_out(empty({3, 4}), a, b), ShapeError);
  EXPECT_THROW(matmul_out(empty({3, 3}, {kI64}), a, b), DTypeError);
  EXPECT_THROW(matmul_out(Tensor(), a, b), ValueError);
  EXPECT_THROW(matmul_out(empty({3, 1}).expand({3, 3}), a, b), ShapeError);
  const Tensor leaf = a.clone().requires_grad_();
  EXPECT_THROW(matmul_out(empty({3, 3}), leaf, b), GradError);
}

TEST(Matmul, in_place_products_take_their_own_elements_as_factors) {
  const Tensor x = small_numbers({3, 3}, kF64, 1), before = x.clone();
  x.addmm_(x, x.mT());
  EXPECT_TRUE(x.eq(before + matmul(before, before.mT())).all().item<bool>());
}

TEST(Matmul, errors_name_the_operands_and_suggest_the_transpose) {
  const Tensor a = empty({8, 128, 64}), b = empty({8, 32, 64});
  EXPECT_EQ(message_of([&] { matmul(a, b); }),
            "matmul: inner sizes differ; got a: [8, 128, 64] f32 cpu, b: [8, 32, 64] f32 cpu; expected a's last size "
            "to equal b's last but one; did you mean "
            "b.transpose(-1, -2)?");
  EXPECT_THROW(matmul(a, b), ShapeError);
  EXPECT_THROW(matmul(empty({3, 8, 4}), empty({2, 4, 8})), ShapeError);
  EXPECT_THROW(matmul(empty({}), a), ShapeError);
  EXPECT_THROW(matmul(empty({2, 2}), empty({2, 2}, {kF64})), DTypeError);
  EXPECT_THROW(matmul(empty({2, 2}, {kBool}), empty({2, 2}, {kBool})), DTypeError);
  EXPECT_THROW(matmul(Tensor(), a), ValueError);
  EXPECT_THROW(addmm(empty({4, 4}), empty({2, 3}), empty({3, 2})), ShapeError);
  EXPECT_THROW(addmm(empty({2, 2}, {kU8}), empty({2, 2}, {kU8}), empty({2, 2}, {kU8}), 300), ValueError);
  EXPECT_THROW(empty({1, 2}).addmm_(empty({2, 3}), empty({3, 2})), ShapeError);
  EXPECT_THROW(linear(empty({2, 3}), empty({4, 5})), ShapeError);
  EXPECT_THROW(linear(empty({2, 3}), empty({4, 3}), empty({3})), ShapeError);
  EXPECT_THROW(linear(empty({2, 3}), empty({3}), empty({1})), ShapeError);
  EXPECT_THROW(linear(empty({2, 3}), empty({4})), ShapeError);
}

TEST(Matmul, gradients_are_right_to_second_order) {
  const auto leaf = [](const Dims& sizes) { return randn(sizes, {kF64}).requires_grad_(); };
  const test::Function product = [](const std::vector<Tensor>& x) { return matmul(x[0], x[1]); };
  for (const auto& [a, b] : {std::pair<Dims, Dims>{{2, 3}, {3, 4}},
                             {{3}, {3}},
                             {{3}, {3, 2}},
                             {{2, 3}, {3}},
                             {{2, 2, 3}, {3, 2}},
                             {{3}, {2, 3, 2}},
                             {{2, 1, 2, 3}, {3, 3, 2}},
                             {{2, 3}, {2, 3, 2}},
                             {{2, 2, 3}, {3}}}) {
    const std::vector<Tensor> inputs{leaf(a), leaf(b)};
    EXPECT_TRUE(test::gradcheck(product, inputs)) << to_string(a) << to_string(b);
    EXPECT_TRUE(test::gradgradcheck(product, inputs)) << to_string(a) << to_string(b);
  }
  const test::Function addition = [](const std::vector<Tensor>& x) { return addmm(x[0], x[1], x[2], 0.5, -2.0); };
  for (const Dims& c : {Dims{2, 4}, Dims{4}, Dims{2, 1}, Dims{}}) {
    const std::vector<Tensor> inputs{leaf(c), leaf({2, 3}), leaf({3, 4})};
    EXPECT_TRUE(test::gradcheck(addition, inputs)) << to_string(c);
    EXPECT_TRUE(test::gradgradcheck(addition, inputs)) << to_string(c);
  }
  const test::Function batches = [](const std::vector<Tensor>& x) { return baddbmm(x[0], x[1], x[2]); };
  EXPECT_TRUE(test::gradcheck(batches, {leaf({3, 1}), leaf({2, 3, 2}), leaf({2, 2, 3})}));
  for (const Dims& x : {Dims{3}, Dims{4, 3}, Dims{2, 4, 3}}) {
    const std::vector<Tensor> inputs{leaf(x), leaf({5, 3}), leaf({5})};
    const test::Function layer = [](const std::vector<Tensor>& v) { return linear(v[0], v[1], v[2]); };
    EXPECT_TRUE(test::gradcheck(layer, inputs)) << to_string(x);
    EXPECT_TRUE(test::gradgradcheck(layer, inputs)) << to_string(x);
  }
  const test::Function in_place = [](const std::vector<Tensor>& x) {
    const Tensor sum = x[0].mul(1);
    sum.addmm_(x[1], x[2], 2, 3);
    return sum;
  };
  EXPECT_TRUE(test::gradcheck(in_place, {leaf({2, 4}), leaf({2, 3}), leaf({3, 4})}));
}

TEST(Matmul, gradients_of_empty_products_are_zeros) {
  const Tensor a = empty({2, 0}).requires_grad_(), b = empty({0, 3}).requires_grad_(), c = ones({3}).requires_grad_();
  addmm(c, a, b).sum().backward();
  EXPECT_EQ(a.grad().sizes(), (Dims{2, 0}));
  EXPECT_EQ(c.grad().sum().item<double>(), 6);
  const Tensor x = empty({0, 2, 3}).requires_grad_(), w = ones({4, 3}).requires_grad_();
  linear(x, w).sum().backward();
  EXPECT_EQ(w.grad().abs().sum().item<double>(), 0);
}

TEST(Matmul, addmv_has_a_method_an_in_place_and_an_out_form) {
  const Tensor c = randn({3}), a = randn({3, 4}), v = randn({4}), out = empty({3}), self = c.clone();
  const Tensor want = c * 2 + matmul(a, v) * 3;
  EXPECT_TRUE(allclose(c.addmv(a, v, 2, 3), want, 1e-4, 1e-5));
  EXPECT_TRUE(equal(addmv_out(out, c, a, v, 2, 3), c.addmv(a, v, 2, 3)));
  EXPECT_TRUE(self.addmv_(a, v, 2, 3).is_same(self));
  EXPECT_TRUE(equal(self, out));
}

TEST(Matmul, aligned_rows_hold_the_same_numbers_and_the_same_gradients) {
  for (const DType dtype : {kF32, kBF16, kF16}) {
    const Tensor x = randn({2, 3, 8}).to(dtype).requires_grad_(), w = randn({13, 8}).to(dtype).requires_grad_(),
                 b = randn({13}).to(dtype);
    const Tensor y = linear(x, w, b), aligned = linear_aligned(x, w, b);
    EXPECT_EQ(aligned.stride(1) * size_of(dtype) % 16, 0);
    EXPECT_EQ(aligned.stride(0), 3 * aligned.stride(1));
    EXPECT_TRUE(allclose(aligned, y, 1e-2, 1e-2));
    const Tensor target = randint(13, {6}, {.dtype = kI64});
    const auto gradients = [&](const Tensor& logits) {
      const Tensor loss = cross_entropy(logits.view({-1, 13}), target, {}, -100, Reduction::mean, 0.1, kF32);
      EXPECT_EQ(loss.dtype(), kF32);
      return autograd::grad({loss}, {x, w});
    };
    const auto one = gradients(y), other = gradients(aligned);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(allclose(one[i], other[i], 1e-2, 1e-3)) << name(dtype) << i;
  }
  EXPECT_TRUE(linear_aligned(randn({5, 8}), randn({12, 8})).is_contiguous());
  EXPECT_EQ(linear_aligned(randn({8}), randn({13, 8})).sizes(), (Dims{13}));
}

TEST(Matmul, the_cpu_computes_in_full_whatever_the_precision) {
  EXPECT_EQ(matmul_precision(), Precision::full);
  const bool tuning = matmul_tuning();
  const Tensor a = randn({33, 70}, {.device = kCPU}), b = randn({70, 12}, {.device = kCPU}), want = matmul(a, b);
  set_matmul_precision(Precision::tf32);
  set_matmul_tuning(true);
  EXPECT_EQ(matmul_precision(), Precision::tf32);
  EXPECT_TRUE(matmul_tuning());
  const Tensor got = matmul(a, b);
  set_matmul_precision(Precision::full);
  set_matmul_tuning(tuning);
  EXPECT_TRUE(equal(got, want));
}

}  // namespace
}  // namespace lorry
