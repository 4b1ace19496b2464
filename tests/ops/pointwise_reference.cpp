#include "tests/ops/pointwise_reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <stdexcept>

namespace lorry::test {
namespace {

using A = const Arguments&;
using W = const int64_t*;

constexpr Real kHalfRoot = std::numbers::sqrt2_v<Real> / 2;

uint64_t bits(int64_t x) { return static_cast<uint64_t>(x); }
int64_t wrap(uint64_t x) { return static_cast<int64_t>(x); }
/// C's quotient, with the one that overflows wrapped; the divisor is not 0.
int64_t quotient(int64_t x, int64_t y) { return y == -1 ? wrap(0 - bits(x)) : x / y; }
int64_t rest(int64_t x, int64_t y) { return y == -1 ? 0 : x % y; }
bool opposite(int64_t r, int64_t y) { return r != 0 && (r < 0) != (y < 0); }

int64_t power(W a) {
  int64_t base = a[0], exponent = a[1];
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1;
  for (int bit = 62; bit >= 0; --bit) {
    result *= result;
    if (exponent >> bit & 1) result *= bits(base);
  }
  return wrap(result);
}

Real remainder(Real x, Real y) {
  const Real r = std::fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
/// Python's float_divmod.
Real floor_divide(Real x, Real y) {
  if (y == 0) return x / y;
  const Real r = std::fmod(x, y);
  Real q = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) q -= 1;
  if (q == 0) return std::copysign(Real(0), x / y);
  const Real whole = std::floor(q);
  return q - whole > 0.5L ? whole + 1 : whole;
}
Real larger(Real x, Real y) { return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y); }
Real smaller(Real x, Real y) { return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y); }
Real sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real normal_cdf(Real x) { return 0.5L * std::erfc(-x * kHalfRoot); }
Real normal_density(Real x) { return std::exp(-0.5L * x * x) * kHalfRoot * std::numbers::inv_sqrtpi_v<Real>; }
Real twice_u(Real x) { return 2 * std::sqrt(2 / std::numbers::pi_v<Real>) * (x + 0.044715L * x * x * x); }
Real gate(Real x) { return std::isinf(x) && x < 0 ? 0 : sigmoid(twice_u(x)); }

Real size_of_x(A a) { return std::fabs(a[0]); }
Real size_of_gelu_tanh(A a) { return std::fabs(a[0] * gate(a[0])) * (1 + std::fabs(twice_u(a[0]))); }

