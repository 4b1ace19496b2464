#include "lorry/ops/common_operands.h"

#include <algorithm>

#include "lorry/formula/formulas.h"

namespace lorry::ops {
namespace {

bool compares(Op op) { return row(static_cast<Pointwise>(op)).result == Result::truth; }
bool bounds(Op op) {
  return op == Op::clamp || op == Op::clamp_min || op == Op::clamp_max || op == Op::maximum || op == Op::minimum ||
         op == Op::fmax || op == Op::fmin;
}
bool shifts(Op op) { return op == Op::bitwise_left_shift || op == Op::bitwise_right_shift; }

/// Operators whose result is right for any whole number, whether or not the common type holds it.
bool takes_any_number(Op op) { return bounds(op) || op == Op::pow; }
/// Operators for which floating numbers and 0-d tensors are rounded to 16 bits; for others they keep their digits.
bool rounds(Op op) { return compares(op) || op == Op::remainder || op == Op::fmod || op == Op::pow || op == Op::atan2; }

/// The number as the type stores it: whole numbers wrap, floating ones are rounded.
Scalar stored(const Scalar& number, DType type) {
  return visit(type, [&]<class T>(Type<T>) -> Scalar {
    if constexpr (std::is_integral_v<T>)
      return static_cast<int64_t>(static_cast<T>(number.to<int64_t>()));
    else
      return static_cast<double>(static_cast<T>(static_cast<Accumulate<T>>(number.to<double>())));
  });
}

bool holds(DType type, const Scalar& number) {
  if (is_floating(type)) return stored(number, type).to<double>() == number.to<double>();
  return stored(number, type).to<int64_t>() == number.to<int64_t>();
}

/// A bound outside the type bounds nothing on one side. On the other it would be every result, and the type cannot
/// store it.
void require_bounds(Op op, DType common, std::span<const Operand> operands) {
  if (!bounds(op)) return;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].tensor() != nullptr || holds(common, operands[i].scalar())) continue;
    const bool from_below = op == Op::clamp ? i == 1 : op == Op::clamp_min || op == Op::maximum || op == Op::fmax;
    const int64_t bound = operands[i].scalar().to<int64_t>();
    require<ValueError>(from_below == (bound < 0),
                        "a bound leaves no value of {}; got {}; expected one within the dtype's range", common, bound);
  }
}

bool differs(Op op, DType common, const Operand& x) {
  if (x.tensor() == nullptr)
    return (is_floating(common) ? rounds(op) : !takes_any_number(op)) && !holds(common, x.scalar());
  const DType type = x.tensor()->dtype();
  if (type == common) return false;
  if (is_floating(common)) return is_floating(type) ? rounds(op) : size_of(type) > 1;
  return promote(type, common) != common;
}

}  // namespace

bool divides_whole(Op op) {
  constexpr bool kDivides[] = {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) formula::kDividesWhole<formula::Formula>,
#include "lorry/formula/pointwise.def"
  };
  return kDivides[static_cast<int>(op)];
}

bool depends_on_values(Op op, DType common, std::span<const Operand> operands) {
  // Divisors may be 0, and exponents of whole numbers negative.
  if (!is_floating(common) && (divides_whole(op) || op == Op::pow)) return true;
  const bool converts = is_floating(common) ? is_narrow(common) && rounds(op)
                                            : common != kI64 && (compares(op) || bounds(op) || shifts(op));
  return converts &&
         std::any_of(operands.begin(), operands.end(), [](const Operand& x) { return x.tensor() == nullptr; });
}

void CommonOperands::convert(Op op, DType common) {
  if (is_integral(common)) require_bounds(op, common, operands_);
  const std::span<const Operand> some = deciding(op, operands_);
  const auto other = [&](const Operand& x) { return differs(op, common, x); };
  if (std::none_of(some.begin(), some.end(), other)) return;
  Converted& c = converted_.emplace();
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& x = operands_[i];
    c.operands[i] = x;
    if (&x < some.data() || &x >= some.data() + some.size() || !other(x)) continue;
    if (x.tensor() == nullptr) {
      c.operands[i] = stored(x.scalar(), common);
    } else {
      c.tensors[i] = x.tensor()->to(common);
      c.operands[i] = c.tensors[i];
    }
  }
  operands_ = {c.operands.data(), operands_.size()};
}

}  // namespace lorry::ops
