#pragma once

// What a formula may say of itself beside its arithmetic, as static members:
//
//   kLongIn = LongIn::...     the value types in which it takes many instructions: argument reductions, loops, and
//                             nearly everything that is not arithmetic in f64 and i64. A GPU kernel holds one copy of
//                             it and calls that
//   kFastMath = true          what it costs is an exponential and a quotient by 1 + exp(...): a GPU computes narrow
//                             results with approximations of both (kernels/cuda/common/fast_math.h)
//   kExact = true             its results of 16-bit floats are 16-bit floats, so that they need no rounding
//
// How its operator treats whole numbers, and numbers that the operands' common type does not hold
// (ops/common_operands.h):
//
//   kDividesWhole = true      it divides whole numbers by its last operand, which must not be 0
//   kRaisesWhole = true       it raises whole numbers to its last operand, which must not be negative. The exponent
//                             need not fit the type
//   kShifts = true            it shifts whole numbers by its last operand
//   kBounds = Bound::...      its operands bound the result. A whole bound outside the type is no bound, or is refused
//   kRoundsNumbers = true     numbers and 0-d tensors beside 16-bit floats are rounded to 16 bits first, as comparisons
//                             do. Other formulas take all their digits

#include <cstdint>
#include <type_traits>

namespace lorry::formula {

enum class LongIn : unsigned char { f64, floats, i64, all };

/// C is float, double or int64_t.
template <class F, class C>
inline constexpr bool kLong = false;
template <class F, class C>
requires requires { F::kLongIn; }
inline constexpr bool kLong<F, C> = F::kLongIn == LongIn::all ||
                                    (F::kLongIn == LongIn::floats && std::is_floating_point_v<C>) ||
                                    (F::kLongIn == LongIn::f64 && std::is_same_v<C, double>) ||
                                    (F::kLongIn == LongIn::i64 && std::is_same_v<C, int64_t>);

template <class F>
inline constexpr bool kFastMath = requires {
  F::kFastMath;
};
template <class F>
inline constexpr bool kExact = requires {
  F::kExact;
};
template <class F>
inline constexpr bool kDividesWhole = requires {
  F::kDividesWhole;
};
template <class F>
inline constexpr bool kRaisesWhole = requires {
  F::kRaisesWhole;
};
template <class F>
inline constexpr bool kShifts = requires {
  F::kShifts;
};
template <class F>
inline constexpr bool kRoundsNumbers = requires {
  F::kRoundsNumbers;
};

/// below: every operand is a lower bound (maximum); above: an upper one (minimum); clamp: the second operand is a lower
/// bound, the third an upper one.
enum class Bound : unsigned char { none, below, above, clamp };

template <class F>
inline constexpr Bound kBounds = Bound::none;
template <class F>
requires requires { F::kBounds; }
inline constexpr Bound kBounds<F> = F::kBounds;

}  // namespace lorry::formula
