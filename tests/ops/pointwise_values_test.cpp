// Every row of formula/pointwise.def, in every type it accepts, against the references, over edge cases and random
// operands.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "lorry/formula/pointwise.h"
#include "lorry/ops/common_operands.h"
#include "lorry/ops/ops.h"
#include "lorry/ops/pointwise_call.h"
#include "tests/ops/operands.h"
#include "tests/ops/pointwise_reference.h"
#include "tests/support/dtypes.h"
#include "tests/support/host.h"

namespace lorry::test {
namespace {

constexpr uint64_t kSeed = 20240607;

Tensor of_reals(const std::vector<double>& values, DType dtype) { return from_data(values).to(dtype); }
Tensor of_wholes(const std::vector<int64_t>& values, DType dtype) { return from_data(values).to(dtype); }

struct FloatFacts {
  int digits, min_exponent;
  double max, min_normal;
};
FloatFacts facts(DType t) {
  return visit_floating(t, []<class T>(Type<T>) -> FloatFacts {
    using Limits = std::numeric_limits<T>;
    return {Limits::digits, Limits::min_exponent, static_cast<double>(Limits::max()),
            std::ldexp(1.0, Limits::min_exponent - 1)};
  });
}

/// The distance between neighbours of x in the type.
Real ulp(Real x, DType t) {
  const FloatFacts f = facts(t);
  int exponent = 0;
  if (x == 0 || !std::isfinite(x))
    exponent = f.min_exponent;
  else
    std::frexp(x, &exponent);
  return std::ldexp(Real(1), std::max(exponent, f.min_exponent) - f.digits);
}

std::vector<double> edge_reals(DType t, int arity) {
  const FloatFacts f = facts(t);
  const double tiny = std::ldexp(1.0, f.min_exponent - f.digits);
  std::vector<double> v = {0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -2.5, 3, -7.25, 20.5, -100, INFINITY, -INFINITY, NAN};
  if (arity == 4) return {0.0, -0.0, 1, -2.5, 0.3, 100, INFINITY, NAN};
  if (arity == 3) return v;
  v.insert(v.end(), {tiny, -tiny, f.min_normal, -f.min_normal, f.max, -f.max, 1 - std::ldexp(1.0, -f.digits),
                     1 + std::ldexp(1.0, 1 - f.digits), 2.5, -3.5, 88.7, -88.7, 0.1, 40000.3, -1e-3});
  return v;
}

std::vector<int64_t> edge_wholes(DType t, int arity) {
  if (t == kBool) return {0, 1};
  const bool negative = !is_unsigned(t);
  const int64_t bits = 8 * size_of(t) - negative;
  const int64_t most = bits == 63 ? INT64_MAX : (int64_t{1} << bits) - 1, least = negative ? -most - 1 : 0;
  std::vector<int64_t> v = {0, 1, 2, 3, 7, 100, most, least};
  if (arity < 4) v.insert(v.end(), {5, 31, most - 1, least + 1});
  if (negative) v.insert(v.end(), {-1, -2, -7});
  return v;
}

/// All combinations of the edge values (a column an operand), then random ones.
template <class T, class Draw>
std::vector<std::vector<T>> combinations(const std::vector<T>& edges, int arity, int random, Draw&& draw) {
  std::vector<std::vector<T>> columns(static_cast<size_t>(arity));
  size_t count = 1;
  for (int k = 0; k < arity; ++k) count *= edges.size();
  for (size_t i = 0; i < count; ++i) {
    size_t rest = i;
    for (auto& column : columns) {
      column.push_back(edges[rest % edges.size()]);
      rest /= edges.size();
    }
  }
  for (int i = 0; i < random; ++i)
    for (auto& column : columns) column.push_back(draw());
  return columns;
}

testing::AssertionResult near(Real got, Real want, DType t, const Reference& r, const Arguments& a) {
  const FloatFacts f = facts(t);
  if (std::isnan(want))
    return std::isnan(got) ? testing::AssertionSuccess() : testing::AssertionFailure() << "expected NaN";
  if (std::isnan(got)) return testing::AssertionFailure() << "got NaN";
  // What lies beyond the largest number by half a unit is infinite; one unit of doubt around it.
  if (std::isinf(want) || std::fabs(want) > Real(f.max)) {
    const bool same_sign = std::signbit(want) == std::signbit(got);
    const bool close = std::isinf(want)
                           ? std::isinf(got)
                           : std::isinf(got) || std::fabs(want) - Real(f.max) <= Real(r.ulps + 0.5) * ulp(f.max, t);
    return same_sign && close ? testing::AssertionSuccess()
                              : testing::AssertionFailure() << "expected " << static_cast<double>(want);
  }
  const bool half = is_narrow(t);
  const DType compute = half ? kF32 : t;
  const Real size = r.magnitude != nullptr ? std::max(std::fabs(want), r.magnitude(a)) : std::fabs(want);
  Real allowed = Real(r.ulps) * ulp(size, compute);
  if (half) allowed += Real(0.501) * ulp(want, t);
  if (r.underflows) allowed += Real(4 * facts(compute).min_normal);
  if (std::isinf(got))
    return std::fabs(want) + allowed >= Real(f.max) ? testing::AssertionSuccess()
                                                    : testing::AssertionFailure() << "got an infinity";
  if (want == 0 && got == 0 && r.ulps < 0.51 && !r.either_zero && std::signbit(want) != std::signbit(got))
    return testing::AssertionFailure() << "the sign of zero differs";
  if (std::fabs(got - want) <= allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected " << static_cast<double>(want) << ", off by "
                                     << static_cast<double>(std::fabs(got - want) / ulp(want, t))
                                     << " units in the last place";
}

class PointwiseRows : public testing::TestWithParam<int> {
 protected:
  Op op() const { return static_cast<Op>(GetParam()); }
  const PointwiseRow& row() const { return kPointwise[GetParam()]; }
  bool accepts(DType t) const { return ops::accepts(row().domain, t); }
  DType result_of(DType t) const {
    if (row().result == Result::truth) return kBool;
    return row().result == Result::real && !is_floating(t) ? kF32 : t;
  }

  /// Computes the row over columns of operands; the first of `where` is a condition.
  template <class Make>
  Tensor compute(size_t columns, Make&& make) const {
    std::vector<Tensor> tensors;
    for (size_t k = 0; k < columns; ++k) tensors.push_back(make(k));
    if (op() == Op::where) tensors[0] = tensors[0].ne(0);
    const std::vector<Operand> operands(tensors.begin(), tensors.end());
    return ops::pointwise(op(), operands);
  }

  void check_reals(DType t) const {
    const Reference& r = reference(op());
    std::vector<double> edges;
    for (const double e : edge_reals(t, row().arity))
      if (std::isinf(e) ? !r.finite : !(std::fabs(e) > r.limit)) edges.push_back(e);
    std::mt19937_64 random(kSeed);
    const auto draw = [&] {
      const double x = std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random),
                                  std::uniform_int_distribution<int>(-6, 6)(random));
      return of_reals({x}, t).item<double>();  // a value of the type
    };
    const auto columns = combinations<double>(edges, row().arity, 300, draw);
    const Tensor y = compute(columns.size(), [&](size_t k) { return of_reals(columns[k], t); });
    ASSERT_EQ(y.dtype(), result_of(t));
    const std::vector<double> got = y.to_vector<double>();
    for (size_t i = 0; i < got.size(); ++i) {
      Real values[4];
      std::string shown;
      for (size_t k = 0; k < columns.size(); ++k) {
        values[k] = Real(of_one(columns[k][i], t));
        shown += fmt::format("{}{:.17g}", k ? ", " : "", static_cast<double>(values[k]));
      }
      if (op() == Op::where) values[0] = columns[0][i] != 0;
      const Arguments a{values, t != kF64};
      const Real want = r.real(a);
      ASSERT_TRUE(near(Real(got[i]), want, row().result == Result::truth ? kF32 : t, r, a))
          << row().name << "(" << shown << ") in " << name(t) << " gave " << got[i];
    }
  }

