// A row of a batch gets the bits that it gets alone: products in the mode BatchInvariant, and the other operators of a
// decoding step without it.

#include "lorry/ops/batch_invariant.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/announced_calls.h"
#include "tests/support/dtypes.h"
#include "tests/support/host.h"
#include "tests/support/message.h"

namespace lorry::test {
namespace {

constexpr uint64_t kSeed = 20261126;
/// Batches around the sizes at which kernels change: a few rows, a tile of 16, blocks of 32, 64 and more.
constexpr int64_t kBatches[] = {2, 3, 9, 16, 17, 33, 64, 65, 128};

/// A tensor of these values, written at once: a GPU takes its time for single elements.
Tensor tensor_of(const Dims& sizes, DType dtype, const std::vector<double>& values) {
  const Tensor x = empty(sizes, {dtype});
  visit_floating(dtype, [&]<class T>(Type<T>) {
    std::vector<T> stored;
    for (const double value : values) stored.push_back(static_cast<T>(static_cast<Accumulate<T>>(value)));
    write_all(x, stored.data());
  });
  return x;
}

/// Numbers between -1 and 1.
std::vector<double> random_values(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> between(-1, 1);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(between(random));
  return values;
}
Tensor numbers(const Dims& sizes, DType dtype, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return tensor_of(sizes, dtype, random_values(count, seed));
}

using RowFunction = std::function<Tensor(const Tensor& x)>;

std::string row_bytes(const Tensor& y, int64_t row) { return bytes_of(y.select(0, row).contiguous()); }

/// Runs `f`, which computes each row of its result from the same row of x, over every row of x alone and over batches
/// of rows in random order, some of them more than once, and compares bits.
void expect_rows_as_alone(const Tensor& x, const RowFunction& f) {
  std::mt19937_64 random(kSeed);
  const int64_t rows = x.size(0);
  std::vector<std::string> alone;
  for (int64_t r = 0; r < rows; ++r) alone.push_back(row_bytes(f(x.slice(0, r, r + 1)), 0));
  for (const int64_t batch : kBatches) {
    std::vector<int64_t> order(static_cast<size_t>(batch));
    for (int64_t& r : order) r = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
    const Tensor y = f(x.index_select(0, from_data(order)));
    for (int64_t i = 0; i < batch; ++i)
      ASSERT_EQ(row_bytes(y, i), alone[static_cast<size_t>(order[static_cast<size_t>(i)])])
          << "row " << i << " of a batch of " << batch;
  }
  // In place, one batch for all, and in chunks.
  const Tensor whole = f(x);
  for (int64_t r = 0; r < rows; ++r)
    ASSERT_EQ(row_bytes(whole, r), alone[static_cast<size_t>(r)]) << "row " << r << " of all";
  for (int64_t first = 0; first < rows; first += 7) {
    const Tensor y = f(x.slice(0, first, std::min(first + 7, rows)));
    for (int64_t i = 0; i < y.size(0); ++i)
      ASSERT_EQ(row_bytes(y, i), alone[static_cast<size_t>(first + i)]) << "row " << i << " of the chunk at " << first;
  }
}

/// Rows of moderate numbers, among them one of zeros, one of huge numbers, and one with a NaN and an infinity.
Tensor rows_of(int64_t rows, int64_t n, DType dtype, uint64_t seed) {
  std::vector<double> values = random_values(rows * n, seed);
  const auto row = [&](int64_t r) { return values.begin() + r * n; };
  std::fill(row(2), row(3), 0);
  std::fill(row(3), row(4), dtype == kF16 ? 3e4 : 1e30);
  *row(5) = kNaN;
  *(row(6) - 1) = kInf;
  return tensor_of({rows, n}, dtype, values);
}

double rounding(DType t) { return t == kF64 ? 0x1p-53 : t == kF32 ? 0x1p-24 : t == kF16 ? 0x1p-11 : 0x1p-8; }

/// The product by a loop in double, with the bound of every order of sums: k roundings of the sum of magnitudes.
testing::AssertionResult is_product(const Tensor& got, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const int64_t m = x.size(0), k = x.size(1), n = weight.size(0);
  if (got.sizes() != Dims{m, n} || got.dtype() != x.dtype()) return testing::AssertionFailure() << describe(got);
  const auto a = elements(x), b = elements(weight), c = bias.defined() ? elements(bias) : std::vector<double>();
  const auto out = elements(got);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = c.empty() ? 0 : c[static_cast<size_t>(j)], size = std::fabs(sum);
      for (int64_t p = 0; p < k; ++p) {
        const double product = a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(j * k + p)];
        sum += product;
        size += std::fabs(product);
      }
      const double computed = static_cast<double>(k + 2) * rounding(x.dtype() == kF64 ? kF64 : kF32) * size;
      const double allowed = computed + rounding(x.dtype()) * (std::fabs(sum) + computed) + 0x1p-25;
      if (const double value = out[static_cast<size_t>(i * n + j)]; !(std::fabs(value - sum) <= allowed))
        return testing::AssertionFailure() << "element " << i << ", " << j << " is " << value << " instead of " << sum;
    }
  return testing::AssertionSuccess();
}

