// An element's result depends on its operands alone: not on the elements beside it, on where a tensor begins or ends,
// on its strides, or on how threads share the work. A row's result depends on its row alone. The instruction set is
// that of the process; tests/CMakeLists.txt runs these in every one. LORRY_TEST_SCALE multiplies the inputs.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "lorry/device/cpu/team.h"
#include "lorry/formula/pointwise.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"
#include "lorry/ops/pointwise_call.h"
#include "tests/support/dtypes.h"
#include "tests/support/host.h"
#include "tests/support/scale.h"

namespace lorry::test {
namespace {

constexpr uint64_t kSeed = 20261122;

/// Elements of one dtype, as bytes.
struct Bytes {
  DType dtype;
  std::string bytes;

  int64_t size() const { return static_cast<int64_t>(bytes.size()) / size_of(dtype); }
  const char* at(int64_t i) const { return bytes.data() + i * size_of(dtype); }
  void add(const void* element) {
    bytes.append(static_cast<const char*>(element), static_cast<size_t>(size_of(dtype)));
  }
  /// The elements in another order, some of them often.
  Bytes picked(const std::vector<int64_t>& order) const {
    Bytes to{dtype, {}};
    for (const int64_t i : order) to.add(at(i));
    return to;
  }
  Tensor tensor() const {
    Tensor x = empty({size()}, {dtype});
    write_all(x, bytes.data());
    return x;
  }
};

bool is_nan(DType dtype, const char* element) {
  return visit(dtype, [&]<class T>(Type<T>) {
    T x;
    std::memcpy(&x, element, sizeof x);
    const auto value = static_cast<double>(static_cast<Accumulate<T>>(x));
    return value != value;
  });
}

/// To the bit, but for NaNs unless `which_nan`.
testing::AssertionResult same(const Bytes& got, const Bytes& want, bool which_nan) {
  if (got.dtype != want.dtype || got.size() != want.size())
    return testing::AssertionFailure() << got.size() << " elements instead of " << want.size();
  for (int64_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(got.at(i), want.at(i), static_cast<size_t>(size_of(got.dtype))) == 0) continue;
    if (!which_nan && is_nan(got.dtype, got.at(i)) && is_nan(want.dtype, want.at(i))) continue;
    uint64_t a = 0, b = 0;
    std::memcpy(&a, got.at(i), static_cast<size_t>(size_of(got.dtype)));
    std::memcpy(&b, want.at(i), static_cast<size_t>(size_of(got.dtype)));
    return testing::AssertionFailure() << fmt::format("element {} of {} has the bits {:x} instead of {:x}", i,
                                                      got.size(), a, b);
  }
  return testing::AssertionSuccess();
}

Bytes read(const Tensor& x) {
  const Tensor dense = x.contiguous();
  return {x.dtype(), bytes_of(dense)};
}

/// Values of all sizes: every kind of special one, numbers around the bounds at which formulas change, and patterns of
/// random bits. `divisor`: no whole zero.
Bytes values(DType dtype, int64_t count, std::mt19937_64& random, bool divisor) {
  Bytes to{dtype, {}};
  const auto add_real = [&](double value) {
    visit(dtype, [&]<class T>(Type<T>) {
      if constexpr (!std::is_integral_v<T>) {
        const T stored(static_cast<Accumulate<T>>(value));
        to.add(&stored);
      }
    });
  };
  if (is_floating(dtype)) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    for (const double x : {0.0,     1.0, 0.5, 2.5,  10.0, 20.0,  88.7, 709.0, 29999.5, 30000.0, 30000.5,
                           65504.0, 1e5, 1e9, 1e22, 1e30, 1e300, 1e-3, 1e-7,  1e-39,   1e-310,  kInf})
      add_real(x), add_real(-x);
  }
  const uint64_t nans[] = {0x7ff8000000000000, 0xfff8000000000001, 0x7ff0000000000001};
  if (dtype == kF64)
    for (const uint64_t bits : nans) to.add(&bits);
  if (dtype == kF32)
    for (const uint32_t bits : {0x7fc00000u, 0xffc00001u, 0x7f800001u}) to.add(&bits);
  if (dtype == kF16)
    for (const uint16_t bits : {0x7e00, 0xfe01, 0x7c01}) to.add(&bits);
  if (dtype == kBF16)
    for (const uint16_t bits : {0x7fc0, 0xffc1, 0x7f81}) to.add(&bits);
  while (to.size() < count) {
    if (is_floating(dtype) && random() % 2) {
      add_real(std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random),
                          std::uniform_int_distribution<int>(-8, 40)(random)));
      continue;
    }
    uint64_t bits = dtype == kBool ? random() & 1 : random() % 4 == 0 ? random() % 9 : random();
    if (divisor && !is_floating(dtype) && (bits << (64 - 8 * size_of(dtype))) == 0) bits = 3;
    to.add(&bits);
  }
  return to;
}

