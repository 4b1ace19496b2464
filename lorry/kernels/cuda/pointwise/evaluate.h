#pragma once

// How kernels evaluate a formula. Kernels built with Lorry and kernels compiled at run time share this function, so
// both give the same bits.

#include <cstdint>
#include <type_traits>
#include <utility>

#include "lorry/formula/scalar.h"
#include "lorry/kernels/cuda/common/fast_math.h"

namespace lorry::formula {
struct FloorDivide;
struct Pow;
struct Softplus;
}  // namespace lorry::formula

namespace lorry::kernels::cuda {

template <class Formula, class C, class... X>
__device__ __forceinline__ C evaluate(X... x) {
  if constexpr (std::is_same_v<C, int64_t>)
    return Formula()(formula::Whole(x)...).value;
  else
    return Formula()(x...);
}
template <class Formula, class C, class... X>
__device__ __noinline__ C evaluate_called(X... x) {
  return evaluate<Formula, C>(x...);
}

// ---- short ways -----------------------------------------------------------------------------------------------------

// Some formulas have a short way for frequent operands. It is inlined, and all others are left to a call. It computes
// several elements without a branch between them, so that their steps overlap; the result of an element does not depend
// on the others.

template <class Formula, class C>
inline constexpr bool kShortWay = std::is_same_v<Formula, formula::FloorDivide>
                                      ? std::is_same_v<C, float> || std::is_same_v<C, int64_t>
                                      : std::is_same_v<C, float> && (std::is_same_v<Formula, formula::Pow> ||
                                                                     std::is_same_v<Formula, formula::Softplus>);

/// The quotient rounded down, if it is small: to the bit what the formula gives. The division may have rounded up to a
/// whole number; then what that leaves of x has not the sign of y. fma rounds once, which does not change a sign.
__device__ __forceinline__ bool floor_quotient(float x, float y, float& result) {
  const float quotient = x / y;
  result = std::floor(quotient);
  const float rest = std::fma(-result, y, x);
  if ((rest != 0) & ((rest < 0) != (y < 0))) result -= 1;
  return (std::fabs(quotient) < 0x1p22f) & (std::fabs(y) < INFINITY);
}

/// The same for whole numbers below 2^31 that are not negative.
__device__ __forceinline__ bool floor_quotient(int64_t x, int64_t y, int64_t& result) {
  const auto divisor = static_cast<uint32_t>(y);
  result = static_cast<uint32_t>(x) / (divisor == 0 ? 1 : divisor);
  return (static_cast<uint64_t>(x | y) < 0x80000000) & (y != 0);
}

/// x^3. In f64, the first product is exact and the second has digits to spare.
__device__ __forceinline__ float cube(float x) {
  const double base = x;
  return static_cast<float>(base * base * base);
}

/// log2 x of a positive normal x. With x = 2^e m and s = (m - 1) / (m + 1), it is
/// e + 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ...), in two f32, a high and a low one.
struct Logarithm {
  float e, s, s_low, square, cube, high, low;

  __device__ __forceinline__ void find(uint32_t bits) {
    constexpr double kTwoByLn2 = 2.885390081777926815;
    constexpr float kFirst = static_cast<float>(kTwoByLn2), kFirstLow = static_cast<float>(kTwoByLn2 - kFirst);
    constexpr uint32_t kRootOfHalf = 0x3f3504f3;
    const int32_t exponent = static_cast<int32_t>(bits - kRootOfHalf) >> 23;
    e = static_cast<float>(exponent);
    const float m = __uint_as_float(bits - (static_cast<uint32_t>(exponent) << 23));
    const float above = m - 1, divisor = m + 1, divisor_low = m - (divisor - 1);
    const float reciprocal = fast_reciprocal(divisor);
    s = above * reciprocal;
    s_low = std::fma(-s, divisor_low, std::fma(-s, divisor, above)) * reciprocal;
    square = s * s;
    cube = square * s;
    high = kFirst * s;
    low = std::fma(kFirst, s_low, std::fma(kFirstLow, s, std::fma(kFirst, s, -high)));
  }
  /// Adds what was rounded off s^3: up to 2^-29 of the logarithm.
  __device__ __forceinline__ void add_rest_of_cube() {
    const float square_low = std::fma(s + s, s_low, std::fma(s, s, -square));
    const float cube_low = square_low * s + std::fma(square, s_low, std::fma(square, s, -cube));
    low = std::fma(cube_low, kThird, low);
  }
  /// 2^(y log2 x). Returns false if that is not well inside the range of f32.
  __device__ __forceinline__ bool power(float y, float& result) {
    constexpr float kFifth = 0.57707978f, kSeventh = 0.411900677f, kNinth = 0.336602261f;
    const float series = std::fma(square, std::fma(square, std::fma(square, kNinth, kSeventh), kFifth), kThird);
    low = std::fma(cube, series, low);
    const float sum = e + high, sum_low = (high - (sum - e)) + low;
    const float log = sum + sum_low, log_low = sum_low - (log - sum);
    const float power = y * log, power_low = std::fma(y, log_low, std::fma(y, log, -power));
    const float shifted = power + 0x1.8p23f;  // its lowest bits are those of the nearest whole number
    const float r = (power - (shifted - 0x1.8p23f)) + power_low;
    // 2^r for |r| <= 1/2
    float two = std::fma(r, 0.000154035138f, 0.00133918843f);
    two = std::fma(r, two, 0.00961824189f);
    two = std::fma(r, two, 0.0555035527f);
    two = std::fma(r, two, 0.240226497f);
    two = std::fma(r, two, 0.693147188f);
    two = std::fma(r, two, 1.0f);
    result = __uint_as_float(__float_as_uint(two) + (__float_as_uint(shifted) << 23));
    return std::fabs(power) < 125;
  }

