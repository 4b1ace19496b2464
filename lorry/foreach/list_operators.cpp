#include "lorry/foreach/list_operators.h"

#include <algorithm>

#include "lorry/ops/array.h"

namespace lorry::foreach::detail {
namespace {

using Operands = std::span<const Operand>;

/// Elements keep or change their type; a source that overlaps is the operator's to judge.
constexpr ListOperator kCopy{
    .op = Op::copy,
    .first_read = 1,
    .end_read = 2,
    .may_read_result = false,
    .resolve =
        [](const Request&, Operands x, bool& ungrouped) {
          const Tensor &self = *x[0].tensor(), &source = *x[1].tensor();
          require_defined(source, "a source");
          ungrouped =
              source.device() != self.device() || ops::operand_overlap(self, source) != ops::OperandOverlap::none;
          return ops::Resolved{{}, self.dtype(), kF32, self.device()};
        },
    .launch = [](const Request&, const kernels::List& list, const kernels::ForeachKernels& backend,
                 const Stream& stream) { backend.copy(list, stream); },
    .call = [](const Request&, Operands x) { return x[0].tensor()->copy_(*x[1].tensor()); },
};

/// A tensor of the dtype is itself.
constexpr ListOperator kCast{
    .op = Op::cast,
    .first_read = 0,
    .end_read = 1,
    .may_read_result = true,
    .resolve =
        [](const Request& request, Operands x, bool& ungrouped) {
          ungrouped = x[0].tensor()->dtype() == request.to;
          return ops::Resolved{{}, request.to, kF32, x[0].tensor()->device()};
        },
    .launch = [](const Request&, const kernels::List& list, const kernels::ForeachKernels& backend,
                 const Stream& stream) { backend.copy(list, stream); },
    .call = [](const Request& request, Operands x) { return x[0].tensor()->to(request.to); },
};

constexpr ListOperator kFill{
    .op = Op::fill,
    .first_read = 0,
    .end_read = 0,
    .may_read_result = true,
    .resolve =
        [](const Request&, Operands x, bool&) {
          return ops::Resolved{{}, x[0].tensor()->dtype(), kF32, x[0].tensor()->device()};
        },
    .launch =
        [](const Request& request, const kernels::List& list, const kernels::ForeachKernels& backend,
           const Stream& stream) {
          const kernels::ListOperand value = number_operand(request.arguments[1].number());
          backend.fill(list, &value.real, value.dtype, stream);
        },
    .call = [](const Request&, Operands x) { return x[0].tensor()->fill_(x[1]); },
};

constexpr const ListOperator* kListOperators[] = {&kCopy, &kCast, &kFill};

}  // namespace

const ListOperator* list_operator(Op op) {
  if (op < static_cast<Op>(kPointwiseCount)) return nullptr;
  const auto* const own = std::ranges::find(kListOperators, op, &ListOperator::op);
  return own == std::end(kListOperators) ? nullptr : *own;
}

kernels::ListOperand number_operand(const Scalar& number) {
  kernels::ListOperand x;
  x.kind = kernels::ListOperand::Kind::number;
  x.dtype = number.is_floating() ? kF64 : kI64;
  if (number.is_floating())
    x.real = number.to<double>();
  else
    x.whole = number.to<int64_t>();
  return x;
}

}  // namespace lorry::foreach::detail
