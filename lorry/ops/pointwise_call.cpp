#include "lorry/ops/pointwise_call.h"

#include <algorithm>

#include "lorry/base/events.h"
#include "lorry/formula/pointwise.h"
#include "lorry/layout/views.h"
#include "lorry/ops/array.h"
#include "lorry/ops/common_operands.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/promotion.h"

namespace lorry::ops {
namespace {

static_assert(static_cast<int>(Op::silu) == static_cast<int>(Pointwise::silu),
              "pointwise rows stand first in the operator table, in order");
constexpr Pointwise pointwise_row(Op op) { return static_cast<Pointwise>(op); }

using Operands = std::span<const Operand>;

std::string describe(const Operand& x) {
  return x.tensor() != nullptr ? lorry::describe(*x.tensor()) : fmt::format("a number of type {}", x.scalar().dtype());
}

std::string describe(Operands operands) {
  std::string text;
  for (const Operand& x : operands) text += (text.empty() ? "" : ", ") + describe(x);
  return text;
}

std::string_view accepted(Domain domain) {
  switch (domain) {
    case Domain::number:
      return "numbers, not bool";
    case Domain::whole:
      return "bool or integers";
    case Domain::integer:
      return "integers";
    case Domain::floating:
      return kFloatingNames;
    case Domain::any:
      break;
  }
  return "any type";
}

/// The types of a call: the operands' common one, the result's, and the one to compute in.
struct Types {
  DType common, result, compute;
};

[[gnu::cold, gnu::noinline]] void refuse_domain(Domain domain, DType common, Operands operands) {
  raise<DTypeError>("not defined for {}; got {}; expected {}", common, describe(operands), accepted(domain));
}

/// Coefficients, the operands behind those that decide the type, must fit into it.
void require_fitting_coefficients(const PointwiseRow& row, DType common, Operands operands) {
  for (const Operand& x : operands.subspan(row.deciding.end)) {
    const bool fits = x.tensor() != nullptr || !x.scalar().is_floating() || is_floating(common);
    require<DTypeError>(fits, "a floating coefficient for whole numbers; got {}; expected a whole number",
                        describe(operands));
  }
}

/// Inline, as require_into is: GCC returns three bytes by storing and reloading them, which costs 4 ns per call.
LORRY_INLINE Types infer_types(Op op, Operands operands) {
  const Operands some = deciding(op, operands);
  Types t;
  const Tensor *first = some.front().tensor(), *last = some.back().tensor();
  if (first != nullptr &&
      (some.size() == 1 || (some.size() == 2 && last != nullptr && first->dtype() == last->dtype()))) {
    t.common = first->dtype();
    if (first->node()->wrapped_number || (last->node()->wrapped_number)) [[unlikely]]
      t.common = result_type(some);
  } else {
    t.common = result_type(some);
  }
  const PointwiseRow& row = lorry::row(pointwise_row(op));
  if (!accepts(row.domain, t.common)) refuse_domain(row.domain, t.common, operands);
  require_fitting_coefficients(row, t.common, operands);
  if (row.result == Result::real && !is_floating(t.common)) t.common = kF32;
  t.result = row.result == Result::truth ? kBool : t.common;
  t.compute = t.common == kF64 ? kF64 : is_floating(t.common) ? kF32 : kI64;
  return t;
}

/// The shape that the operands broadcast to.
Dims infer_sizes(Operands operands) {
  Dims sizes;
  bool first = true;
  for (const Operand& x : operands) {
    if (x.tensor() == nullptr) continue;
    sizes = first ? x.tensor()->sizes() : broadcast(sizes, x.tensor()->sizes());
    first = false;
  }
  return sizes;
}

// Behind require_operands nothing is undefined: what runs in every call reads the nodes themselves.
const detail::TensorNode* node(const Operand& x) { return x.tensor() == nullptr ? nullptr : x.tensor()->node(); }

/// A 0-d tensor of the CPU goes with tensors of any device, as a number does.
bool goes_anywhere(const Tensor& x) { return x.device().is_cpu() && x.dim() == 0; }

/// The device of the call.
Device require_operands(Operands operands) {
  const Tensor* leading = nullptr;
  for (const Operand& x : operands) {
    if (x.tensor() == nullptr) continue;
    require<ValueError>(x.tensor()->defined(), "an operand is an undefined tensor; expected a tensor");
    if (leading == nullptr || goes_anywhere(*leading)) {
      leading = x.tensor();
    } else if (x.tensor()->device() != leading->device() && !goes_anywhere(*x.tensor())) {
      require_same_device(*leading, *x.tensor());
    }
  }
  return leading == nullptr ? kCPU : leading->device();
}

/// Whole numbers are not divided by zero, nor raised to a negative number.
void require_divisible(Op op, DType common, const Operand& divisor) {
  if (is_floating(common)) return;
  const OperandRules& rules = operand_rules(op);
  if (rules.raises_whole) {
    require<ValueError>(
        divisor.tensor() != nullptr || divisor.scalar().to<int64_t>() >= 0,
        "a whole number to a negative power; got exponent {} for {}; expected an exponent >= 0, or floating operands",
        divisor.scalar().to<int64_t>(), common);
    return;
  }
  if (!rules.divides_whole) return;
  const bool zero = divisor.tensor() == nullptr ? divisor.scalar().to<int64_t>() == 0
                                                : backend(*divisor.tensor())
                                                      .pointwise->has_zero(array(*divisor.tensor()),
                                                                           current_stream(divisor.tensor()->device()));
  require<ValueError>(!zero,
                      "a whole number is divided by zero; got divisor {}; expected no zeros, or floating operands",
                      describe(divisor));
}

/// The kernel that computes the row for these types.
Pointwise kernel_row(Op op, DType common, Operands operands) {
  if (op == Op::bitwise_not && common == kBool) return Pointwise::logical_not;
  if (op == Op::pow && operands[1].tensor() == nullptr && operands[1].scalar().to<double>() == 2)
    return Pointwise::square;
  return pointwise_row(op);
}

void launch(Op op, const Types& types, const Tensor& result, Operands operands) {
  const detail::TensorNode& out = *result.node();
  const Device device = out.storage->device();
  kernels::PointwiseCall call;
  call.op = kernel_row(op, types.common, operands);
  call.compute = types.compute;
  call.arity = row(call.op).arity;
  call.out = {out.data(), &out.layout, out.dtype, out.contiguous};
  union Number {
    double real;
    int64_t whole;
  } numbers[4];
  for (int k = 0; k < call.arity; ++k) {
    const Operand& x = operands[static_cast<size_t>(k)];
    if (const detail::TensorNode* t = node(x); t != nullptr && t->storage->device() != device) {
      call.in[k] = {t->data(), nullptr, t->dtype, true};
    } else if (t != nullptr) {
      call.in[k] = {t->data(), &t->layout, t->dtype, t->contiguous};
    } else if (x.scalar().is_floating()) {
      numbers[k].real = x.scalar().to<double>();
      call.in[k] = {&numbers[k], nullptr, kF64, true};
    } else {
      numbers[k].whole = x.scalar().to<int64_t>();
      call.in[k] = {&numbers[k], nullptr, kI64, true};
    }
  }
  kernels::backend(device).pointwise->run(call, current_stream(device));
}

/// The result takes the strides of the operands that have its sizes where these are dense and agree; else it is
/// row-major.
Tensor allocate(DType dtype, Device device, Operands operands) {
  const Tensor* first = nullptr;
  bool sizes_agree = true, strides_agree = true;
  for (const Operand& x : operands) {
    const detail::TensorNode* t = node(x);
    if (t == nullptr) continue;
    if (first == nullptr) {
      first = x.tensor();
    } else if (const detail::TensorNode& f = *first->node(); !same_sizes(f.layout, t->layout)) {
      sizes_agree = false;
    } else {
      strides_agree &= (f.contiguous && t->contiguous) || f.layout == t->layout;
    }
  }
  if (sizes_agree && strides_agree && first->device() == device) return empty_like(*first, dtype);
  const Dims sizes = sizes_agree ? first->sizes() : infer_sizes(operands);
  const Tensor* pattern = nullptr;
  for (const Operand& x : operands) {
    if (x.tensor() == nullptr || x.tensor()->device() != device || x.tensor()->sizes() != sizes) continue;
    if (pattern != nullptr && !(pattern->layout() == x.tensor()->layout())) return empty(sizes, {dtype, device});
    pattern = x.tensor();
  }
  return pattern != nullptr ? empty_like(*pattern, dtype) : empty(sizes, {dtype, device});
}

[[gnu::cold, gnu::noinline]] void refuse_overlap(const Tensor& out, const Tensor& x) {
  raise<ShapeError>(
      "an operand shares part of the memory that is written; got {} and {}; expected the same elements or none; clone "
      "the operand first",
      out, x);
}

/// How a call writes a given tensor: in place, or as out=, which gives an empty one the result's sizes.
enum class Target { in_place, out };

/// All that may be wrong with a call that writes a given tensor.
LORRY_INLINE Types require_into(Op op, const Tensor& out, Operands operands, bool& copied, Target target) {
  require_operands(operands);
  for (const Operand& x : operands)
    if (x.tensor() != nullptr && x.tensor()->device() != out.device() && !goes_anywhere(*x.tensor()))
      require_same_device(out, *x.tensor());
  const Types types = infer_types(op, operands);
  require_storable(out, types.result);
  bool shapes_agree = true;
  for (const Operand& x : operands) {
    if (x.tensor() == nullptr || x.tensor()->is_same(out)) continue;
    shapes_agree &= same_sizes(x.tensor()->node()->layout, out.node()->layout);
    const OperandOverlap how = operand_overlap(out, *x.tensor());
    if (how == OperandOverlap::partial) refuse_overlap(out, *x.tensor());
    copied |= how == OperandOverlap::unknown;
  }
  if (!shapes_agree) {
    const Dims sizes = infer_sizes(operands);
    if (target == Target::out) {
      require_fitting(out, sizes);
    } else {
      require<ShapeError>(sizes == out.sizes(),
                          "the result does not fit; got result sizes {} for {}; expected equal sizes", sizes, out);
    }
  }
  return types;
}

/// Whether converting from the compute type straight to out's dtype skips no rounding or wrapping in the result's
/// dtype.
bool stores_directly(Op op, const Types& types, DType out) {
  if (out == types.result || types.result == types.compute || row(pointwise_row(op)).result == Result::truth)
    return true;
  return is_integral(types.result) && is_integral(out) && size_of(out) <= size_of(types.result);
}

void run_into(Op op, const Tensor& out, Operands given, Target target) {
  bool copied = false;
  const Types types = require_into(op, out, given, copied, target);
  const CommonOperands common(op, types.common, given);
  const Operands operands = common.operands();
  if (operands.size() == 2 && !is_floating(types.common)) require_divisible(op, types.common, operands[1]);
  if (target == Target::out && out.node()->numel == 0) [[unlikely]]
    fit_out(out, infer_sizes(given));
  if (!stores_directly(op, types, out.dtype())) [[unlikely]] {
    const Tensor result = empty_like(out, types.result);
    launch(op, types, result, operands);
    out.copy_(result);
    return;
  }
  if (!copied) return launch(op, types, out, operands);
  // Elements of both may interleave without being shared; copying is right either way.
  std::vector<Operand> safe;
  std::vector<Tensor> copies;
  copies.reserve(operands.size());
  for (const Operand& x : operands) {
    const bool unsure = x.tensor() != nullptr && operand_overlap(out, *x.tensor()) == OperandOverlap::unknown;
    if (unsure) {
      events::emit(events::Kind::hidden_copy, name(op), "an operand lies among the elements that are written");
      copies.push_back(x.tensor()->clone());
    }
    safe.push_back(unsure ? Operand(copies.back()) : x);
  }
  launch(op, types, out, safe);
}

}  // namespace

OperandOverlap operand_overlap(const Tensor& out, const Tensor& x) {
  if (out.node()->storage.get() != x.node()->storage.get() || out.node()->numel == 0 || x.node()->numel == 0)
    return OperandOverlap::none;
  if (out.data_ptr() == x.data_ptr() && out.dtype() == x.dtype() &&
      (out.is_same(x) || views::same_elements(out.node()->layout, x.node()->layout)))
    return OperandOverlap::same;
  if (!spans_overlap(out.data_ptr(), out.layout(), size_of(out.dtype()), x.data_ptr(), x.layout(), size_of(x.dtype())))
    return OperandOverlap::none;
  return out.layout().is_dense() && x.layout().is_dense() ? OperandOverlap::partial : OperandOverlap::unknown;
}

Tensor pointwise(Op op, std::span<const Operand> given) {
  const Device device = require_operands(given);
  const Types types = infer_types(op, given);
  const CommonOperands common(op, types.common, given);
  const Operands operands = common.operands();
  if (operands.size() == 2 && !is_floating(types.common)) require_divisible(op, types.common, operands[1]);
  const Tensor out = allocate(types.result, device, operands);
  launch(op, types, out, operands);
  return out;
}

Resolved resolve(Op op, std::span<const Operand> operands) {
  const Device device = require_operands(operands);
  if (op == Op::where && operands[0].tensor() != nullptr) require_condition(*operands[0].tensor());
  const Types types = infer_types(op, operands);
  const CommonOperands common(op, types.common, operands);
  if (operands.size() == 2 && !is_floating(types.common)) require_divisible(op, types.common, common.operands()[1]);
  infer_sizes(operands);
  return {kernel_row(op, types.common, operands),       types.result, types.compute, device, common.converts(),
          depends_on_values(op, types.common, operands)};
}

Resolved resolve_into(Op op, const Tensor& out, std::span<const Operand> operands, bool& copies) {
  if (op == Op::where && operands[0].tensor() != nullptr) require_condition(*operands[0].tensor());
  const Types types = require_into(op, out, operands, copies, Target::in_place);
  const CommonOperands common(op, types.common, operands);
  if (operands.size() == 2 && !is_floating(types.common)) require_divisible(op, types.common, common.operands()[1]);
  return {kernel_row(op, types.common, operands),       types.result, types.compute, out.device(), common.converts(),
          depends_on_values(op, types.common, operands)};
}

void pointwise_into(Op op, const Tensor& self, std::span<const Operand> operands) {
  run_into(op, self, operands, Target::in_place);
}
void pointwise_out(Op op, const Tensor& out, std::span<const Operand> operands) {
  run_into(op, out, operands, Target::out);
}

void require_reachable(const Tensor& target) {
  require<ValueError>(target.defined(), "the tensor is undefined; expected a view to write through");
  require<ValueError>(target.node()->users() > 1 || target.storage().users() > 1,
                      "assignment to a temporary copy, which would be lost; got {}; expected a view; use index_put_, "
                      "or copy_ on a variable",
                      target);
}

void require_condition(const Tensor& condition) {
  require_defined(condition, "the condition");
  require<DTypeError>(condition.dtype() == kBool, "the condition is not bool; got {}; expected a bool tensor",
                      condition);
}

}  // namespace lorry::ops