  void check_wholes(DType t) const {
    const Reference& r = reference(op());
    std::mt19937_64 random(kSeed);
    const auto draw = [&] {
      return t == kBool ? static_cast<int64_t>(random() & 1)
                        : static_cast<int64_t>(random() % 200) - (is_unsigned(t) ? 0 : 100);
    };
    auto columns = combinations<int64_t>(edge_wholes(t, row().arity), row().arity, 300, draw);
    for (int64_t& v : columns.back())
      if (ops::operand_rules(op()).divides_whole && v == 0) v = 3;
    for (auto& column : columns)  // as the type stores them
      column = of_wholes(column, t).to_vector<int64_t>();
    const Tensor y = compute(columns.size(), [&](size_t k) { return of_wholes(columns[k], t); });
    ASSERT_EQ(y.dtype(), result_of(t));
    const std::vector<double> reals = y.to_vector<double>();
    const std::vector<int64_t> got = y.to_vector<int64_t>();
    for (size_t i = 0; i < got.size(); ++i) {
      int64_t values[4];
      Real floats[4];
      std::string shown;
      for (size_t k = 0; k < columns.size(); ++k) {
        values[k] = columns[k][i];
        floats[k] = Real(static_cast<float>(values[k]));
        shown += fmt::format("{}{}", k ? ", " : "", values[k]);
      }
      if (row().result == Result::real) {
        const Arguments a{floats, true};
        ASSERT_TRUE(near(Real(reals[i]), r.real(a), kF32, r, a))
            << row().name << "(" << shown << ") in " << name(t) << " gave " << reals[i];
        continue;
      }
      if (op() == Op::where) values[0] = values[0] != 0;
      int64_t want = r.whole(values);
      if (op() == Op::bitwise_not && t == kBool) want = values[0] == 0;
      want = of_wholes({want}, y.dtype()).to_vector<int64_t>()[0];
      ASSERT_EQ(got[i], want) << row().name << "(" << shown << ") in " << name(t);
    }
  }