TEST(BatchInvariant, linear_is_the_product_in_every_dtype_and_size) {
  const BatchInvariant scope;
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t k : {1, 8, 31, 33, 96, 136, 768, 1541})
      for (const int64_t m : {1, 3, 8, 17, 40, 70})
        for (const int64_t n : {1, 5, 50}) {
          if (k > 500 && (m == 3 || m == 40 || n == 5)) continue;
          const Tensor x = numbers({m, k}, dtype, 1), weight = numbers({n, k}, dtype, 2), bias = numbers({n}, dtype, 3);
          const Tensor with = (m + n) % 2 == 0 ? bias : Tensor();
          ASSERT_TRUE(is_product(linear(x, weight, with), x, weight, with))
              << describe(x) << " " << describe(weight) << " " << with.defined();
        }
}

TEST(BatchInvariant, a_long_sum_over_several_stages_is_the_product) {
  const BatchInvariant scope;
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t k : {3072, 6151, 13000}) {
      const Tensor x = numbers({9, k}, dtype, 1), weight = numbers({19, k}, dtype, 2);
      EXPECT_TRUE(is_product(linear(x, weight), x, weight, {})) << describe(x);
    }
}

TEST(BatchInvariant, an_empty_sum_is_the_bias_and_an_empty_batch_is_empty) {
  const BatchInvariant scope;
  for (const DType dtype : kFloatingDTypes) {
    const Tensor bias = numbers({5}, dtype, 3);
    const Tensor y = linear(empty({3, 0}, {dtype}), empty({5, 0}, {dtype}), bias);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(row_bytes(y, i), bytes_of(bias));
    EXPECT_EQ(elements(linear(empty({2, 0}, {dtype}), empty({3, 0}, {dtype}))), std::vector<double>(6, 0.0));
    EXPECT_EQ(linear(empty({0, 4}, {dtype}), empty({5, 4}, {dtype}), bias).sizes(), (Dims{0, 5}));
    EXPECT_EQ(linear(empty({2, 3, 4}, {dtype}), empty({0, 4}, {dtype})).sizes(), (Dims{2, 3, 0}));
  }
}

TEST(BatchInvariant, a_row_of_linear_has_the_bits_that_it_has_alone) {
  const BatchInvariant scope;
  struct Shape {
    int64_t k, n;
  };
  for (const DType dtype : kFloatingDTypes)
    for (const auto& [k, n] : {Shape{33, 50}, {64, 7}, {768, 100}, {3072, 17}}) {
      SCOPED_TRACE(fmt::format("{} {} x {}", dtype, k, n));
      const Tensor weight = numbers({n, k}, dtype, 2), bias = numbers({n}, dtype, 3);
      expect_rows_as_alone(rows_of(24, k, dtype, 1), [&](const Tensor& x) { return linear(x, weight, bias); });
      if (HasFatalFailure()) return;
    }
}

TEST(BatchInvariant, threads_change_no_bit) {
  const BatchInvariant scope;
  const int before = cpu::threads();
  for (const DType dtype : kFloatingDTypes) {
    const Tensor x = numbers({70, 500}, dtype, 1), weight = numbers({203, 500}, dtype, 2);
    cpu::set_threads(1);
    const std::string one = bytes_of(linear(x, weight));
    cpu::set_threads(3);
    EXPECT_EQ(bytes_of(linear(x, weight)), one);
    cpu::set_threads(before);
  }
}

