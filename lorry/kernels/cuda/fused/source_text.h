#pragma once

// Parts of generated source text.

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
/// Maximum copies of formulas in a kernel; unrolling makes copies.
inline constexpr int kMostFormulas = 256;
/// How many groups of `width` elements a thread takes at a time, a power of two up to `most`: so many that 64 bytes of
/// operands are in flight, unless that makes its code too long. bytes: of the operands of one element.
int groups_of(std::span<const FusedStep> steps, int width, int64_t bytes, int most);
const char* operator_name(const FusedStep& step);
/// A name such as fused_mul_add_sigmoid, which profiles show.
std::string kernel_name(std::span<const char* const> operators);

/// An operand of a step: its text and its type.
struct SourceOperand {
  std::string text;
  const char* type;
};
/// The text of a step's result. operand(k, as) gives operand k; numbers of the host get type `as`, the type of the
/// computation, or their own type if `as` is empty.
std::string step_value(const FusedStep& step,
                       const std::function<SourceOperand(int k, std::optional<DType> as)>& operand);

}  // namespace lorry::kernels::cuda