 private:
  static double of_one(double x, DType t) {
    return visit_floating(t, [&]<class T>(Type<T>) -> double { return T(static_cast<Accumulate<T>>(x)); });
  }
};

TEST_P(PointwiseRows, agrees_with_the_reference_in_every_dtype_it_accepts) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  for (const DType t : kDTypes) {
    if (!accepts(t)) continue;
    is_floating(t) ? check_reals(t) : check_wholes(t);
    if (HasFatalFailure()) return;
  }
}

TEST_P(PointwiseRows, refuses_the_dtypes_it_does_not_accept) {
  for (const DType t : kDTypes) {
    if (accepts(t)) continue;
    EXPECT_THROW(compute(row().arity,
                         [&](size_t) {
                           return of_wholes({1, 1}, t);
                         }),
                 DTypeError)
        << row().name << " in " << name(t);
  }
}

TEST_P(PointwiseRows, gives_the_same_bits_for_every_length_and_alignment) {
  const DType t = accepts(kF32) ? kF32 : kI32;
  constexpr int64_t kLongest = 133;
  std::mt19937_64 random(kSeed);
  std::vector<Tensor> whole;
  for (int k = 0; k < row().arity; ++k) {
    std::vector<double> values;
    for (int64_t i = 0; i < kLongest + 3; ++i)
      values.push_back(t == kF32 ? std::uniform_real_distribution<double>(-3, 3)(random)
                                 : 1 + static_cast<double>(random() % 9));
    whole.push_back(of_reals(values, t));
  }
  const auto part = [&](int64_t begin, int64_t length) {
    return compute(whole.size(), [&](size_t k) { return whole[k].narrow(0, begin, length).clone(); });
  };
  const std::vector<double> all = part(0, kLongest + 3).to_vector<double>();
  for (int64_t begin = 0; begin < 3; ++begin) {
    for (int64_t n = 0; n <= kLongest; n += n < 40 ? 1 : 31) {
      const std::vector<double> got = part(begin, n).to_vector<double>();
      for (int64_t i = 0; i < n; ++i) {
        const double want = all[static_cast<size_t>(begin + i)];
        ASSERT_TRUE(got[static_cast<size_t>(i)] == want ||
                    (std::isnan(want) && std::isnan(got[static_cast<size_t>(i)])))
            << row().name << " element " << i << " of " << n;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, PointwiseRows, testing::Range(0, kPointwiseCount),
                         [](const auto& info) { return std::string(kPointwise[info.param].name); });

/// Functions of one operand with a real result (the elementary ones) are vector code in f32 and f64. Their error is
/// bounded over their whole range, not only at chosen points.
TEST(PointwiseValues, elementary_functions_hold_their_bound_over_their_range) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937_64 random(kSeed);
  for (int p = 0; p < kPointwiseCount; ++p) {
    if (kPointwise[p].arity != 1 || kPointwise[p].result != Result::real) continue;
    const Op op = static_cast<Op>(p);
    const Reference& r = reference(op);
    for (const DType t : {kF32, kF64}) {
      std::vector<double> values;
      for (int i = 0; i < 40000; ++i) values.push_back(std::uniform_real_distribution<double>(-8, 8)(random));
      for (int i = 0; i < 40000; ++i)
        values.push_back(std::ldexp(random() & 1 ? 1.0 : -1.0, 0) *
                         std::exp2(std::uniform_real_distribution<double>(-140, 14)(random)));
      const Tensor x = of_reals(values, t);
      const std::vector<double> in = x.to_vector<double>(),
                                out = ops::pointwise(op, std::vector<Operand>{x}).to_vector<double>();
      for (size_t i = 0; i < in.size(); ++i) {
        const Real value = in[i];
        const Arguments a{&value, t == kF32};
        ASSERT_TRUE(near(out[i], r.real(a), t, r, a))
            << name(op) << "(" << fmt::format("{:.17g}", in[i]) << ") in " << name(t) << " gave " << out[i];
      }
    }
  }
}

/// Where gelu is not computed from erf, it is rounded to the same 16-bit floats.
TEST(PointwiseValues, gelu_of_every_16_bit_float_is_what_erf_gives) {
  for (const DType t : {kF16, kBF16}) {
    const Tensor all = every_16_bit_float(t);
    const Tensor x = all.to(kF32), by_erf = ((x * 0.70710678118654752440).erf() + 1).mul(x * 0.5).to(t), y = gelu(all);
    const auto *want = static_cast<const uint16_t*>(host_data(by_erf)),
               *got = static_cast<const uint16_t*>(host_data(y));
    for (size_t i = 0; i < 65536; ++i)
      ASSERT_EQ(got[i], want[i]) << name(t) << " " << element(all, static_cast<int64_t>(i));
  }
}

/// Results that are exact in 16 bits are not rounded: they are those of f32, NaN's bits included.
TEST(PointwiseValues, every_16_bit_float_gives_the_exact_result_of_f32) {
  for (const DType t : {kF16, kBF16}) {
    const Tensor all = every_16_bit_float(t);
    const Tensor wide = all.to(kF32);
    const auto expect = [&](const char* what, const Tensor& y, const Tensor& of_f32) {
      const Tensor rounded = of_f32.to(t);
      const auto *want = static_cast<const uint16_t*>(host_data(rounded)),
                 *got = static_cast<const uint16_t*>(host_data(y));
      for (size_t i = 0; i < 65536; ++i)
        ASSERT_EQ(got[i], want[i]) << what << " of " << name(t) << " " << element(all, static_cast<int64_t>(i));
    };
    expect("abs", all.abs(), wide.abs());
    expect("neg", all.neg(), wide.neg());
    expect("sign", all.sign(), wide.sign());
    expect("floor", all.floor(), wide.floor());
    expect("ceil", all.ceil(), wide.ceil());
    expect("round", all.round(), wide.round());
    expect("trunc", all.trunc(), wide.trunc());
    expect("relu", relu(all), relu(wide));
    // Numbers that are no 16-bit floats.
    expect("clamp", clamp(all, -0.1003, 2.7183), clamp(wide, -0.1003, 2.7183));
    expect("clamp_min", all.clamp_min(0.3337), wide.clamp_min(0.3337));
    expect("clamp_max", all.clamp_max(1e-3), wide.clamp_max(1e-3));
    expect("clamp_max", all.clamp_max(NAN), wide.clamp_max(NAN));
    for (const double tiny : {1e-41, 1e-9}) expect("clamp", clamp(all, -tiny, tiny), clamp(wide, -tiny, tiny));
  }
}

/// Numbers that i32 does not hold, too.
TEST(PointwiseValues, numbers_beside_i32_count_with_their_last_bits) {
  std::vector<int64_t> values;
  for (const int64_t v : {INT64_C(0), INT64_C(1), INT64_C(-1), INT64_C(77), INT64_C(2147483647), INT64_C(-2147483648)})
    values.insert(values.end(), 7, v);
  const Tensor x = from_data(values).to(kI32), wide = x.to(kI64);
  const auto expect = [](const Tensor& y, const Tensor& of_i64) {
    EXPECT_EQ(y.to_vector<int64_t>(), of_i64.to(kI32).to_vector<int64_t>());
  };
  for (const int64_t number : {INT64_C(3), INT64_C(-7), INT64_C(2147483647), INT64_C(-2147483648), INT64_C(2147483648),
                               INT64_C(1099511627781), INT64_MIN}) {
    SCOPED_TRACE(number);
    expect(x + number, wide + number);
    expect(x - number, wide - number);
    expect(x * number, wide * number);
    expect(x ^ number, wide ^ number);
    expect(add(x, x, number), add(wide, wide, number));
  }
  constexpr int64_t kFar = int64_t{1} << 40;
  expect(x.clamp_max(kFar), wide.clamp_max(kFar));
  expect(x.clamp_min(-kFar), wide.clamp_min(-kFar));
  expect(clamp(x, -kFar, 5), clamp(wide, -kFar, 5));
  expect(pow(x, kFar + 1), pow(wide, kFar + 1));
  for (const int64_t bits : {0, 1, 30, 31, 32, 40, 63}) {
    expect(bitwise_left_shift(x, bits), bitwise_left_shift(wide, bits));
    expect(bitwise_right_shift(x, bits), bitwise_right_shift(wide, bits));
  }
}

/// Every digit of two binades, and special values: rsqrt of f32 is the quotient, rounded once.
TEST(PointwiseValues, rsqrt_divides_1_by_the_root) {
  constexpr uint32_t kOne = 0x3f800000, kFour = 0x40800000, kChunk = 1u << 20;
  std::vector<float> values = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -1.0f, 1e-45f, 1.1754942e-38f, 3.4028235e38f};
  for (uint32_t begin = kOne; begin <= kFour; begin += kChunk) {
    for (uint32_t i = 0; i < kChunk; ++i) values.push_back(std::bit_cast<float>(begin + i));
    const Tensor x = from_data(values), y = x.rsqrt(), root = x.sqrt();
    const auto *got = static_cast<const float*>(host_data(y)), *divisor = static_cast<const float*>(host_data(root));
    for (size_t i = 0; i < values.size(); ++i) {
      const float want = 1 / divisor[i];
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got[i])
                                   : std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want))
          << values[i];
    }
    values.clear();
  }
}