TEST(BatchInvariant, strides_and_alignment_change_no_bit) {
  const BatchInvariant scope;
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t k : {40, 41, 776}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, k));
      const Tensor x = numbers({21, k}, dtype, 1), weight = numbers({37, k}, dtype, 2), bias = numbers({37}, dtype, 3);
      const std::string dense = bytes_of(linear(x, weight, bias));
      const auto same = [&](const Tensor& a, const Tensor& w, const Tensor& b) {
        EXPECT_EQ(bytes_of(linear(a, w, b).contiguous()), dense) << a.strides() << w.strides() << b.strides();
      };
      const auto columns = [](const Tensor& t) { return t.t().contiguous().t(); };
      const auto shifted = [&](const Tensor& t) {  // neither rows nor the first element on a boundary
        const Tensor wide = empty({t.size(0), t.size(1) + 3}, {dtype});
        return wide.slice(1, 1, 1 + t.size(1)).copy_(t);
      };
      const auto spaced = [&](const Tensor& t) {
        const Tensor wide = empty({t.size(0), 2 * t.size(1)}, {dtype});
        return wide.slice(1, 0, 2 * t.size(1), 2).copy_(t);
      };
      const Tensor wide_bias = empty({37, 2}, {dtype});
      wide_bias.select(1, 0).copy_(bias);
      same(columns(x), weight, bias);
      same(x, columns(weight), bias);
      same(shifted(x), weight, bias);
      same(x, shifted(weight), bias);
      same(spaced(x), spaced(weight), wide_bias.select(1, 0));
      EXPECT_EQ(bytes_of(linear_aligned(x, weight, bias).contiguous()), dense);
      EXPECT_EQ(bytes_of(linear(x.view({3, 7, k}), weight, bias)), dense);
      EXPECT_EQ(bytes_of(linear_aligned(x.view({3, 7, k}), weight, bias).contiguous()), dense);
      EXPECT_EQ(bytes_of(linear(x.select(0, 0), weight, bias)), row_bytes(linear(x, weight, bias), 0));
      // One row for all: x has no distance between rows.
      EXPECT_EQ(row_bytes(linear(x.slice(0, 0, 1).expand({20, k}), weight, bias), 19),
                row_bytes(linear(x, weight, bias), 0));
    }
}

TEST(BatchInvariant, products_by_one_matrix_or_vector_are_those_of_linear) {
  const BatchInvariant scope;
  for (const DType dtype : kFloatingDTypes) {
    const Tensor x = numbers({2, 5, 65}, dtype, 1), weight = numbers({9, 65}, dtype, 2), rows = x.view({10, 65});
    const std::string product = bytes_of(linear(x, weight));
    EXPECT_EQ(bytes_of(matmul(x, weight.t())), product);
    EXPECT_EQ(matmul(x, weight.t()).sizes(), (Dims{2, 5, 9}));
    EXPECT_EQ(bytes_of(mm(rows, weight.t())), product);
    EXPECT_EQ(bytes_of(rows.mm(weight.t().contiguous())), product);
    const Tensor out = empty({10, 9}, {dtype}), strided = empty({9, 10}, {dtype}).t();
    EXPECT_EQ(bytes_of(mm_out(out, rows, weight.t())), product);
    EXPECT_EQ(bytes_of(matmul_out(strided, rows, weight.t()).contiguous()), product);
    const Tensor first = linear(x, weight).select(2, 0).contiguous();
    EXPECT_EQ(bytes_of(matmul(x, weight.select(0, 0))), bytes_of(first));
    EXPECT_EQ(bytes_of(mv(rows, weight.select(0, 0))), bytes_of(first));
    EXPECT_EQ(bytes_of(dot(rows.select(0, 0), weight.select(0, 0))), row_bytes(first.view({10}), 0));
    EXPECT_EQ(dot(rows.select(0, 0), weight.select(0, 0)).dim(), 0);
  }
}

std::vector<Op> operators_of(const std::function<void()>& f) {
  std::vector<Op> ops;
  for (const Heard& call : heard_of(f)) ops.push_back(call.op);
  return ops;
}

TEST(BatchInvariant, concerns_products_of_its_thread_in_its_scope) {
  const Tensor x = numbers({3, 8}, kF32, 1), weight = numbers({4, 8}, kF32, 2);
  const auto product = [&] { linear(x, weight); };
  using Ops = std::vector<Op>;
  EXPECT_FALSE(batch_invariant());
  EXPECT_EQ(operators_of(product), Ops{Op::linear});
  {
    const BatchInvariant on;
    EXPECT_TRUE(batch_invariant());
    EXPECT_EQ(operators_of(product), Ops{Op::linear_rows});
    {
      const BatchInvariant off(false);
      EXPECT_EQ(operators_of(product), Ops{Op::linear});
    }
    EXPECT_TRUE(batch_invariant());
    std::thread([] { EXPECT_FALSE(batch_invariant()); }).join();
    const Tensor whole = ones({3, 8}, {kI32});
    EXPECT_EQ(elements(linear(whole, whole)), std::vector<double>(9, 8.0));
    EXPECT_EQ(operators_of([&] { bmm(x.unsqueeze(0), x.t().unsqueeze(0)); }).back(), Op::matmul);
  }
  EXPECT_FALSE(batch_invariant());
}