 private:
  static constexpr float kThird = 0.961796692f;
};

/// x^y for positive normal x and results well inside the range of f32, within 1.8 ulp (pow of the CUDA library: 4); a
/// cube is computed in f64. Results for narrow floats, and exponents up to 4, do not need the rest of s^3.
template <int N>
__device__ __forceinline__ void usual_powers(const float (&x)[N][2], bool narrow, float (&result)[N], bool (&done)[N]) {
  constexpr uint32_t kSmallestNormal = 0x00800000, kNormals = 0x7f000000;
  const auto is_cube = [&](int i) { return x[i][1] == 3; };
  if (is_cube(0)) {
    bool cubes = true;
#pragma unroll
    for (int i = 1; i < N; ++i) cubes = cubes && is_cube(i);
    if (cubes) {
#pragma unroll
      for (int i = 0; i < N; ++i) result[i] = cube(x[i][0]), done[i] = true;
      return;
    }
  }
  float largest = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) largest = fmaxf(largest, std::fabs(x[i][1]));
  Logarithm logs[N];
#pragma unroll
  for (int i = 0; i < N; ++i) logs[i].find(__float_as_uint(x[i][0]));
  if (largest > 4 && !narrow) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (std::fabs(x[i][1]) > 4) logs[i].add_rest_of_cube();
  }
#pragma unroll
  for (int i = 0; i < N; ++i)
    done[i] =
        logs[i].power(x[i][1], result[i]) & (__float_as_uint(x[i][0]) - kSmallestNormal < kNormals) & (x[i][1] != 3);
}

/// Computes the elements that have a short way, and notes which.
template <class Formula, class C, int N, int kArity>
__device__ __forceinline__ void evaluate_shortly(const C (&x)[N][kArity], bool narrow, C (&result)[N],
                                                 bool (&done)[N]) {
  if constexpr (std::is_same_v<Formula, formula::Pow>) {
    usual_powers(x, narrow, result, done);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (std::is_same_v<Formula, formula::FloorDivide>) {
        done[i] = floor_quotient(x[i][0], x[i][1], result[i]);
      } else {
        static_assert(std::is_same_v<Formula, formula::Softplus>);
        result[i] = evaluate<Formula, C>(x[i][0], C(1), x[i][2]);  // without the product and the quotient by 1
        done[i] = x[i][1] == 1;
      }
    }
  }
}
/// An element without a short way; called, not inlined.
template <class Formula, class C, class... X>
__device__ __noinline__ C evaluate_others(X... x) {
  if constexpr (std::is_same_v<Formula, formula::Pow>) {
    const C operands[] = {x...};
    if (operands[1] == 3) return cube(operands[0]);
  }
  return evaluate<Formula, C>(x...);
}

/// Computes N elements. narrow: the results will be rounded to a narrow float. Contiguous and strided kernels decide it
/// in the same way, so results do not depend on strides. kInline: long formulas are not called.
template <class Formula, bool kInline = false, class C, int N, int kArity>
__device__ __forceinline__ void compute(const C (&x)[N][kArity], bool narrow, C (&result)[N]) {
  static_assert(!(kShortWay<Formula, C> && formula::kFastMath<Formula>));
  [[maybe_unused]] bool done[N], all = true;
  if constexpr (kShortWay<Formula, C>) {
    evaluate_shortly<Formula>(x, narrow, result, done);
#pragma unroll
    for (int i = 0; i < N; ++i) all = all && done[i];
    if (all) return;
  }
  const auto others = [&]<int... k>(std::integer_sequence<int, k...>) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if constexpr (formula::kFastMath<Formula> && std::is_same_v<C, float>) {
        if (narrow) {
          result[i] = Formula()(FastMath(x[i][k])...).value;
          continue;
        }
      }
      if constexpr (kShortWay<Formula, C>) {
        if (!done[i]) result[i] = evaluate_others<Formula, C>(x[i][k]...);
      } else if constexpr (formula::kLong<Formula, C> && !kInline) {
        result[i] = evaluate_called<Formula, C>(x[i][k]...);
      } else {
        result[i] = evaluate<Formula, C>(x[i][k]...);
      }
    }
  };
  others(std::make_integer_sequence<int, kArity>());
}
/// Computes one element.
template <class Formula, class C, int kArity>
__device__ __forceinline__ C compute(const C (&x)[kArity], bool narrow) {
  C operands[1][kArity], result[1];
#pragma unroll
  for (int k = 0; k < kArity; ++k) operands[0][k] = x[k];
  compute<Formula>(operands, narrow, result);
  return result[0];
}

}  // namespace lorry::kernels::cuda