/// The whole quotient of two numbers of f32, in exact arithmetic: products of 24 by 22 digits fit a double.
double whole_quotient(double x, double y) {
  double quotient = std::floor(x / y);
  const auto leaves = [&](double q) { return (x - q * y) * (y < 0 ? -1 : 1); };
  while (leaves(quotient) < 0) --quotient;
  while (leaves(quotient + 1) >= 0) ++quotient;
  return quotient;
}

TEST(PointwiseValues, a_rounded_down_quotient_is_exact_beside_whole_numbers) {
  std::vector<float> xs, ys;
  for (const float y : {3.0f, -3.0f, 0.1f, -7.3f, 1e-40f, -1e-42f, 1e30f, 1.1754944e-38f})
    for (const double k :
         {-4194302.0, -4194301.0, -77777.0, -3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0, 65537.0, 4194301.0}) {
      const float x = static_cast<float>(k * y);
      for (const float beside : {x, std::nextafter(x, -INFINITY), std::nextafter(x, INFINITY)}) {
        // Of the subnormal divisors, a neighbour may be beyond the quotients that are exact.
        if (std::fabs(beside / y) >= 0x1p22f) continue;
        xs.push_back(beside);
        ys.push_back(y);
      }
    }
  const std::vector<float> got = floor_divide(from_data(xs), from_data(ys)).to_vector<float>();
  for (size_t i = 0; i < xs.size(); ++i) {
    ASSERT_EQ(got[i], whole_quotient(xs[i], ys[i])) << fmt::format("{:a} / {:a}", xs[i], ys[i]);
    ASSERT_TRUE(got[i] != 0 || std::signbit(got[i]) == std::signbit(xs[i] / ys[i])) << xs[i] << " / " << ys[i];
  }
}