/// A function of some tensors of one size, element by element.
using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// Runs `f` over columns of operands in many arrangements, and compares every element with the result that it has among
/// its own copies. Of one operand, the bits of a NaN count too on the CPU; of several NaNs, compilers may exchange the
/// operands of a sum.
void expect_independent_of_neighbours(const std::vector<Bytes>& columns, uint64_t seed, const Function& f) {
  std::mt19937_64 random(seed);
  const int64_t n = columns[0].size();
  const bool which_nan = columns.size() == 1 && default_device().is_cpu();
  const auto run = [&](const std::vector<int64_t>& order, const std::function<Tensor(const Tensor&)>& arrange) {
    std::vector<Tensor> operands;
    for (const Bytes& column : columns) operands.push_back(arrange(column.picked(order).tensor()));
    return read(f(operands));
  };
  const auto plain = [](const Tensor& x) { return x; };
  const auto order_of = [&](int64_t count) {
    std::vector<int64_t> order(static_cast<size_t>(count));
    for (int64_t& i : order) i = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    return order;
  };

  // Each among copies of itself: a whole register and more.
  constexpr int64_t kCopies = 64;
  std::vector<int64_t> repeated;
  for (int64_t i = 0; i < n; ++i) repeated.insert(repeated.end(), kCopies, i);
  const Bytes copies = run(repeated, plain);
  std::vector<int64_t> first;
  for (int64_t i = 0; i < n; ++i) first.push_back(i * kCopies);
  const Bytes alone = copies.picked(first);
  ASSERT_TRUE(same(copies, alone.picked(repeated), which_nan)) << "among its own copies";

  // Among others, from every offset within a register on, in odd lengths.
  for (int64_t offset = 0; offset <= 64 / size_of(columns[0].dtype); ++offset) {
    const std::vector<int64_t> order = order_of(offset + 67 + 2 * (offset % 5));
    ASSERT_TRUE(same(run(order, [&](const Tensor& x) { return x.slice(0, offset, x.numel()); }),
                     alone.picked({order.begin() + offset, order.end()}), which_nan))
        << "from " << offset << " on";
  }
  // By strides: every second element, and a transposed matrix.
  const std::vector<int64_t> order = order_of(2 * 301);
  std::vector<int64_t> second, transposed;
  for (size_t i = 0; i < order.size(); i += 2) second.push_back(order[i]);
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 86; ++j) transposed.push_back(order[static_cast<size_t>(j * 7 + i)]);
  ASSERT_TRUE(
      same(run(order, [](const Tensor& x) { return x.slice(0, 0, x.numel(), 2); }), alone.picked(second), which_nan))
      << "every second";
  ASSERT_TRUE(same(run(order,
                       [](const Tensor& x) {
                         return x.reshape({86, 7}).t();
                       }),
                   alone.picked(transposed), which_nan))
      << "transposed";
  // Shared by threads.
  const int before = cpu::threads();
  cpu::set_threads(3);
  const std::vector<int64_t> many = order_of(32768 + 4099);
  const Bytes got = run(many, plain);
  cpu::set_threads(before);
  ASSERT_TRUE(same(got, alone.picked(many), which_nan)) << "shared by threads";
}

class Neighbours : public testing::TestWithParam<int> {
 protected:
  Op op() const { return static_cast<Op>(GetParam()); }
  const PointwiseRow& row() const { return kPointwise[GetParam()]; }
  bool accepts(DType t) const { return ops::accepts(row().domain, t); }
};

TEST_P(Neighbours, change_no_bit_of_an_element_in_any_dtype) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  const bool divides =
      op() == Op::floor_divide || op() == Op::trunc_divide || op() == Op::remainder || op() == Op::fmod;
  for (const DType t : kDTypes) {
    if (!accepts(t)) continue;
    SCOPED_TRACE(fmt::format("{} in {}", row().name, t));
    std::mt19937_64 random(kSeed);
    std::vector<Bytes> columns;
    for (int k = 0; k < row().arity; ++k) {
      Bytes column = values(t, scaled(160), random, divides && k == 1);
      std::vector<int64_t> order(static_cast<size_t>(column.size()));
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
      std::shuffle(order.begin(), order.end(), random);
      columns.push_back(column.picked(order));
    }
    if (op() == Op::where) columns[0] = values(kBool, columns[1].size(), random, false);
    expect_independent_of_neighbours(columns, kSeed + 1, [&](const std::vector<Tensor>& x) {
      return ops::pointwise(op(), std::vector<Operand>(x.begin(), x.end()));
    });
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Neighbours, testing::Range(0, kPointwiseCount),
                         [](const auto& info) { return std::string(kPointwise[info.param].name); });

TEST(Neighbours, change_no_bit_of_a_conversion) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  for (const DType from : kDTypes)
    for (const DType to : kDTypes) {
      SCOPED_TRACE(fmt::format("{} to {}", from, to));
      std::mt19937_64 random(kSeed);
      expect_independent_of_neighbours({values(from, scaled(160), random, false)}, kSeed + 1,
                                       [&](const std::vector<Tensor>& x) { return x[0].to(to); });
      if (testing::Test::HasFatalFailure()) return;
    }
}

