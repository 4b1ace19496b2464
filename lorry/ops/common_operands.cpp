#include "lorry/ops/common_operands.h"

#include <algorithm>

#include "lorry/formula/formulas.h"

namespace lorry::ops {
namespace {

using formula::Bound;

constexpr OperandRules kOperandRules[] = {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain)                                              \
  {formula::kDividesWhole<formula::Formula>, formula::kRaisesWhole<formula::Formula>,                                \
   formula::kShifts<formula::Formula>, formula::kRoundsNumbers<formula::Formula> || Result::result == Result::truth, \
   formula::kBounds<formula::Formula>},
#include "lorry/formula/pointwise.def"
};

bool compares(Op op) { return row(static_cast<Pointwise>(op)).result == Result::truth; }

/// Whether the result is right for any whole number, even one that the common type does not hold.
bool takes_any_number(const OperandRules& rules) { return rules.bounds != Bound::none || rules.raises_whole; }

/// The number as the type stores it: whole numbers wrap, floating ones are rounded.
Scalar round_to(const Scalar& number, DType type) {
  return visit(type, [&]<class T>(Type<T>) -> Scalar {
    if constexpr (std::is_integral_v<T>)
      return static_cast<int64_t>(static_cast<T>(number.to<int64_t>()));
    else
      return static_cast<double>(static_cast<T>(static_cast<Accumulate<T>>(number.to<double>())));
  });
}

bool holds(DType type, const Scalar& number) {
  if (is_floating(type)) return round_to(number, type).to<double>() == number.to<double>();
  return round_to(number, type).to<int64_t>() == number.to<int64_t>();
}

/// A bound outside the type bounds nothing on one side. On the other it would be every result, and the type cannot
/// store it.
void require_bounds(Op op, DType common, std::span<const Operand> operands) {
  const Bound bounds = operand_rules(op).bounds;
  if (bounds == Bound::none) return;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].tensor() != nullptr || holds(common, operands[i].scalar())) continue;
    const bool from_below = bounds == Bound::clamp ? i == 1 : bounds == Bound::below;
    const int64_t bound = operands[i].scalar().to<int64_t>();
    require<ValueError>(from_below == (bound < 0),
                        "a bound leaves no value of {}; got {}; expected one within the dtype's range", common, bound);
  }
}

bool differs(Op op, DType common, const Operand& x) {
  const OperandRules& rules = operand_rules(op);
  if (x.tensor() == nullptr)
    return (is_floating(common) ? rules.rounds_numbers : !takes_any_number(rules)) && !holds(common, x.scalar());
  const DType type = x.tensor()->dtype();
  if (type == common) return false;
  if (is_floating(common)) return is_floating(type) ? rules.rounds_numbers : size_of(type) > 1;
  return promote(type, common) != common;
}

}  // namespace

const OperandRules& operand_rules(Op op) { return kOperandRules[static_cast<int>(op)]; }

bool depends_on_values(Op op, DType common, std::span<const Operand> operands) {
  const OperandRules& rules = operand_rules(op);
  // Divisors may be 0, and exponents of whole numbers negative.
  if (!is_floating(common) && (rules.divides_whole || rules.raises_whole)) return true;
  const bool converts = is_floating(common)
                            ? is_narrow(common) && rules.rounds_numbers
                            : common != kI64 && (compares(op) || rules.bounds != Bound::none || rules.shifts);
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
      c.operands[i] = round_to(x.scalar(), common);
    } else {
      c.tensors[i] = x.tensor()->to(common);
      c.operands[i] = c.tensors[i];
    }
  }
  operands_ = {c.operands.data(), operands_.size()};
}

}  // namespace lorry::ops