TEST(BatchInvariant, an_announced_product_is_made_again_by_its_own_kernel_in_either_mode) {
  const Tensor x = numbers({3, 800}, kF32, 1), weight = numbers({50, 800}, kF32, 2);
  const auto product = [&](bool on) {
    return heard_of([&] {
      const BatchInvariant scope(on);
      linear(x, weight);
      matmul(x, weight.t());
    });
  };
  for (const bool made_in : {false, true})
    for (const Heard& call : product(made_in)) {
      const std::string made = bytes_of(call.outputs.at(0).contiguous());
      for (const bool again_in : {false, true}) {
        const BatchInvariant scope(again_in);
        EXPECT_EQ(bytes_of(run_again(call).at(0).contiguous()), made) << name(call.op) << made_in << again_in;
        EXPECT_EQ(batch_invariant(), again_in);
      }
    }
}

TEST(BatchInvariant, errors_name_what_was_called) {
  const BatchInvariant scope;
  const Tensor x = ones({2, 3});
  EXPECT_EQ(message<ShapeError>([&] { linear(x, ones({4, 5})); }).substr(0, 25), "linear: features differ; ");
  EXPECT_EQ(message<DTypeError>([&] { linear(x, ones({4, 3}, {kF64})); }).substr(0, 23), "linear: dtypes differ; ");
  EXPECT_EQ(message<ShapeError>([&] { mm(x, x); }).substr(0, 24), "mm: inner sizes differ; ");
}

// ---- the other operators of a decoding step -------------------------------------------------------------------------

TEST(BatchInvariant, the_other_operators_of_a_decoding_step_need_no_mode) {
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t n : {131, 768, 4104}) {
      if (n > 1000 && size_of(dtype) > 4) continue;
      SCOPED_TRACE(fmt::format("{} {}", dtype, n));
      const Tensor weight = numbers({n}, dtype, 2), bias = numbers({n}, dtype, 3);
      const auto check = [&](const char* what, const RowFunction& f) {
        SCOPED_TRACE(what);
        expect_rows_as_alone(rows_of(24, n, dtype, 1), f);
      };
      check("layer_norm", [&](const Tensor& x) { return layer_norm(x, {n}, weight, bias); });
      check("rms_norm", [&](const Tensor& x) { return rms_norm(x, {n}, weight); });
      check("softmax", [&](const Tensor& x) { return x.softmax(-1); });
      check("log_softmax", [&](const Tensor& x) { return x.log_softmax(-1); });
      check("gelu", [&](const Tensor& x) { return gelu(x); });
      check("gelu by tanh", [&](const Tensor& x) { return gelu(x, "tanh"); });
      check("silu and a product", [&](const Tensor& x) { return x.silu().mul(bias); });
      check("a residual", [&](const Tensor& x) { return x.mul(0.5).add(x).add(bias); });
      check("argmax", [&](const Tensor& x) { return x.argmax(-1, true); });
      if (HasFatalFailure()) return;
    }
}

TEST(BatchInvariant, embedding_and_rotary_need_no_mode) {
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t heads : {1, 3}) {
      SCOPED_TRACE(dtype);
      constexpr int64_t kHead = 64, kPositions = 24;
      const Tensor table = numbers({kPositions, heads * kHead}, dtype, 1);
      const DType computed = dtype == kF64 ? kF64 : kF32;
      const Tensor angles = arange(kPositions * kHead / 2, {computed}).view({kPositions, kHead / 2});
      const Tensor cos = angles.cos(), sin = angles.sin();
      const RowFunction step = [&](const Tensor& tokens) {
        const Tensor ids = tokens.select(1, 0), x = embedding(ids, table).view({-1, heads, kHead});
        return rotary(x, cos.index_select(0, ids), sin.index_select(0, ids));
      };
      expect_rows_as_alone(arange(kPositions, {kI64}).unsqueeze(1), step);
      if (HasFatalFailure()) return;
    }
}

TEST(BatchInvariant, the_test_of_rows_can_fail) {
  EXPECT_FATAL_FAILURE(expect_rows_as_alone(numbers({24, 8}, kF32, 1),
                                            [](const Tensor& x) { return x.div(static_cast<double>(x.size(0))); }),
                       "of a batch of 2");
}

}  // namespace
}  // namespace lorry::test