/// Runs `f`, whose operands and results are [rows, n], over rows together, over each alone, and over shuffled ones on
/// several threads.
void expect_independent_rows(int64_t n, DType dtype, const Function& f, int operands) {
  SCOPED_TRACE(fmt::format("rows of {} in {}", n, dtype));
  std::mt19937_64 random(kSeed);
  const int64_t rows = 23;
  std::vector<Tensor> whole;
  for (int k = 0; k < operands; ++k) {
    // Moderate rows, and among them some that overflow, are subnormal or are not finite.
    Bytes x{dtype, {}};
    for (int64_t r = 0; r < rows; ++r) {
      const Bytes wild = values(dtype, 60, random, false);
      for (int64_t i = 0; i < n; ++i) {
        const double value = std::uniform_real_distribution<double>(-4, 4)(random) * (r % 5 == 1 ? 1e-39 : 1);
        visit_floating(dtype, [&]<class T>(Type<T>) {
          const T stored(static_cast<Accumulate<T>>(value));
          r % 5 == 2 && random() % 4 == 0 ? x.add(wild.at(static_cast<int64_t>(random() % 60))) : x.add(&stored);
        });
      }
    }
    whole.push_back(x.tensor().reshape({rows, n}));
  }
  const auto run = [&](const std::vector<int64_t>& order) {
    std::vector<Tensor> picked;
    const Tensor index = from_data(order);
    for (const Tensor& x : whole) picked.push_back(x.index_select(0, index));
    return f(picked);
  };
  Bytes alone{dtype, {}};
  for (int64_t r = 0; r < rows; ++r) alone.bytes += read(run({r})).bytes;
  const auto expected = [&](const std::vector<int64_t>& order) {
    Bytes to{dtype, {}};
    for (const int64_t r : order) to.bytes.append(alone.at(r * n), static_cast<size_t>(n * size_of(dtype)));
    return to;
  };
  std::vector<int64_t> order(static_cast<size_t>(scaled(16384 / n + 97)));
  for (int64_t& r : order) r = static_cast<int64_t>(random() % rows);
  const int before = cpu::threads();
  for (const int threads : {1, 3}) {
    cpu::set_threads(threads);
    const Tensor y = run(order);
    cpu::set_threads(before);
    EXPECT_TRUE(same(read(y), expected(order), false)) << "with " << threads << " threads";
  }
}

TEST(Neighbours, change_no_bit_of_a_row) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t n :
         dtype == kF32 ? std::vector<int64_t>{1, 3, 17, 64, 131, 1000} : std::vector<int64_t>{3, 128, 131}) {
      const Tensor weight = arange(1, 1 + n, 1, {dtype}).div(static_cast<double>(n)), bias = weight.neg();
      const auto check = [&](const char* what, int operands, const Function& f) {
        SCOPED_TRACE(what);
        expect_independent_rows(n, dtype, f, operands);
      };
      check("softmax", 1, [](const auto& x) { return x[0].softmax(1); });
      check("log_softmax", 1, [](const auto& x) { return x[0].log_softmax(1); });
      check("layer_norm", 1, [&](const auto& x) { return layer_norm(x[0], {n}, weight, bias); });
      check("rms_norm", 1, [&](const auto& x) { return rms_norm(x[0], {n}, weight); });
      // On a GPU the other sums over a row run in an order that its start within 16 bytes fixes too
      // (kernels/cuda/rowwise/rows.h).
      if (!default_device().is_cpu() && n * size_of(dtype) % 16 != 0) continue;
      check("softmax_backward", 2, [](const auto& x) { return softmax_backward(x[0], x[1], 1); });
      check("log_softmax_backward", 2, [](const auto& x) { return log_softmax_backward(x[0], x[1], 1); });
      check("layer_norm's gradient", 2, [&](const auto& x) {
        const Tensor at = x[1].detach().requires_grad_();
        layer_norm(at, {n}, weight, bias).backward(x[0]);
        return at.grad();
      });
      check("rms_norm's gradient", 2, [&](const auto& x) {
        const Tensor at = x[1].detach().requires_grad_();
        rms_norm(at, {n}, weight).backward(x[0]);
        return at.grad();
      });
      check("cross_entropy's gradient", 1, [&](const auto& x) {
        const Tensor at = x[0].detach().requires_grad_();
        cross_entropy(at, zeros({at.size(0)}, {kI64}), {}, -100, Reduction::sum).backward();
        return at.grad();
      });
      if (n % 2 == 0) {
        const Tensor angles = arange(n / 2, {dtype == kF64 ? kF64 : kF32}).unsqueeze(0), cos = angles.cos(),
                     sin = angles.sin();
        check("rotary", 1, [&](const auto& x) { return rotary(x[0].view({-1, 1, 1, n}), cos, sin).view({-1, n}); });
      }
      check("cumsum", 1, [](const auto& x) { return x[0].cumsum(1); });
    }
}

}  // namespace
}  // namespace lorry::test
