#include "lorry/kernels/cuda/fused/source_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "lorry/formula/formulas.h"

namespace lorry::kernels::cuda {
namespace {

/// The name of each row's formula, and the types in which it takes many instructions.
struct FormulaRow {
  const char* name;
  bool is_long_f32, is_long_f64, is_long_i64;
};
constexpr FormulaRow kFormulas[] = {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain)                         \
  {#Formula, formula::kLong<formula::Formula, float>, formula::kLong<formula::Formula, double>, \
   formula::kLong<formula::Formula, int64_t>},
#include "lorry/formula/pointwise.def"
};

}  // namespace

const char* type_name(DType t) {
  constexpr const char* kNames[] = {
#define LORRY_DTYPE(name, Name, text, type, dlpack, safetensors) #type,
#include "lorry/layout/dtypes.def"
  };
  return kNames[static_cast<int>(t)];
}

bool is_long(const FusedStep& step) {
  if (step.kind != FusedStep::formula) return false;
  const FormulaRow& row = kFormulas[static_cast<int>(step.op)];
  return step.compute == kF32 ? row.is_long_f32 : step.compute == kF64 ? row.is_long_f64 : row.is_long_i64;
}

int groups_of(std::span<const FusedStep> steps, int width, int64_t bytes, int most) {
  constexpr int64_t kBytesInFlight = 64;
  const int formulas = static_cast<int>(steps.size());
  int groups = 1;
  while (groups < most && std::ranges::none_of(steps, is_long) && 2 * groups * width * bytes <= kBytesInFlight &&
         2 * groups * width * formulas <= kMostFormulas)
    groups *= 2;
  return groups;
}

const char* operator_name(const FusedStep& step) {
  return step.kind == FusedStep::convert ? "cast" : row(step.op).name;
}

std::string kernel_name(std::span<const char* const> operators) {
  constexpr size_t kNamed = 5;
  std::string name = "fused";
  for (const char* text : operators.first(std::min(kNamed, operators.size()))) name += fmt::format("_{}", text);
  if (operators.size() > kNamed) name += fmt::format("_and_{}", operators.size() - kNamed);
  return name;
}

std::string step_value(const FusedStep& step,
                       const std::function<SourceOperand(int k, std::optional<DType> as)>& operand) {
  if (step.kind == FusedStep::convert) {
    const auto [text, type] = operand(0, std::nullopt);
    return fmt::format("convert<{}, {}>({})", type_name(step.dtype), type, text);
  }
  std::string operands, types;
  for (int k = 0; k < step.arity; ++k) {
    const auto [text, type] = operand(k, step.compute);
    operands += fmt::format("{}{}", k > 0 ? ", " : "", text);
    types += fmt::format(", {}", type);
  }
  return fmt::format("step<formula::{}, {}, {}, {}{}>({})", kFormulas[static_cast<int>(step.op)].name,
                     type_name(step.compute), type_name(step.result), type_name(step.dtype), types, operands);
}

}  // namespace lorry::kernels::cuda
