#pragma once

// Words of generated sources.

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "lorry/kernels/fused.h"

namespace lorry::kernels::cuda {

/// The C++ type of an element type.
const char* type_name(DType t);
/// Whether a step's formula takes many instructions.
bool is_long(const FusedStep& step);
const char* operator_name(const FusedStep& step);
/// Such as fused_mul_add_sigmoid, for whoever looks at a profile.
std::string kernel_name(std::span<const char* const> operators);

/// An operand of a step: how it is written, and its type.
struct SourceOperand {
  std::string text;
  const char* type;
};
/// What a step makes of its operands. operand(k, as): number k; numbers of the host are of type `as`, that of the
/// computation, or where there is none of their own.
std::string step_value(const FusedStep& step,
                       const std::function<SourceOperand(int k, std::optional<DType> as)>& operand);

}  // namespace lorry::kernels::cuda