// Long: a table, a row an operator.
const std::map<Op, Reference>& references() {
  static const std::map<Op, Reference> kReferences = {
      {Op::abs, {[](A a) { return std::fabs(a[0]); }, [](W a) { return a[0] < 0 ? wrap(0 - bits(a[0])) : a[0]; }}},
      {Op::neg, {[](A a) { return -a[0]; }, [](W a) { return wrap(0 - bits(a[0])); }}},
      {Op::sign,
       {[](A a) -> Real { return a[0] > 0   ? 1
                                 : a[0] < 0 ? -1
                                            : 0; },
        [](W a) -> int64_t { return (a[0] > 0) - (a[0] < 0); }}},
      {Op::square, {[](A a) { return a[0] * a[0]; }, [](W a) { return wrap(bits(a[0]) * bits(a[0])); }}},
      {Op::reciprocal, {[](A a) { return 1 / a[0]; }}},
      {Op::sqrt, {[](A a) { return std::sqrt(a[0]); }}},
      {Op::rsqrt, {[](A a) { return 1 / std::sqrt(a[0]); }, nullptr, 1.5}},
      {Op::floor, {[](A a) { return std::floor(a[0]); }, [](W a) { return a[0]; }}},
      {Op::ceil, {[](A a) { return std::ceil(a[0]); }, [](W a) { return a[0]; }}},
      {Op::round, {[](A a) { return std::nearbyint(a[0]); }, [](W a) { return a[0]; }}},
      {Op::trunc, {[](A a) { return std::trunc(a[0]); }, [](W a) { return a[0]; }}},
      {Op::frac, {[](A a) { return a[0] - std::trunc(a[0]); }}},

      {Op::exp, {[](A a) { return std::exp(a[0]); }, nullptr, 2}},
      {Op::exp2, {[](A a) { return std::exp2(a[0]); }, nullptr, 2}},
      {Op::expm1, {[](A a) { return std::expm1(a[0]); }, nullptr, 3}},
      {Op::log, {[](A a) { return std::log(a[0]); }, nullptr, 2}},
      {Op::log1p, {[](A a) { return std::log1p(a[0]); }, nullptr, 2}},
      {Op::log2, {[](A a) { return std::log2(a[0]); }, nullptr, 3}},
      {Op::log10, {[](A a) { return std::log10(a[0]); }, nullptr, 3}},
      {Op::sin, {[](A a) { return std::sin(a[0]); }, nullptr, 4}},
      {Op::cos, {[](A a) { return std::cos(a[0]); }, nullptr, 4}},
      {Op::tan, {[](A a) { return std::tan(a[0]); }, nullptr, 4}},
      {Op::asin, {[](A a) { return std::asin(a[0]); }, nullptr, 4}},
      {Op::acos, {[](A a) { return std::acos(a[0]); }, nullptr, 4}},
      {Op::atan, {[](A a) { return std::atan(a[0]); }, nullptr, 4}},
      {Op::sinh, {[](A a) { return std::sinh(a[0]); }, nullptr, 4}},
      {Op::cosh, {[](A a) { return std::cosh(a[0]); }, nullptr, 4}},
      {Op::tanh, {[](A a) { return std::tanh(a[0]); }, nullptr, 4}},
      {Op::erf, {[](A a) { return std::erf(a[0]); }, nullptr, 2}},
      {Op::erfc, {[](A a) { return std::erfc(a[0]); }, nullptr, 6}},

      {Op::sigmoid, {[](A a) { return sigmoid(a[0]); }, nullptr, 4, nullptr, 1e308, true}},
      {Op::relu, {[](A a) { return a[0] <= 0 ? 0 : a[0]; }, [](W a) { return std::max<int64_t>(a[0], 0); }}},
      {Op::gelu,
       {[](A a) { return std::isinf(a[0]) && a[0] < 0 ? NAN : a[0] * normal_cdf(a[0]); }, nullptr, 4, size_of_x}},
      {Op::gelu_tanh, {[](A a) { return a[0] * gate(a[0]); }, nullptr, 8, size_of_gelu_tanh, 1e308, true}},
      {Op::silu, {[](A a) { return a[0] / (1 + std::exp(-a[0])); }, nullptr, 4, nullptr, 1e308, true}},

      {Op::isnan, {[](A a) -> Real { return std::isnan(a[0]); }, [](W) -> int64_t { return 0; }}},
      {Op::isinf, {[](A a) -> Real { return std::isinf(a[0]); }, [](W) -> int64_t { return 0; }}},
      {Op::isfinite, {[](A a) -> Real { return std::isfinite(a[0]); }, [](W) -> int64_t { return 1; }}},
      {Op::logical_not, {[](A a) -> Real { return !(a[0] != 0); }, [](W a) -> int64_t { return a[0] == 0; }}},
      {Op::bitwise_not, {nullptr, [](W a) { return ~a[0]; }}},

      {Op::add, {[](A a) { return a[0] + a[1]; }, [](W a) { return wrap(bits(a[0]) + bits(a[1])); }}},
      {Op::sub, {[](A a) { return a[0] - a[1]; }, [](W a) { return wrap(bits(a[0]) - bits(a[1])); }}},
      {Op::mul, {[](A a) { return a[0] * a[1]; }, [](W a) { return wrap(bits(a[0]) * bits(a[1])); }}},
      {Op::div, {[](A a) { return a[0] / a[1]; }}},
      {Op::floor_divide,
       {[](A a) { return floor_divide(a[0], a[1]); },
        [](W a) { return wrap(bits(quotient(a[0], a[1])) - opposite(rest(a[0], a[1]), a[1])); }, 2}},
      {Op::trunc_divide,
       {[](A a) { return std::trunc(a.round(a[0] / a[1])); }, [](W a) { return quotient(a[0], a[1]); }}},
      {Op::remainder,
       {[](A a) { return remainder(a[0], a[1]); },
        [](W a) { return opposite(rest(a[0], a[1]), a[1]) ? rest(a[0], a[1]) + a[1] : rest(a[0], a[1]); }}},
      {Op::fmod, {[](A a) { return std::fmod(a[0], a[1]); }, [](W a) { return rest(a[0], a[1]); }}},
      {Op::pow, {[](A a) { return std::pow(a[0], a[1]); }, power, 2}},
      {Op::atan2, {[](A a) { return std::atan2(a[0], a[1]); }, nullptr, 2}},
      {Op::maximum,
       {[](A a) { return larger(a[0], a[1]); }, [](W a) { return std::max(a[0], a[1]); }, 0.501, nullptr, 1e308, false,
        true}},
      {Op::minimum,
       {[](A a) { return smaller(a[0], a[1]); }, [](W a) { return std::min(a[0], a[1]); }, 0.501, nullptr, 1e308, false,
        true}},
      {Op::fmax,
       {[](A a) { return std::fmax(a[0], a[1]); }, [](W a) { return std::max(a[0], a[1]); }, 0.501, nullptr, 1e308,
        false, true}},
      {Op::fmin,
       {[](A a) { return std::fmin(a[0], a[1]); }, [](W a) { return std::min(a[0], a[1]); }, 0.501, nullptr, 1e308,
        false, true}},
      {Op::clamp_min,
       {[](A a) { return larger(a[0], a[1]); }, [](W a) { return std::max(a[0], a[1]); }, 0.501, nullptr, 1e308, false,
        true}},
      {Op::clamp_max,
       {[](A a) { return smaller(a[0], a[1]); }, [](W a) { return std::min(a[0], a[1]); }, 0.501, nullptr, 1e308, false,
        true}},

      {Op::eq, {[](A a) -> Real { return a[0] == a[1]; }, [](W a) -> int64_t { return a[0] == a[1]; }}},
      {Op::ne, {[](A a) -> Real { return a[0] != a[1]; }, [](W a) -> int64_t { return a[0] != a[1]; }}},
      {Op::lt, {[](A a) -> Real { return a[0] < a[1]; }, [](W a) -> int64_t { return a[0] < a[1]; }}},
      {Op::le, {[](A a) -> Real { return a[0] <= a[1]; }, [](W a) -> int64_t { return a[0] <= a[1]; }}},
      {Op::gt, {[](A a) -> Real { return a[0] > a[1]; }, [](W a) -> int64_t { return a[0] > a[1]; }}},
      {Op::ge, {[](A a) -> Real { return a[0] >= a[1]; }, [](W a) -> int64_t { return a[0] >= a[1]; }}},
      {Op::logical_and,
       {[](A a) -> Real { return a[0] != 0 && a[1] != 0; }, [](W a) -> int64_t { return a[0] && a[1]; }}},
      {Op::logical_or,
       {[](A a) -> Real { return a[0] != 0 || a[1] != 0; }, [](W a) -> int64_t { return a[0] || a[1]; }}},
      {Op::logical_xor,
       {[](A a) -> Real { return (a[0] != 0) != (a[1] != 0); }, [](W a) -> int64_t { return !a[0] != !a[1]; }}},
      {Op::bitwise_and, {nullptr, [](W a) { return a[0] & a[1]; }}},
      {Op::bitwise_or, {nullptr, [](W a) { return a[0] | a[1]; }}},
      {Op::bitwise_xor, {nullptr, [](W a) { return a[0] ^ a[1]; }}},
      {Op::bitwise_left_shift, {nullptr, [](W a) { return a[1] < 0 || a[1] > 63 ? 0 : wrap(bits(a[0]) << a[1]); }}},
      {Op::bitwise_right_shift,
       {nullptr, [](W a) { return a[1] < 0 || a[1] > 63 ? (a[0] < 0 ? -1 : 0) : a[0] >> a[1]; }}},

      {Op::add_scaled,
       {[](A a) { return a[0] + a[2] * a[1]; }, [](W a) { return wrap(bits(a[0]) + bits(a[2]) * bits(a[1])); }, 2,
        [](A a) { return std::fabs(a[0]) + std::fabs(a[2] * a[1]); }, 1e15}},
      {Op::where, {[](A a) { return a[0] != 0 ? a[1] : a[2]; }, [](W a) { return a[0] != 0 ? a[1] : a[2]; }}},
      {Op::clamp,
       {[](A a) { return smaller(larger(a[0], a[1]), a[2]); }, [](W a) { return std::min(std::max(a[0], a[1]), a[2]); },
        0.501, nullptr, 1e308, false, true}},
      {Op::lerp,
       {[](A a) { return std::fabs(a[2]) < 0.5L ? a[0] + a[2] * (a[1] - a[0]) : a[1] - (a[1] - a[0]) * (1 - a[2]); },
        nullptr, 3, [](A a) { return (std::fabs(a[0]) + std::fabs(a[1])) * (1 + std::fabs(a[2])); }, 1e15}},
      {Op::addcmul,
       {[](A a) { return a[0] + a[3] * a[1] * a[2]; },
        [](W a) { return wrap(bits(a[0]) + bits(a[3]) * bits(a[1]) * bits(a[2])); }, 3,
        [](A a) { return std::fabs(a[0]) + std::fabs(a[3] * a[1] * a[2]); }, 1e10}},
      {Op::addcdiv,
       {[](A a) { return a[0] + a[3] * a[1] / a[2]; }, nullptr, 3,
        [](A a) { return std::fabs(a[0]) + std::fabs(a[3] * a[1] / a[2]); }, 1e10, true}},
      {Op::leaky_relu, {[](A a) { return a[0] > 0 ? a[0] : a[0] * a[1]; }}},
      {Op::elu, {[](A a) { return a[0] > 0 ? a[0] : a[1] * std::expm1(a[0]); }, nullptr, 4}},
      {Op::softplus,
       {[](A a) { return a.round(a[0] * a[1]) > a[2] ? a[0] : std::log1p(std::exp(a[0] * a[1])) / a[1]; }, nullptr, 4,
        size_of_x, 1e15, true}},
      {Op::nan_to_num, {[](A a) {
         return std::isnan(a[0]) ? a[1] : std::isinf(a[0]) ? (a[0] > 0 ? a[2] : a[3]) : a[0];
       }}},

      {Op::sigmoid_backward,
       {[](A a) { return a[0] * (a[1] * (1 - a[1])); }, nullptr, 4,
        [](A a) { return std::fabs(a[0] * a[1]) * (1 + std::fabs(a[1])); }, 1e10}},
      {Op::tanh_backward,
       {[](A a) { return a[0] * (1 - a[1] * a[1]); }, nullptr, 4,
        [](A a) { return std::fabs(a[0]) * (1 + a[1] * a[1]); }, 1e10}},
      {Op::relu_backward, {[](A a) { return a[1] <= 0 ? 0 : a[0]; }}},
      {Op::gelu_backward,
       {[](A a) { return a[0] * (normal_cdf(a[1]) + a[1] * normal_density(a[1])); }, nullptr, 16,
        [](A a) { return std::fabs(a[0]); }, 1e10, false, false, true}},
      {Op::gelu_tanh_backward,
       {[](A a) {
          const Real x = a[1], g = gate(x);
          return a[0] *
                 (g + x * g * (1 - g) * 2 * std::sqrt(2 / std::numbers::pi_v<Real>) * (1 + 3 * 0.044715L * x * x));
        },
        nullptr, 16, [](A a) { return std::fabs(a[0]) * (1 + a[1] * a[1]); }, 1e10, false, false, true}},
      {Op::silu_backward,
       {[](A a) { return a[0] * (sigmoid(a[1]) * (1 + a[1] * (1 - sigmoid(a[1])))); }, nullptr, 8,
        [](A a) { return std::fabs(a[0]) * (1 + std::fabs(a[1])); }, 1e10, false, false, true}},
  };
  return kReferences;
}

}  // namespace

const Reference& reference(Op op) {
  const auto at = references().find(op);
  if (at == references().end())
    throw std::logic_error(std::string(name(op)) +
                           " has no reference values: add them to tests/ops/pointwise_reference.cpp");
  return at->second;
}

}  // namespace lorry::test