TEST(PointwiseValues, a_cube_is_within_a_unit_in_the_last_place) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937_64 random(kSeed);
  std::vector<float> values = {0.0f, -0.0f, 3.0f, -5.0f, 255.0f, 1e-14f, -2e-15f, 1e13f, -1e13f, INFINITY, -INFINITY};
  for (int i = 0; i < 100'000; ++i)
    values.push_back(
        static_cast<float>(std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random), i % 80 - 40)));
  const std::vector<float> got = from_data(values).pow(3).to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const Real want = Real(values[i]) * values[i] * values[i];
    ASSERT_TRUE(std::fabs(want) > std::numeric_limits<float>::max() ? std::isinf(got[i])
                                                                    : std::fabs(got[i] - want) <= ulp(want, kF32))
        << values[i];
    ASSERT_EQ(std::signbit(got[i]), std::signbit(values[i]));
  }
}

TEST(PointwiseValues, a_cube_is_a_power_with_three_as_its_exponents) {
  const auto same = [](const Tensor& x) {
    const std::vector<double> got = elements(x.pow(3)), want = elements(x.pow(full(x.sizes(), 3, {x.dtype()})));
    return std::equal(got.begin(), got.end(), want.begin(), want.end(), [](double a, double b) {
      return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
    });
  };
  for (const DType t : {kF32, kF16, kBF16, kF64}) {
    const Tensor all = every_16_bit_float(t == kF16 ? kF16 : kBF16).to(t);
    EXPECT_TRUE(same(all)) << name(t);
    EXPECT_TRUE(same(all.reshape({256, 256}).t())) << name(t);
    EXPECT_TRUE(same(all.narrow(0, 16'000, 1).expand({40}))) << name(t);
    for (int64_t length = 0; length <= 40; ++length)
      EXPECT_TRUE(same(all.narrow(0, 16'000 - length, length))) << name(t) << ", " << length;
  }
}

TEST(PointwiseValues, a_power_is_within_two_units_in_the_last_place) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937_64 random(kSeed);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  std::vector<float> bases, exponents;
  const auto add = [&](double x, double y) {
    bases.push_back(static_cast<float>(x));
    exponents.push_back(static_cast<float>(y));
  };
  for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 2.0f, -2.5f, 1e-40f, 1.1754944e-38f, 3.4028235e38f, INFINITY,
                        -INFINITY, NAN, std::sqrt(0.5f), std::sqrt(2.0f), std::nextafter(1.0f, 0.0f)})
    for (const float y : {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, -0.3f, 3.0f, 4.0f, -5.0f, 1e-40f, 125.0f, -150.0f, 1e30f,
                          INFINITY, -INFINITY, NAN})
      add(x, y);
  for (int i = 0; i < 100'000; ++i) {
    const float x = static_cast<float>(std::exp2(uniform(-1, 1)));
    add(x, uniform(-150, 129) / std::log2(static_cast<double>(x)));  // results of every size
    add(std::exp2(uniform(-149, 128)), uniform(-3, 3));
    add(i % 200 * 0.25, i % 9 - 4);
  }
  const std::vector<float> got = pow(from_data(bases), from_data(exponents)).to_vector<float>();
  for (size_t i = 0; i < got.size(); ++i) {
    const Real want = std::pow(Real(bases[i]), Real(exponents[i]));
    SCOPED_TRACE(fmt::format("{:a} to {:a}", bases[i], exponents[i]));
    ASSERT_EQ(std::isnan(got[i]), std::isnan(want));
    if (std::isnan(want)) continue;
    ASSERT_EQ(std::signbit(got[i]), std::signbit(want));
    if (std::fabs(want) > Real(std::numeric_limits<float>::max())) {
      ASSERT_GE(std::fabs(got[i]), 0x1.fffffcp127f);
    } else {
      ASSERT_LE(std::fabs(got[i] - want), 2 * ulp(want, kF32)) << got[i];
    }
  }
}

TEST(PointwiseValues, erf_of_f64_is_within_a_unit_and_a_half_in_the_last_place) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937_64 random(kSeed);
  std::vector<double> values = {0.0, -0.0, 5e-324, -5e-324, 1e-310, 5.92, 5.93, 6, -1e300, INFINITY, -INFINITY};
  for (int i = 0; i < 400000; ++i) values.push_back(std::uniform_real_distribution<double>(-6, 6)(random));
  for (int i = 0; i < 100000; ++i)
    values.push_back(std::exp2(std::uniform_real_distribution<double>(-1070, 3)(random)));
  const std::vector<double> got = from_data(values).erf().to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const Real want = std::erf(Real(values[i]));
    ASSERT_LE(std::fabs(got[i] - want), Real(1.5) * ulp(want, kF64)) << fmt::format("{:.17g}", values[i]);
    ASSERT_LE(std::fabs(got[i]), 1);
    ASSERT_EQ(std::signbit(got[i]), std::signbit(values[i]));
  }
}

}  // namespace
}  // namespace lorry::test
