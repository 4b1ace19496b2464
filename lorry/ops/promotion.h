#pragma once

// Type promotion by PyTorch's rules. Operands fall into three categories: tensors with dimensions, 0-d tensors,
// numbers. A lower category changes the type only where its kind (bool < whole < floating) is above that of the
// categories before it; a number's floating type is the default, f32.

#include <span>

#include "lorry/tensor/tensor.h"

namespace lorry {

/// The common type of operands.
DType result_type(std::span<const Operand> operands);
DType result_type(const Operand& a, const Operand& b);

}  // namespace lorry
