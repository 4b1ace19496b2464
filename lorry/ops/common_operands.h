#pragma once

// Operands are converted to their common type, as in PyTorch: there, 255 (u8) equals -1 and 0.1 (f16) equals 0.1.
// Kernels convert every operand straight to the type they compute in, so what the common type does not hold is
// converted here, before the call. Few operands can hold more than the common type: numbers, 0-d tensors, and integers
// beside 16-bit floats.

#include <array>
#include <optional>
#include <span>

#include "lorry/formula/pointwise.h"
#include "lorry/formula/traits.h"
#include "lorry/ops/dispatch/table.h"
#include "lorry/tensor/tensor.h"

namespace lorry::ops {

/// The operands that decide the type: a condition or a coefficient does not.
inline std::span<const Operand> deciding(Op op, std::span<const Operand> operands) {
  const Deciding some = row(static_cast<Pointwise>(op)).deciding;
  return operands.subspan(some.begin, some.end - some.begin);
}

/// What a row's formula says of its operands (formula/traits.h).
struct OperandRules {
  bool divides_whole, raises_whole, shifts, rounds_numbers;
  formula::Bound bounds;
};
const OperandRules& operand_rules(Op op);

/// Whether a call with other numbers, or other divisors, may convert its operands or be refused where this one is not.
bool depends_on_values(Op op, DType common, std::span<const Operand> operands);

/// What was converted of a call's operands.
struct Converted {
  std::array<Operand, 4> operands{0, 0, 0, 0};
  std::array<Tensor, 4> tensors;
};

/// The operands of a call in the common type of those that decide it; others stay as they are. So do floating numbers
/// and 0-d tensors beside 16-bit floats, except for comparisons, remainders and powers.
class CommonOperands {
 public:
  CommonOperands(Op op, DType common, std::span<const Operand> given) : operands_(given) {
    // Kernels compute in these types; and operands whose common type is bool are bool already.
    if (common == kF32 || common == kF64 || common == kI64 || common == kBool) [[likely]]
      return;
    for (const Operand& x : given)
      if (x.tensor() == nullptr || x.tensor()->dtype() != common) {
        convert(op, common);
        return;
      }
  }
  CommonOperands(const CommonOperands&) = delete;
  CommonOperands& operator=(const CommonOperands&) = delete;

  std::span<const Operand> operands() const { return operands_; }
  bool converts() const { return converted_.has_value(); }

 private:
  void convert(Op op, DType common);

  std::span<const Operand> operands_;
  std::optional<Converted> converted_;
};

}  // namespace lorry::ops
